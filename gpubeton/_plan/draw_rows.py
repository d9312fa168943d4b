"""Draws: one row of numbers with all that an executor needs to know about one image.

A row is int32. Its first columns give the part of the source that is resized to the output, and its placement::

    resized  = resize(source[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH]), to RESIZED_HEIGHT x RESIZED_WIDTH
    flipped  = resized, mirrored left to right if FLIP is 1
    out[y, x] = flipped[y + SHIFT_Y, x + SHIFT_X]      where that exists; the rest is painted

RESIZED_HEIGHT and RESIZED_WIDTH are zero for images that are resized to the whole output.

Then come K paints of five columns (top, left, bottom, right, fill), of which the first NUM_PAINTS count. They are
painted in order: ``out[top:bottom, left:right] = fills[fill]``. They lie inside the image and may be empty.

Flips, cutouts, erased rectangles and translates in any order and number fold into that one row: see `compose`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpubeton._compile.compile import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubeton._batch.image_batch import Fill
    from gpubeton.transforms.transform import Transform

TOP, LEFT, HEIGHT, WIDTH, FLIP, SHIFT_Y, SHIFT_X, RESIZED_HEIGHT, RESIZED_WIDTH, NUM_PAINTS = range(10)
DRAW_COLUMNS = 10
PAINT_COLUMNS = 5

PADDING_PAINTS = 2
"""Paints around an image that is padded along one axis: before it and after it."""

Rows = NDArray[np.int32]


def compose(
    steps: Sequence[Transform],
    draws: Sequence[NDArray[Any] | None],
    boxes: Rows,  # (N, 4) crops: top, left, height, width in source pixels
    *,
    size: tuple[int, int],
    fills: Mapping[Fill, int],
    padding: tuple[NDArray[Any], Fill] | None = None,  # where the crops come to lie, and the color around them
) -> Rows:  # (N, DRAW_COLUMNS + K * PAINT_COLUMNS)
    """Fold a crop and the steps after it into one row per image; `fills` numbers the colors of the executor."""
    num_paints = 0 if padding is None else PADDING_PAINTS
    folded = DrawRows(boxes, size, num_paints + sum(step.num_paints for step in steps), fills)
    if padding is not None:
        folded.pad(*padding)
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

    def pad(self, places: NDArray[Any], fill: Fill) -> None:
        """Resize each crop to its place, (N, 4) top, left, height, width; paint the rest of one axis."""
        self.rows[:, SHIFT_Y : SHIFT_X + 1] = -places[:, :2]
        self.rows[:, RESIZED_HEIGHT : RESIZED_WIDTH + 1] = places[:, 2:]
        height, width = self.size
        top, left = places[:, 0], places[:, 1]
        bottom, right = top + places[:, 2], left + places[:, 3]
        is_across = places[:, 2] == height  # bars at the left and at the right; else at the top and at the bottom
        zeros = np.zeros_like(top)
        ends = np.where(is_across, height, top), np.where(is_across, left, width)
        self.paint(np.stack([zeros, zeros, *ends], axis=1), fill)
        begins = np.where(is_across, 0, bottom), np.where(is_across, right, 0)
        self.paint(np.stack([*begins, zeros + height, zeros + width], axis=1), fill)

    def turn(self, flipped: NDArray[Any]) -> None:
        """Mirror the rows left to right where `flipped` is 1: crop, earlier paints and the shift along x."""
        rows = self.rows
        rows[:, FLIP] ^= flipped
        if self.used == 0:
            return
        chosen = np.flatnonzero(flipped)
        resized = rows[chosen, RESIZED_WIDTH]
        rows[chosen, SHIFT_X] = np.where(resized > 0, resized - self.size[1], 0) - rows[chosen, SHIFT_X]
        paints = self.slots[chosen, : self.used]
        paints[..., [1, 3]] = self.size[1] - paints[..., [3, 1]]
        self.slots[chosen, : self.used] = paints

    def place(self, placement: object) -> None:
        """Refuse: a row has no warps and no mosaics."""
        raise TypeError("a warp or a mosaic does not fold into a draw")

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


def filling_crops(rows: Rows, size: tuple[int, int]) -> NDArray[np.float64]:  # (N, SHIFT_X + 1)
    """Return crops, flips and shifts of images resized to the whole output; padded ones reach past their source."""
    resized = rows[:, RESIZED_HEIGHT : RESIZED_WIDTH + 1]
    resized = np.where(resized > 0, resized, size)
    crops = rows[:, : SHIFT_X + 1].astype(np.float64)
    crops[:, HEIGHT : WIDTH + 1] *= size / resized
    crops[:, SHIFT_X] += rows[:, FLIP] * (size[1] - resized[:, 1])
    return crops


@compiled
def most_taps(
    draws: Rows,  # (N, columns)
    height: int,  # of the output
    width: int,
    radius: int,  # `filter_radius` of the interpolation
) -> int:
    """Return an even upper bound of the taps of an output pixel along an axis."""
    scale = 1.0
    for i in range(len(draws)):
        rows, columns = draws[i, RESIZED_HEIGHT] or height, draws[i, RESIZED_WIDTH] or width
        scale = max(scale, draws[i, HEIGHT] / rows, draws[i, WIDTH] / columns)
    return 2 * math.ceil(radius * scale) + 2
