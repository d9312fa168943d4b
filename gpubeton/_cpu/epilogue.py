"""Epilogue: turn 8-bit pixels into output values (normalize, cast, store), fill rectangles, mix batches.

For any mean, std and dtype, a color has only 256 output values; the program's `table` holds their bit patterns. If
``value * scale + offset`` in float32, rounded to half, gives exactly the 768 half floats of the table, SIMD code
computes them (six times as fast); if not, they are looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton._batch.mix import mix_levels
from gpubeton._batch.run_steps import STEP_FUNCTIONS
from gpubeton._batch.step_code import addresses_of, layout_of
from gpubeton._batch.step_rows import COLORS, STEP_COLUMNS
from gpubeton._compile.compile import compiled, device_function
from gpubeton._compile.intrinsics import copy, load_u8, store_i16, store_u8
from gpubeton._compile.simd import F32, I8, I32, Vector, VectorBuilder, vector_kernel
from gpubeton._plan.draw_rows import DRAW_COLUMNS, NUM_PAINTS, PAINT_COLUMNS
from gpubeton.format.field_arguments import RGB
from gpubeton.pipeline.interpolation import INTERPOLATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpubeton._compile.intrinsics import Array
    from gpubeton._plan.program import ImageProgram

# Columns of `Outputs.settings`, int64.
OUT_HEIGHT = 0
OUT_WIDTH = 1
INTERPOLATION = 2  # see `taps`
METHOD = 3  # how a row is stored, see below
ITEM_SIZE = 4  # bytes of an output value: 1, 2 or 4
CHANNELS = 5  # of the output
FIRST_FILL = 6  # first row of the program's fills in `Outputs.fills`
FIRST_STEP = 7  # column of the first step row in a row of draws
NUM_STEPS = 8  # step rows
IS_GRAY = 9  # 1: only one channel of a JPEG is stored
SOURCE_SIZE = 10  # bytes of a stored value: 1 or 2; this and the next two: see `other_kinds`
TABLE_ROW = 11  # first row of the program's output values in `Outputs.other_tables`; -1: the output is the stored value
MAX_VALUE = 12  # of a stored value
OUT_FIELDS = 13

# METHOD.
BYTES = 0
AFFINE_HALF = 1
TABLE_16 = 2
TABLE_32 = 3
TABLE_8 = 4

MAX_CHANNELS = 4

_BIT_PATTERNS = {1: np.uint8, 2: np.uint16, 4: np.uint32}

# Values per SIMD step: 8 pixels of 3 colors.
_GROUP = 24


class Outputs(NamedTuple):
    """The outputs of a loader's P image programs, for compiled code."""

    settings: Array  # (P, OUT_FIELDS) int64
    staging: Array  # (P, OUT_FIELDS) int64: the settings of images before their steps, see `image_tasks.needs_staging`
    factors: Array  # (P, 2, 24) float32: see `store_row`
    tables: Array  # (P, 256, 3) int64: see `store_row`
    other_tables: Array  # (all programs' values, MAX_CHANNELS) uint32: bit patterns of output values, see `other_kinds`
    fills: Array  # (all programs' fills, MAX_CHANNELS) int64: bit patterns of output values
    layouts: Array  # (P, LAYOUT_FIELDS) int64: of the images that steps change, see `gpubeton._batch.step_code`
    step_addresses: Array  # (NUM_KINDS,) int64: machine code of the kinds of steps that the programs have


def _affine_half(is_cached: bool) -> Callable[..., int]:
    """Make the code that stores ``value * scale + offset`` as half floats; uncached ones go to multiples of 16."""
    align = 1 if is_cached else 16

    @vector_kernel
    def store(
        emit: VectorBuilder,
        pixels: Vector,
        target: Vector,
        factors: Vector,  # address of (2, 24) float32: scales and offsets
        groups: Vector,
    ) -> None:
        scales = [emit.load(factors + 32 * i, F32, 8) for i in range(3)]
        offsets = [emit.load(factors + (96 + 32 * i), F32, 8) for i in range(3)]
        with emit.loop(groups) as group:
            for i in range(3):
                values = emit.load(pixels + group * _GROUP + 8 * i, I8, 8).zero_extend(I32).to_float()
                halves = (values * scales[i] + offsets[i]).to_half()
                emit.store(halves, target + group * (2 * _GROUP) + 16 * i, align, is_cached=is_cached)

    return store


_affine_half_cached, _affine_half_past_caches = _affine_half(True), _affine_half(False)


@device_function
def _table_8(pixels: int, target: int, table: Array, count: int) -> None:
    for i in range(count):
        for color in range(3):
            store_u8(target + 3 * i + color, table[load_u8(pixels + 3 * i + color), color])


