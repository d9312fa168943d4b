"""Squeeze: drop axes of length 1."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from gpubeton.errors import PipelineError
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.state import State


class Squeeze(Transform):
    """Drop axes of length 1, so that labels of shape (N, 1) become (N,).

    Parameters
    ----------
    *dims : int
        Axes to drop, counted with the batch axis as 0; an axis of another length stays. Without any, every axis of
        length 1 but the batch axis is dropped, so that a last batch of one sample keeps its axis.

    Notes
    -----
    FFCV's; torch's ``squeeze``, but for the first dimension, the batch's, which stays.

    Examples
    --------
    >>> import numpy as np
    >>> Squeeze().apply(np.zeros((1, 1))).shape
    (1,)
    """

    moves: ClassVar[Moves] = Moves.NOTHING

    def __init__(self, *dims: int) -> None:
        self.dims = tuple(int(dim) for dim in dims)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        axes = len(previous_state.shape) + 1
        if not all(-axes <= dim < axes for dim in self.dims):
            raise PipelineError(
                f"Squeeze: dims {self.dims} name an axis that is not there; with the batch axis, which is 0, the batch "
                f"has {axes} axes of which each sample has {tuple(previous_state.shape)}"
            )
        dropped = _dropped(self.dims, (None, *previous_state.shape))
        shape = tuple(length for axis, length in enumerate(previous_state.shape, start=1) if axis not in dropped)
        return replace(previous_state, shape=shape), None

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        return batch.squeeze(_dropped(self.dims, tuple(batch.shape)))


@lru_cache(maxsize=64)
def _dropped(dims: tuple[int, ...], shape: tuple[int | None, ...]) -> tuple[int, ...]:
    axes = {dim % len(shape) for dim in dims} if dims else set(range(1, len(shape)))
    return tuple(axis for axis in sorted(axes) if shape[axis] == 1)
