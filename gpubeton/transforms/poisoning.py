"""Poison: blend a mask over chosen images."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.batch.image_batch import blend_mask
from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.pixel_type import dtype_name
from gpubeton.transforms.checks import checked_type, image_size
from gpubeton.transforms.chosen_samples import ChosenSamples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.state import State


class Poison(ChosenSamples):
    """Blend a mask over those images that were chosen: ``(1 - alpha) * image + alpha * mask``.

    Parameters
    ----------
    mask : ndarray, shape (H, W, 3)
        The mask, in the units of the batch: levels from 0 to 255 before ``NormalizeImage``.
    alpha : ndarray, shape (H, W)
        Opacity of each of its pixels, 0 to 1.
    indices : sequence of int, or of whole float
        Sample ids of the images.
    clamp : tuple of two numbers
        Values are cut off below the first and above the second.

    Raises
    ------
    OptionError
        If `mask` and `alpha` do not fit each other, or `clamp` or `indices` are not valid.

    Notes
    -----
    FFCV's arithmetic, in float32 and on levels rounded down. It works on tensors of any device as well.

    Examples
    --------
    >>> poison = Poison(np.full((1, 1, 3), 200), np.full((1, 1), 0.5), indices=[7])
    >>> poison.apply(np.full((2, 1, 1, 3), 100, "uint8"), np.array([7, 8], "u8"))[:, 0, 0, 0].tolist()
    [150, 100]
    """

    def __init__(
        self,
        mask: NDArray[Any],
        alpha: NDArray[Any],
        indices: Sequence[int] | NDArray[Any],
        clamp: tuple[float, float] = (0, 255),
    ) -> None:
        super().__init__(indices)
        self.mask = np.array(mask, np.float64)
        self.alpha = np.array(alpha, np.float64)
        self.clamp = clamp
        if self.mask.shape != (*self.alpha.shape, 3) or self.alpha.ndim != 2:
            raise OptionError(
                f"Poison: mask has shape {self.mask.shape} and alpha {self.alpha.shape}; expected (H, W, 3) and (H, W)"
            )
        limits = np.asarray(clamp, np.float64)
        if limits.shape != (2,) or not limits[0] <= limits[1]:
            raise OptionError(f"Poison: clamp is {clamp!r}; expected the least and the largest value: (0, 255)")

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        size, dtype = image_size(self, previous_state), dtype_name(previous_state.dtype)
        if size != self.alpha.shape:
            raise PipelineError(
                f"Poison: the mask has {self.alpha.shape[0]} x {self.alpha.shape[1]} pixels, the images have {size[0]} "
                f"x {size[1]}; expected a mask of their size"
            )
        checked_type(self, previous_state, takes_floats=True)
        if dtype == "uint8" and not (self.clamp[0] >= 0 and self.clamp[1] <= 255):
            raise PipelineError(
                f"Poison: clamp is {self.clamp}, but levels are 0 to 255; expected limits in that range"
            )
        return replace(previous_state, shape=tuple(previous_state.shape)), None

    def change(self, batch: Any, rows: NDArray[np.intp]) -> None:
        blend_mask(batch, rows, self.mask, self.alpha, self.clamp)
