"""Rectangles of one colour: cutouts and the borders that a translation leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.cpu.compile import stage
from gpubeton.cpu.memory import copy, store_i16, store_u8
from gpubeton.cpu.output import FILLS, HEIGHT, ITEM_SIZE, WIDTH
from gpubeton.plan.draws import DRAW_COLUMNS, NUM_PAINTS, PAINT_COLUMNS

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array


@stage
def _store(address: int, size: int, bits: int) -> None:
    if size == 1:
        store_u8(address, bits)
        return
    store_i16(address, bits)
    if size == 4:
        store_i16(address + 2, bits >> 16)


@stage
def paint(draw: Array, output: Array, fills: Array, table: Array, target: int, first: int, stop: int) -> None:
    """Fill an output image's rectangles, in order.

    Parameters
    ----------
    draw : ndarray of int32
        The image's row, see `gpubeton.plan.draws`.
    output : ndarray of int64
        What the program wants, see `output`.
    fills : ndarray of uint8, shape (n, 3)
        Colours; the program's start at ``output[FILLS]``.
    table : ndarray of int64, shape (256, 3)
        Bit pattern of each level: what is painted is finished like any pixel.
    target : int
        Address of the output image, shape (height, width, 3).
    first, stop : int
        Which of the rectangles; no more than there are.
    """
    height, width, size = output[HEIGHT], output[WIDTH], output[ITEM_SIZE]
    for i in range(first, min(stop, draw[NUM_PAINTS])):
        column = DRAW_COLUMNS + i * PAINT_COLUMNS
        top, left = max(draw[column], 0), max(draw[column + 1], 0)
        bottom, right = min(draw[column + 2], height), min(draw[column + 3], width)
        colour = fills[output[FILLS] + draw[column + 4]]
        # The first row pixel by pixel; the others are copies of it.
        row = target + (top * width + left) * 3 * size
        for x in range((right - left) if top < bottom else 0):
            for c in range(3):
                _store(row + (3 * x + c) * size, size, table[colour[c], c])
        for y in range(1, (bottom - top) if left < right else 0):
            copy(row + y * width * 3 * size, row, (right - left) * 3 * size)