@device_function
def _table_16(pixels: int, target: int, table: Array, count: int) -> None:
    for i in range(count):
        for color in range(3):
            store_i16(target + 6 * i + 2 * color, table[load_u8(pixels + 3 * i + color), color])


@device_function
def _table_32(pixels: int, target: int, table: Array, count: int) -> None:
    for i in range(count):
        for color in range(3):
            value = table[load_u8(pixels + 3 * i + color), color]
            store_i16(target + 12 * i + 4 * color, value)
            store_i16(target + 12 * i + 4 * color + 2, value >> 16)


@device_function
def store_row(
    pixels: int,  # address of (count, 3) uint8
    target: int,  # address of the output row
    count: int,
    method: int,
    factors: Array,  # (2, 24) float32: scale and offset of each of 24 values, for AFFINE_HALF
    table: Array,  # (256, 3) int64: bit patterns, for the TABLE methods and the last pixels of AFFINE_HALF
) -> None:
    """Normalize, cast and store one row of pixels."""
    if method == BYTES:
        copy(target, pixels, 3 * count)
    elif method == AFFINE_HALF:
        groups = count >> 3
        # Stores past the caches halve the traffic to memory, and leave the caches to the next image. A batch is read
        # much later, and complete: the atomic count of its images is a fence.
        if target % 16 == 0:
            _affine_half_past_caches(pixels, target, factors.ctypes.data, groups)
        else:
            _affine_half_cached(pixels, target, factors.ctypes.data, groups)
        done = groups << 3
        _table_16(pixels + 3 * done, target + 6 * done, table, count - done)
    elif method == TABLE_16:
        _table_16(pixels, target, table, count)
    elif method == TABLE_8:
        _table_8(pixels, target, table, count)
    else:
        _table_32(pixels, target, table, count)


@compiled
def store_rows(
    pixels: Array,  # (N, 3) uint8
    target: Array,  # uint8: the bytes of N * 3 values
    method: int,
    factors: Array,
    table: Array,
) -> None:
    """Normalize, cast and store an array of pixels."""
    store_row(pixels.ctypes.data, target.ctypes.data, pixels.shape[0], method, factors, table)


@device_function
def store_bits(address: int, size: int, bits: int) -> None:
    """Store the low `size` (1, 2 or 4) bytes of `bits`."""
    if size == 1:
        store_u8(address, bits)
        return
    store_i16(address, bits)
    if size == 4:
        store_i16(address + 2, bits >> 16)


@device_function
def fill_rects(
    draw: Array,  # int32: the image's row, see `gpubeton._plan.draw_rows`
    output: Array,  # (OUT_FIELDS,) int64
    fills: Array,  # `Outputs.fills`
    target: int,  # address of the output image
) -> None:
    """Fill the rectangles of an output image, in order."""
    height, width, size = output[OUT_HEIGHT], output[OUT_WIDTH], output[ITEM_SIZE]
    channels = output[CHANNELS]
    for i in range(draw[NUM_PAINTS]):
        column = DRAW_COLUMNS + i * PAINT_COLUMNS
        top, left = max(draw[column], 0), max(draw[column + 1], 0)
        bottom, right = min(draw[column + 2], height), min(draw[column + 3], width)
        fill = fills[output[FIRST_FILL] + draw[column + 4]]
        # The first row value by value; the others are copies of it.
        row = target + (top * width + left) * channels * size
        for x in range((right - left) if top < bottom else 0):
            for c in range(channels):
                store_bits(row + (channels * x + c) * size, size, fill[c])
        for y in range(1, (bottom - top) if left < right else 0):
            copy(row + y * width * channels * size, row, (right - left) * channels * size)


class Epilogue(NamedTuple):
    """How a program stores its pixels, see `store_row`."""

    method: int
    factors: Array  # (2, 24) float32
    table: Array  # (256, 3) int64


def _epilogue_of(
    table: Array | None,  # (256, 3) uint8, float16, float32 or bits of bfloat16 as uint16; None: store the bytes
    mean_std: tuple[Sequence[float], Sequence[float]] | None = None,  # what the table was made from
) -> Epilogue:
    """Choose how pixels are stored."""
    factors = np.zeros((2, 24), np.float32)
    if table is None:
        return Epilogue(BYTES, factors, np.repeat(np.arange(256)[:, None], 3, axis=1))
    bits = _bits_of(table).astype(np.int64)
    if table.dtype == np.float16 and mean_std is not None:
        mean, std = (np.asarray(values, np.float64) for values in mean_std)
        factors[:] = np.tile(1 / std, 8), np.tile(-mean / std, 8)
        # Try all 768 values with the very code that will run.
        pixels = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
        stored = np.empty((256, 3), np.uint16)
        store_rows(pixels, stored.view(np.uint8).reshape(-1), AFFINE_HALF, factors, bits)
        if (stored == bits).all():
            return Epilogue(AFFINE_HALF, factors, bits)
    return Epilogue({1: TABLE_8, 2: TABLE_16, 4: TABLE_32}[table.dtype.itemsize], factors, bits)


