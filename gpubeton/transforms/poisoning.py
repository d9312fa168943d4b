"""Poison: blend a mask over chosen images; and the base of operations on chosen samples of the file."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.image_batch import blend_mask
from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.pixel_type import dtype_name
from gpubeton.transforms.checks import checked_type, given_draw, image_size
from gpubeton.transforms.transform import BatchKey, Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


_MOST_SHOWN = 8  # numbers of an array that a repr shows


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
        rows = np.flatnonzero(np.isin(given_draw(self, draw, "the samples' ids"), self.indices))
        if len(rows):
            self.change(batch, rows)
        return batch

    @abstractmethod
    def change(self, batch: Any, rows: NDArray[np.intp]) -> None:
        """Carry the operation out on the rows, (R,), of the chosen samples, in place."""

    def generate_code(self) -> Callable[..., Any]:
        """Return ``code(batch, memory, indices)``, a plain Python function; loaders call `apply`."""

        def code(batch: Any, memory: Any, indices: NDArray[Any]) -> Any:
            return self.apply(batch, indices)

        code.with_indices = True  # type: ignore[attr-defined]  # FFCV's way to ask for the sample ids
        return code

    def __repr__(self) -> str:
        arguments = (f"{name}={_brief(value)}" for name, value in vars(self).items() if not hasattr(Operation, name))
        return f"{type(self).__name__}({', '.join(arguments)})"


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

    def check_state(self, state: State) -> None:
        size, dtype = image_size(self, state), dtype_name(state.dtype)
        if size != self.alpha.shape:
            raise PipelineError(
                f"Poison: the mask has {self.alpha.shape[0]} x {self.alpha.shape[1]} pixels, the images have {size[0]} "
                f"x {size[1]}; expected a mask of their size"
            )
        checked_type(self, state, takes_floats=True)
        if dtype == "uint8" and not (self.clamp[0] >= 0 and self.clamp[1] <= 255):
            raise PipelineError(
                f"Poison: clamp is {self.clamp}, but levels are 0 to 255; expected limits in that range"
            )

    def change(self, batch: Any, rows: NDArray[np.intp]) -> None:
        blend_mask(batch, rows, self.mask, self.alpha, self.clamp)


def _are_ids(chosen: NDArray[Any]) -> bool:
    if chosen.dtype.kind == "f":  # whole ones, as what counts and splits samples often gives
        return bool((np.isfinite(chosen) & (chosen >= 0) & (chosen < 2.0**64) & (chosen == np.floor(chosen))).all())
    return chosen.dtype.kind in "iu" and bool(chosen.min() >= 0)


def _brief(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    return str(value.tolist()) if value.size <= _MOST_SHOWN else f"<{' x '.join(map(str, value.shape))}>"
