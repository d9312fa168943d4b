"""Chosen samples: what operations on certain samples of the file have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.pipeline.operation import Operation
from gpubeton.transforms.transform import BatchKey, Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State

_MOST_SHOWN = 8
"""Numbers of an array that a repr shows."""


class ChosenSamples(Transform):
    """An operation on those samples of the file that were chosen by their ids."""

    moves: ClassVar[Moves] = Moves.NOTHING

    def __init__(self, indices: Sequence[int] | NDArray[Any]) -> None:
        chosen = np.asarray(indices)
        if chosen.ndim != 1 or (len(chosen) and not _are_ids(chosen)):
            raise OptionError(f"{type(self).__name__}: indices are {indices!r}; expected a list of sample ids: [0, 17]")
        self.indices: NDArray[np.uint64] = np.unique(chosen.astype(np.uint64))

    def draw_batch(self, key: BatchKey, uniform: Uniform | None, state: State) -> NDArray[Any]:
        return key.samples

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if draw is None:
            raise TypeError(f"{type(self).__name__}.apply needs to know which samples these are: pass their ids")
        rows = np.flatnonzero(np.isin(draw, self.indices))
        if len(rows):
            self.change(batch, rows)
        return batch

    @abstractmethod
    def change(
        self,
        batch: Any,  # (N, ...): the batch
        rows: NDArray[np.intp],  # (R,) intp: rows of the chosen samples
    ) -> None:
        """Carry the operation out, in place."""

    def generate_code(self) -> Callable[..., Any]:
        """Return ``code(batch, memory, indices)``, a plain Python function; loaders call `apply`."""

        def code(batch: Any, memory: Any, indices: NDArray[Any]) -> Any:
            return self.apply(batch, indices)

        code.with_indices = True  # type: ignore[attr-defined]  # FFCV's way to ask for the sample ids
        return code

    def __repr__(self) -> str:
        arguments = (f"{name}={_brief(value)}" for name, value in vars(self).items() if not hasattr(Operation, name))
        return f"{type(self).__name__}({', '.join(arguments)})"


def _are_ids(chosen: NDArray[Any]) -> bool:
    if chosen.dtype.kind == "f":  # whole ones, as what counts and splits samples often gives
        return bool((np.isfinite(chosen) & (chosen >= 0) & (chosen < 2.0**64) & (chosen == np.floor(chosen))).all())
    return chosen.dtype.kind in "iu" and bool(chosen.min() >= 0)


def _brief(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    return str(value.tolist()) if value.size <= _MOST_SHOWN else f"<{' x '.join(map(str, value.shape))}>"
