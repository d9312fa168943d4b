"""From 8-bit pixels to what the network reads: normalise, cast, store.

Whatever the mean, the standard deviation and the type, an output value is one of 256 for each colour; the program's
`table` holds them. Where ``value * scale + offset`` in float32, rounded to half, gives exactly those 768 half floats,
vectors compute them (six times as fast); where it does not, they are looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.cpu.compile import compiled, stage
from gpubeton.cpu.lanes import F32, I8, I32, Emitter, Lanes, vector_kernel
from gpubeton.cpu.memory import copy, load_u8, store_i16, store_u8

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.cpu.types import Array

# How one row is finished.
BYTES = 0
AFFINE_HALF = 1
TABLE_16 = 2
TABLE_32 = 3
TABLE_8 = 4

_BIT_PATTERNS = {1: np.uint8, 2: np.uint16, 4: np.uint32}

# Values made at a time: 8 pixels of 3 colours.
_GROUP = 24


@vector_kernel
def _affine_half(emit: Emitter, pixels: Lanes, target: Lanes, factors: Lanes, groups: Lanes) -> None:
    """Store ``value * scale + offset`` as half floats; factors: float32 (2, 24), scales and offsets."""
    scales = [emit.load(factors + 32 * i, F32, 8) for i in range(3)]
    offsets = [emit.load(factors + (96 + 32 * i), F32, 8) for i in range(3)]
    with emit.loop(groups) as group:
        for i in range(3):
            values = emit.load(pixels + group * _GROUP + 8 * i, I8, 8).zero_extend(I32).to_float()
            halves = (values * scales[i] + offsets[i]).to_half()
            emit.store(halves, target + group * (2 * _GROUP) + 16 * i)


@stage
def _table_8(pixels: int, target: int, table: Array, count: int) -> None:
    for i in range(count):
        for colour in range(3):
            store_u8(target + 3 * i + colour, table[load_u8(pixels + 3 * i + colour), colour])


@stage
def _table_16(pixels: int, target: int, table: Array, count: int) -> None:
    for i in range(count):
        for colour in range(3):
            store_i16(target + 6 * i + 2 * colour, table[load_u8(pixels + 3 * i + colour), colour])


@stage
def _table_32(pixels: int, target: int, table: Array, count: int) -> None:
    for i in range(count):
        for colour in range(3):
            value = table[load_u8(pixels + 3 * i + colour), colour]
            store_i16(target + 12 * i + 4 * colour, value)
            store_i16(target + 12 * i + 4 * colour + 2, value >> 16)


@stage
def finish_row(pixels: int, target: int, count: int, method: int, factors: Array, table: Array) -> None:
    """Finish one row of pixels.

    Parameters
    ----------
    pixels : int
        Address of uint8, shape (count, 3).
    target : int
        Address of the output row, shape (count, 3).
    count : int
        Pixels.
    method : int
        One of the names at the top of this file.
    factors : ndarray of float32, shape (2, 24)
        Scale and offset of each of 24 values, for AFFINE_HALF.
    table : ndarray of int64, shape (256, 3)
        Bit patterns of the output values, for the TABLE methods (and for what AFFINE_HALF leaves over).
    """
    if method == BYTES:
        copy(target, pixels, 3 * count)
    elif method == AFFINE_HALF:
        groups = count >> 3
        _affine_half(pixels, target, factors.ctypes.data, groups)
        done = groups << 3
        _table_16(pixels + 3 * done, target + 6 * done, table, count - done)
    elif method == TABLE_16:
        _table_16(pixels, target, table, count)
    elif method == TABLE_8:
        _table_8(pixels, target, table, count)
    else:
        _table_32(pixels, target, table, count)


@compiled
def finish_rows(pixels: Array, target: Array, method: int, factors: Array, table: Array) -> None:
    """Finish an array of pixels, shape (N, 3), into `target`, the bytes of N * 3 values of 1, 2 or 4 bytes each."""
    finish_row(pixels.ctypes.data, target.ctypes.data, pixels.shape[0], method, factors, table)


class Finish:
    """How a program's pixels are finished: the method and its constants.

    Parameters
    ----------
    table : ndarray, shape (256, 3), or None
        Output value of each level and colour: uint8, float16, float32, or uint16 bit patterns of bfloat16. None: the
        level itself.
    mean, std : sequence of three floats, optional
        What the table was made from.

    Attributes
    ----------
    method : int
        One of the names at the top of this file.
    factors : ndarray of float32, shape (2, 24)
        See `finish_row`.
    table : ndarray of int64, shape (256, 3)
        See `finish_row`; also what paints are looked up in.
    item_size : int
        Bytes of an output value.

    Examples
    --------
    >>> Finish(None).method == BYTES
    True
    """

    def __init__(
        self,
        table: Array | None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        self.factors = np.zeros((2, 24), np.float32)
        self.table = np.zeros((256, 3), np.int64)
        if table is None:
            self.method, self.item_size = BYTES, 1
            self.table[:] = np.arange(256)[:, None]
            return
        self.item_size = table.dtype.itemsize
        self.table[:] = np.ascontiguousarray(table).view(_BIT_PATTERNS[self.item_size])
        self.method = {1: TABLE_8, 2: TABLE_16, 4: TABLE_32}[self.item_size]
        if table.dtype == np.float16 and mean is not None and std is not None:
            self.factors[0] = np.tile(1 / np.asarray(std, np.float64), 8)
            self.factors[1] = np.tile(-np.asarray(mean, np.float64) / np.asarray(std, np.float64), 8)
            if self._affine_is_exact():
                self.method = AFFINE_HALF

    def _affine_is_exact(self) -> bool:
        """Try all 768 values with the very code that will run."""
        pixels = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
        made = np.empty((256, 3), np.uint16)
        finish_rows(pixels, made.view(np.uint8).reshape(-1), AFFINE_HALF, self.factors, self.table)
        return bool((made == self.table).all())
