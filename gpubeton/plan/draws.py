"""Draws: one row of numbers that tells an executor all about one image.

A row is int32. Its first columns say which part of the source is resized to the output and how that is placed::

    resized  = resize(source[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH])
    flipped  = resized, mirrored left to right if FLIP is 1
    out[y, x] = flipped[y + SHIFT_Y, x + SHIFT_X]      where that exists; the rest is painted

Then come K paints of five columns (top, left, bottom, right, fill), of which the first NUM_PAINTS count. They are
painted in order: ``out[top:bottom, left:right] = fills[fill]``. They lie inside the image and may be empty.

Flips, cutouts, erased rectangles and translates in any order and number fold into that one row: see `compose`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.transforms.cutout import Cutout
from gpubeton.transforms.erasing import RandomErasing
from gpubeton.transforms.flip import RandomHorizontalFlip
from gpubeton.transforms.translate import RandomTranslate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubeton.transforms.fill import Fill
    from gpubeton.transforms.transform import Transform

TOP, LEFT, HEIGHT, WIDTH, FLIP, SHIFT_Y, SHIFT_X, NUM_PAINTS = range(8)
DRAW_COLUMNS = 8
PAINT_COLUMNS = 5

Rows = NDArray[np.int32]


def paints_of(step: Transform) -> int:
    """How many paints a step adds to a row.

    Parameters
    ----------
    step : Transform
        A flip, cutout, erasing or translate.

    Returns
    -------
    int
        1 for a cutout or an erasing, 2 for a translate (a band along each axis), 0 for a flip.

    Examples
    --------
    >>> paints_of(RandomTranslate(4))
    2
    """
    if isinstance(step, RandomTranslate):
        return 2
    return 1 if isinstance(step, Cutout | RandomErasing) else 0


def compose(
    steps: Sequence[Transform],
    draws: Sequence[NDArray[Any] | None],
    boxes: Rows,
    *,
    size: tuple[int, int],
    fills: Mapping[Fill, int],
) -> Rows:
    """Fold a crop and the steps after it into one row per image.

    Parameters
    ----------
    steps : sequence of RandomHorizontalFlip, Cutout, RandomErasing and RandomTranslate
        In the order in which they are applied.
    draws : sequence of ndarray, each of shape (N, ...)
        What each step drew.
    boxes : ndarray of int32, shape (N, 4)
        Crop boxes: top, left, height, width, in source pixels.
    size : tuple of int
        Height and width of the output in pixels.
    fills : mapping of fill to int
        Row of each fill in the executor's table of fills.

    Returns
    -------
    ndarray of int32, shape (N, DRAW_COLUMNS + K * PAINT_COLUMNS)
        One row per image, K the sum of `paints_of` over the steps.

    Examples
    --------
    >>> box = np.array([[5, 6, 40, 30]], np.int32)
    >>> flip, cutout = RandomHorizontalFlip(), Cutout(2)
    >>> chosen = [np.array([[1]]), np.array([[0, 3]])]
    >>> compose([cutout, flip], chosen[::-1], box, size=(8, 8), fills={cutout.fill: 0}).tolist()
    [[5, 6, 40, 30, 1, 0, 0, 1, 0, 3, 2, 5, 0]]
    """
    num_paints = sum(map(paints_of, steps))
    placement = _Placement(boxes, size, num_paints)
    for step, draw in zip(steps, draws, strict=True):
        if draw is None:
            raise TypeError(f"{step!r} has no draw to fold")
        if isinstance(step, RandomHorizontalFlip):
            placement.flip(draw[:, 0])
        elif isinstance(step, Cutout):
            placement.paint(np.hstack([draw, draw + step.crop_size]), fills[step.fill])
        elif isinstance(step, RandomErasing):
            placement.paint(draw, fills[step.colour])
        elif isinstance(step, RandomTranslate):
            placement.translate(draw - step.padding, fills[step.fill])
        else:
            raise TypeError(f"{step!r} does not fold into a draw; expected a flip, a cutout, an erasing or a translate")
    return placement.rows


class _Placement:
    """Rows under construction: after each step they describe the images so far."""

    def __init__(self, boxes: Rows, size: tuple[int, int], num_paints: int) -> None:
        self.size = size
        self.used = 0
        self.rows = np.zeros((len(boxes), DRAW_COLUMNS + num_paints * PAINT_COLUMNS), np.int32)
        self.rows[:, TOP : WIDTH + 1] = boxes
        self.rows[:, NUM_PAINTS] = num_paints
        self.slots = self.rows[:, DRAW_COLUMNS:].reshape(len(boxes), num_paints, PAINT_COLUMNS)

    def flip(self, flipped: NDArray[Any]) -> None:
        """Mirror the rows where `flipped` is 1: crop, earlier paints and the shift along x."""
        rows = self.rows
        rows[:, FLIP] ^= flipped
        if self.used == 0:
            return
        chosen = np.flatnonzero(flipped)
        rows[chosen, SHIFT_X] *= -1
        paints = self.slots[chosen, : self.used]
        paints[..., [1, 3]] = self.size[1] - paints[..., [3, 1]]
        self.slots[chosen, : self.used] = paints

    def paint(self, box: NDArray[Any], fill: int) -> None:
        """Add a rectangle: top, left, bottom and right, shape (N, 4)."""
        paint = self.slots[:, self.used]
        paint[:, 0:4] = box
        paint[:, 4] = fill
        self.used += 1

    def translate(self, shift: NDArray[Any], fill: int) -> None:
        """Read each image `shift` rows and columns, shape (N, 2), further on; paint what comes from outside."""
        self.rows[:, SHIFT_Y : SHIFT_X + 1] += shift.astype(np.int32)
        limit = np.array(self.size * 2, np.int32)
        if self.used:
            paints = self.slots[:, : self.used, :4]
            paints -= np.tile(shift, 2)[:, None].astype(np.int32)
            np.clip(paints, 0, limit, out=paints)
        for axis, length in enumerate(self.size):
            moved = shift[:, axis]
            paint = self.slots[:, self.used]
            paint[:, 2:4] = self.size
            paint[:, axis] = np.where(moved > 0, np.maximum(length - moved, 0), 0)
            paint[:, axis + 2] = np.where(moved > 0, length, np.minimum(-moved, length))
            paint[:, 4] = fill
            self.used += 1
