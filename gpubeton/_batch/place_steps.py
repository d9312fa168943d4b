"""Steps that move whole pixels, or paint: rectangles, mirrors and quarter turns, shifts. For images of every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.interleave import deinterleave, interleave
from gpubeton._batch.step_code import CHANNELS, HEIGHT, ITEM_SIZE, LAYOUT_FIELDS, WIDTH
from gpubeton._batch.step_rows import PAINT, PARAMETERS, SHIFT, STEP_COLUMNS, TURN, fill_columns, step_rows
from gpubeton._compile.compile import AddressedFunction, device_function
from gpubeton._compile.intrinsics import copy, i32_at, i64_at, load_i64, load_u8, store_i64, store_u8
from gpubeton._compile.simd import Vector, VectorBuilder, vector_kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill


# Bits of a TURN.
ACROSS = 1
DOWN = 2
DIAGONAL = 4

_GROUP = 16  # pixels that are mirrored at a time


@device_function
def fill_row(target: int, count: int, size: int, channels: int, fill: int) -> None:
    """Fill pixels with a color: the address of its levels, 16 bits each."""
    for x in range(count):
        for channel in range(channels):
            for part in range(size):
                store_u8(target + (x * channels + channel) * size + part, load_u8(fill + 2 * channel + part))


@device_function
def _fill_rectangle(image: int, layout: int, box: tuple[int, int, int, int], fill: int) -> None:
    sizes, (top, left, bottom, right) = i64_at(layout, LAYOUT_FIELDS), box
    pixel = sizes[CHANNELS] * sizes[ITEM_SIZE]
    stride, first, nbytes = sizes[WIDTH] * pixel, image + (top * sizes[WIDTH] + left) * pixel, (right - left) * pixel
    if top >= bottom or left >= right:
        return
    fill_row(first, right - left, sizes[ITEM_SIZE], sizes[CHANNELS], fill)
    for y in range(1, bottom - top):
        copy(first + y * stride, first, nbytes)


def paint(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Fill a rectangle."""
    columns = i32_at(row, STEP_COLUMNS)[PARAMETERS:]
    box = columns[0], columns[1], columns[2], columns[3]
    _fill_rectangle(image, layout, box, row + 4 * (PARAMETERS + 4))
    return 0


@vector_kernel
def _mirror_groups(emit: VectorBuilder, source: Vector, target: Vector, groups: Vector, last: Vector) -> None:
    with emit.loop(groups) as group:
        first = (group * _GROUP).smaller(last)  # the last group overlaps the one before it
        channels = deinterleave(emit, source + (last - first) * 3, _GROUP, _GROUP)
        mirrored = [channel.shuffle(channel, range(_GROUP - 1, -1, -1)) for channel in channels]
        interleave(emit, mirrored, target + first * 3, _GROUP)


def turn(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Mirror an image, and exchange its rows and columns."""
    sizes, bits = i64_at(layout, LAYOUT_FIELDS), i32_at(row, STEP_COLUMNS)[PARAMETERS]
    height, width, pixel = sizes[HEIGHT], sizes[WIDTH], sizes[CHANNELS] * sizes[ITEM_SIZE]
    for y in range(height):
        line = other + y * width * pixel
        if bits & DIAGONAL == 0:
            source = image + (height - 1 - y if bits & DOWN else y) * width * pixel
            if bits & ACROSS == 0:
                copy(line, source, width * pixel)
                continue
            if pixel == 3 and width >= _GROUP:  # RGB: far faster than the loop over pixels
                _mirror_groups(source, line, -(-width // _GROUP), width - _GROUP)
                continue
            first, step = source + (width - 1) * pixel, -pixel
        else:
            # Pixel (x, y) comes from column y of the image that is mirrored already.
            column = width - 1 - y if bits & ACROSS else y
            first, step = image + column * pixel, width * pixel
            if bits & DOWN:
                first, step = first + (height - 1) * width * pixel, -step
        # Eight bytes at a time, of which the next pixel overwrites those after this one.
        for x in range(width):
            store_i64(line + x * pixel, load_i64(first + x * step))
    return 1


def shift(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Shift an image, and fill what is uncovered."""
    sizes, columns = i64_at(layout, LAYOUT_FIELDS), i32_at(row, STEP_COLUMNS)[PARAMETERS:]
    height, width, pixel = sizes[HEIGHT], sizes[WIDTH], sizes[CHANNELS] * sizes[ITEM_SIZE]
    down, right, fill = columns[0], columns[1], row + 4 * (PARAMETERS + 2)
    top, left = min(max(down, 0), height), min(max(right, 0), width)
    bottom, end = max(min(height + down, height), top), max(min(width + right, width), left)
    for y in range(top, bottom):
        source = image + ((y - down) * width + left - right) * pixel
        copy(other + (y * width + left) * pixel, source, (end - left) * pixel)
    _fill_rectangle(other, layout, (0, 0, top, width), fill)
    _fill_rectangle(other, layout, (bottom, 0, height, width), fill)
    _fill_rectangle(other, layout, (top, 0, bottom, left), fill)
    _fill_rectangle(other, layout, (top, end, bottom, width), fill)
    return 1


PLACE_CODES = {PAINT: AddressedFunction(paint), TURN: AddressedFunction(turn), SHIFT: AddressedFunction(shift)}


class RowGeometry:
    """Step rows of `count` images of one size; a `Geometry`. Each call adds a row."""

    def __init__(self, count: int, size: tuple[int, int]) -> None:
        self.size = size
        self.rows = np.zeros((count, 0, STEP_COLUMNS), np.int32)

    def crop(self, boxes: NDArray[Any], size: tuple[int, int]) -> None:
        """Refuse: steps keep the size."""
        raise TypeError("a crop is no step: the decoder takes it")

    def place(self, placement: object) -> None:
        """Refuse: operations with other moves write their rows."""
        raise TypeError("it has no step")

    def turn(self, bits: NDArray[Any]) -> None:
        self._add(TURN, bits[:, None], bits != 0)

    def translate(self, shift: NDArray[Any], fill: Fill) -> None:
        self._add(SHIFT, self._filled(-shift, fill), (shift != 0).any(axis=1))

    def paint(self, boxes: NDArray[Any], fill: Fill) -> None:
        is_empty = (boxes[:, 0] >= boxes[:, 2]) | (boxes[:, 1] >= boxes[:, 3])
        self._add(PAINT, self._filled(boxes, fill), ~is_empty)

    def _filled(self, columns: NDArray[Any], fill: Fill) -> NDArray[Any]:
        return np.hstack([columns, np.tile(fill_columns(fill), (len(columns), 1))])

    def _add(self, kind: int, parameters: NDArray[Any], is_done: NDArray[np.bool_]) -> None:
        self.rows = np.concatenate([self.rows, step_rows(kind, parameters, is_done)], axis=1)
