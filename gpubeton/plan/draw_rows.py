"""Draws: one row of numbers with all that an executor needs to know about one image.

A row is int32. Its first columns give the part of the source that is resized to the output, and its placement::

    resized  = resize(source[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH])
    flipped  = resized, mirrored left to right if FLIP is 1
    out[y, x] = flipped[y + SHIFT_Y, x + SHIFT_X]      where that exists; the rest is painted

Then come K paints of five columns (top, left, bottom, right, fill), of which the first NUM_PAINTS count. They are
painted in order: ``out[top:bottom, left:right] = fills[fill]``. They lie inside the image and may be empty.

Flips, cutouts, erased rectangles and translates in any order and number fold into that one row: see `compose`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubeton.batch.image_batch import Fill
    from gpubeton.transforms.transform import Transform

TOP, LEFT, HEIGHT, WIDTH, FLIP, SHIFT_Y, SHIFT_X, NUM_PAINTS = range(8)
DRAW_COLUMNS = 8
PAINT_COLUMNS = 5

Rows = NDArray[np.int32]


def compose(
    steps: Sequence[Transform],
    draws: Sequence[NDArray[Any] | None],
    boxes: Rows,  # (N, 4) crops: top, left, height, width in source pixels
    *,
    size: tuple[int, int],
    fills: Mapping[Fill, int],
) -> Rows:  # (N, DRAW_COLUMNS + K * PAINT_COLUMNS)
    """Fold a crop and the steps after it into one row per image; `fills` numbers the colors of the executor."""
    folded = DrawRows(boxes, size, sum(step.num_paints for step in steps), fills)
    for step, draw in zip(steps, draws, strict=True):
        if draw is None:
            raise TypeError(f"{step!r} has no draw to fold")
        step.fold(folded, draw)
    return folded.rows


class DrawRows:
    """Rows under construction; a `Geometry`. After each step they describe the images so far."""

    def __init__(self, boxes: Rows, size: tuple[int, int], num_paints: int, fills: Mapping[Fill, int]) -> None:
        self.size = size
        self.fills = fills
        self.used = 0
        self.rows = np.zeros((len(boxes), DRAW_COLUMNS + num_paints * PAINT_COLUMNS), np.int32)
        self.rows[:, TOP : WIDTH + 1] = boxes
        self.rows[:, NUM_PAINTS] = num_paints
        self.slots = self.rows[:, DRAW_COLUMNS:].reshape(len(boxes), num_paints, PAINT_COLUMNS)

    def crop(self, boxes: NDArray[Any], size: tuple[int, int]) -> None:
        """Refuse: a row has one crop, which the decoder chooses."""
        raise TypeError("a second crop does not fold into a draw")

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

    def paint(self, boxes: NDArray[Any], fill: Fill) -> None:
        """Add a rectangle: top, left, bottom and right, shape (N, 4)."""
        paint = self.slots[:, self.used]
        paint[:, 0:4] = boxes
        paint[:, 4] = self.fills[fill]
        self.used += 1

    def translate(self, shift: NDArray[Any], fill: Fill) -> None:
        """Shift each image up and left by `shift` pixels, (N, 2); paint the uncovered part."""
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
            paint[:, 4] = self.fills[fill]
            self.used += 1


def identity_draws(height: int, width: int, columns: int = DRAW_COLUMNS) -> NDArray[np.int32]:  # (1, columns) int32
    """Return draws that copy one image unchanged."""
    draws = np.zeros((1, columns), np.int32)
    draws[0, HEIGHT], draws[0, WIDTH] = height, width
    return draws


def most_taps(draws: NDArray[np.int32], height: int, width: int) -> int:
    """Return an even upper bound of the taps of an output pixel along an axis, for any interpolation."""
    # Not with `max`, a function in Python around this one.
    tallest, widest = (int(np.maximum.reduce(draws[:, column], initial=0)) for column in (HEIGHT, WIDTH))
    return 2 * math.ceil(max(tallest / height, widest / width, 1.0)) + 2