def _bits_of(table: Array) -> Array:
    return np.ascontiguousarray(table).view(_BIT_PATTERNS[table.dtype.itemsize])


def mix_and_store(
    program: ImageProgram,
    pixels: Array,  # (N, height, width, 3) uint8, C-contiguous; changed
    mixes: Array,  # (N, MIX_COLUMNS) int32: see `gpubeton.transforms.mixup`
    take: Callable[..., Array],  # ``take(shape, dtype)`` allocates the output
) -> Array:  # (N, height, width, 3) of the program's dtype, bfloat16 as uint16; `pixels` itself if that is uint8
    """Apply mixup and cutmix to a complete batch of 8-bit images, then normalize, cast and store it."""
    mix_levels(pixels, mixes)
    if program.table is None:
        return pixels
    epilogue = _epilogue_of(program.table, program.mean_std)
    out: Array = take(pixels.shape, program.table.dtype)
    target = out.view(np.uint8).reshape(-1)
    store_rows(pixels.reshape(-1, 3), target, epilogue.method, epilogue.factors, epilogue.table)
    return out


def draw_columns(programs: Sequence[ImageProgram]) -> int:
    """Return the length of the longest row of draws; the step rows are its last columns."""
    return max(_first_step(program) + STEP_COLUMNS * program.num_rows for program in programs)


def _first_step(program: ImageProgram) -> int:
    return DRAW_COLUMNS + PAINT_COLUMNS * program.max_paints


def outputs_of(programs: Sequence[ImageProgram]) -> Outputs:
    """Translate a loader's programs for compiled code."""
    settings = np.zeros((len(programs), OUT_FIELDS), np.int64)
    staging = np.zeros_like(settings)
    # A mixed batch is stored by `mix_and_store`, other kinds by `other_kinds`.
    epilogues = [
        _epilogue_of(None if program.mixing or program.kind != RGB else program.table, program.mean_std)
        for program in programs
    ]
    fills, layouts, other_tables, num_fills = [], [], [np.zeros((0, MAX_CHANNELS), np.uint32)], 0
    for row, staging_row, program, epilogue in zip(settings, staging, programs, epilogues, strict=True):
        kind, values = program.kind, program.fills.astype(np.int64)
        row[OUT_HEIGHT], row[OUT_WIDTH] = program.height, program.width
        row[INTERPOLATION] = INTERPOLATIONS[program.interpolation]
        row[METHOD], row[ITEM_SIZE], row[CHANNELS] = epilogue.method, kind.dtype.itemsize, kind.channels
        row[SOURCE_SIZE], row[TABLE_ROW], row[MAX_VALUE] = kind.dtype.itemsize, -1, kind.max_level
        row[FIRST_STEP], row[NUM_STEPS], row[IS_GRAY] = _first_step(program), program.num_rows, is_gray(program)
        row[FIRST_FILL], stored = num_fills, values
        if program.table is not None and not (kind == RGB and program.mixing):
            bits = _bits_of(program.table)
            row[ITEM_SIZE], stored = program.table.itemsize, np.take_along_axis(bits, values, axis=0)
            if kind != RGB:
                row[TABLE_ROW] = sum(map(len, other_tables))
                other_tables.append(_widened(bits).astype(np.uint32))
        staging_row[:] = row
        staging_row[METHOD], staging_row[ITEM_SIZE], staging_row[TABLE_ROW] = BYTES, kind.dtype.itemsize, -1
        staging_row[FIRST_FILL] = num_fills + len(values)
        fills += [_widened(stored), _widened(values)]
        num_fills += 2 * len(values)
        layouts.append(layout_of(program.height, program.width, kind.channels, kind.dtype))
    # The kinds of steps that are called by their addresses: of RGB images, all but colors.
    kinds = [program.kinds - COLORS if program.kind == RGB else program.kinds for program in programs]
    return Outputs(
        settings,
        staging,
        np.stack([epilogue.factors for epilogue in epilogues]),
        np.stack([epilogue.table for epilogue in epilogues]),
        np.concatenate(other_tables),
        np.concatenate(fills),
        np.stack(layouts),
        addresses_of(STEP_FUNCTIONS, frozenset().union(*kinds)),
    )


def is_gray(program: ImageProgram) -> bool:
    """Return True if images may be gray JPEGs: decoded as three channels, stored as one."""
    return program.kind.has_jpeg and program.kind != RGB


def _widened(rows: Array) -> Array:
    """Pad rows to MAX_CHANNELS columns."""
    return np.pad(rows, ((0, 0), (0, MAX_CHANNELS - rows.shape[1]))).astype(np.int64)
