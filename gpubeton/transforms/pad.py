"""Pad: add pixels around images."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.transforms.fill import checked_fill, checked_levels
from gpubeton.transforms.layout import as_nhwc, image_size
from gpubeton.transforms.transform import Fill, Geometry, Moves, Transform
from gpubeton.transforms.window import cut_windows, window_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.state import State


class Pad(Transform):
    """Add pixels of one colour around each image.

    Parameters
    ----------
    padding : int or sequence of two or four int
        Pixels on each side; or left and right, and at the top and bottom; or left, top, right and bottom.
    fill : sequence of three numbers
        Their colour, in the units of the batch: levels from 0 to 255 before ``NormalizeImage``.

    Raises
    ------
    OptionError
        If `padding` is negative or `fill` is not three numbers.

    Notes
    -----
    torchvision's ``Pad``, and the meaning of its numbers.

    Examples
    --------
    >>> Pad((1, 0)).apply(np.full((1, 1, 2, 3), 5, "uint8"))[0, 0, :, 0].tolist()
    [0, 5, 5, 0]
    """

    moves: ClassVar[Moves] = Moves.ALONG_AXES

    def __init__(self, padding: int | Sequence[int], fill: Sequence[float] = (0, 0, 0)) -> None:
        self.padding = _checked_padding(padding)
        self.fill = checked_fill("Pad", fill)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        size = self._padded(image_size(self, previous_state, any_channels=True))
        checked_levels("Pad", self.fill, previous_state)
        return replace(previous_state, shape=window_shape(previous_state, size)), None

    def fold(self, geometry: Geometry, draw: Any) -> None:
        left, top, _, _ = self.padding
        size = self._padded(geometry.size)
        geometry.crop(np.array([[-top, -left, *size]]), size)

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        copied = copy.copy(self)
        copied.fill = fill
        return copied

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        left, top, _, _ = self.padding
        height, width = as_nhwc(batch).shape[1:3]
        corners = np.tile([-top, -left], (len(batch), 1))
        return cut_windows(batch, corners, self._padded((height, width)), self.fill)

    def _padded(self, size: tuple[int, int]) -> tuple[int, int]:
        left, top, right, bottom = self.padding
        return size[0] + top + bottom, size[1] + left + right


def _checked_padding(padding: int | Sequence[int]) -> tuple[int, int, int, int]:
    given = np.asarray(padding)
    if given.dtype.kind in "iu" and given.shape in {(), (2,), (4,)} and given.min() >= 0:
        left, top, right, bottom = np.tile(given.reshape(-1), 4 // given.size).tolist()
        return left, top, right, bottom
    raise OptionError(
        f"Pad: padding is {padding!r}; expected pixels, 0 or more: 4, or (left and right, top and bottom), or (left, "
        f"top, right, bottom)"
    )
