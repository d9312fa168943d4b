"""Steps that replace each level by its entry in a table of its channel: SOLARIZE to EQUALIZE. For uint8 images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton._batch.interleave import best_span, deinterleave, interleave
from gpubeton._batch.step_code import CHANNELS, HEIGHT, LAYOUT_FIELDS, WIDTH
from gpubeton._batch.step_rows import (
    AUTOCONTRAST,
    EQUALIZE,
    INVERT,
    KEEP,
    KIND,
    PARAMETERS,
    POSTERIZE,
    SOLARIZE,
    SOLARIZE_ADD,
    STEP_COLUMNS,
)
from gpubeton._compile.compile import AddressedFunction, device_function
from gpubeton._compile.intrinsics import clear, i32_at, i64_at, load_i64, signed, u8_at
from gpubeton._compile.simd import HAS_AVX2, I8, Vector, VectorBuilder, vector_kernel

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array

_LEVELS = 256
_GROUP = 64  # pixels that are looked up at a time
_OPACITY = 3

# Level i of an image is of channel ``i % C``, whatever part of it starts at a multiple of these.
_BLOCK = 192
_COUNTERS = 12  # several of each channel: a counter that was just written takes a while until it can be read


@vector_kernel
def _look_up_groups(
    emit: VectorBuilder, source: Vector, target: Vector, tables: Vector, groups: Vector, last: Vector
) -> None:
    entries, span = [emit.table(tables + _LEVELS * channel) for channel in range(3)], best_span(_GROUP)
    with emit.loop(groups) as group:
        first = (group * _GROUP).smaller(last) * 3  # the last group overlaps the one before it
        channels = deinterleave(emit, source + first, _GROUP, span)
        changed = [channel.look_up(table) for channel, table in zip(channels, entries, strict=True)]
        interleave(emit, changed, target + first, span)


@device_function
def _look_up(source: int, target: int, tables: int, pixels: int, channels: int) -> None:
    """Replace levels by the entries of their channel's table."""
    if HAS_AVX2 and channels == 3 and pixels >= _GROUP:
        _look_up_groups(source, target, tables, -(-pixels // _GROUP), pixels - _GROUP)
        return
    levels, changed = u8_at(source, pixels * channels), u8_at(target, pixels * channels)
    for channel in range(channels):
        table = u8_at(tables + _LEVELS * channel, _LEVELS)
        for place in range(channel, len(levels), channels):
            changed[place] = table[levels[place]]


@device_function
def _count_levels(levels: Array, channels: int, counters: Array) -> None:  # (_COUNTERS * _LEVELS,) int32
    """Write the counts of the levels of each channel to its first counters."""
    clear(counters.ctypes.data, 4 * len(counters))
    whole = len(levels) // (2 * _COUNTERS) * (2 * _COUNTERS)
    # A store for each level is what takes the time; so levels are loaded eight at a time.
    for start in range(0, whole, 2 * _COUNTERS):
        for part in range(0, 2 * _COUNTERS, 8):
            word = load_i64(levels.ctypes.data + start + part)
            for byte in range(8):
                counters[_LEVELS * ((part + byte) % _COUNTERS) + ((word >> 8 * byte) & 255)] += 1
    for place in range(whole, len(levels)):
        counters[_LEVELS * ((place - whole) % _COUNTERS) + levels[place]] += 1
    size = channels * _LEVELS
    for start in range(size, len(counters), size):
        for place in range(size):
            counters[place] += counters[start + place]


@vector_kernel
def _write_ranges(emit: VectorBuilder, levels: Vector, ranges: Vector, groups: Vector, last: Vector) -> None:
    # The largest level is the one with the smallest complement.
    smallest = [emit.variable(emit.fill(I8, 64, -1)) for _ in range(2 * _BLOCK // 64)]
    with emit.loop(groups) as group:
        first = levels + (group * _BLOCK).smaller(last)  # the last group overlaps the one before it
        values = [emit.load(first + part, I8, 64) for part in range(0, _BLOCK, 64)]
        for variable, value in zip(smallest, [*values, *(value ^ -1 for value in values)], strict=True):
            variable.set(variable.get().smaller_unsigned(value))
    for number, variable in enumerate(smallest):
        value = variable.get()
        emit.store(value if number < _BLOCK // 64 else value ^ -1, ranges + 64 * number)


@device_function
def _count_range(levels: Array, channels: int, counters: Array, ranges: Array) -> None:  # ranges: (2 * _BLOCK,) uint8
    """Count some levels of each channel, the least and the largest with them."""
    clear(counters.ctypes.data, 4 * len(counters))
    size, values = len(levels), levels
    if size >= _BLOCK:
        _write_ranges(levels.ctypes.data, ranges.ctypes.data, -(-size // _BLOCK), size - _BLOCK)
        values = ranges
    for place in range(len(values)):
        counters[place % channels * _LEVELS + values[place]] = 1


@device_function
def _write_table(
    kind: int,
    parameter: int,
    counts: Array,  # (_LEVELS,) int32: how often each level occurs; of AUTOCONTRAST, of some levels
    table: Array,  # (_LEVELS,) uint8, written
) -> None:
    least, most, total, before = 255, 0, 0, 0
    if kind in (AUTOCONTRAST, EQUALIZE):
        for level in range(_LEVELS):
            total += counts[level]
            if counts[level] > 0:
                least, most = min(least, level), level
    # How many pixels to a level: all but those of the largest, spread over 255.
    step = (total - counts[most]) // 255
    for level in range(_LEVELS):
        value = level
        if kind == INVERT or (kind == SOLARIZE and level >= parameter):
            value = 255 - level
        elif kind == SOLARIZE_ADD and level < 128:
            value = level + parameter
        elif kind == POSTERIZE:
            value = level & (256 - (1 << (8 - parameter)))
        elif kind == AUTOCONTRAST and most > least:
            value = (max(level, least) - least) * 255 // (most - least)
        elif kind == EQUALIZE and step > 0:
            value = (before + step // 2) // step
            before += counts[level]
        table[level] = min(value, 255)


def change_levels(image: int, other: int, memory: int, layout: int, row: int) -> int:
    """Make the tables of an image and look its levels up; opacity stays."""
    sizes, columns = i64_at(layout, LAYOUT_FIELDS), i32_at(row, STEP_COLUMNS)
    kind, parameter = signed(columns[KIND]), signed(columns[PARAMETERS])
    channels, pixels = sizes[CHANNELS], sizes[HEIGHT] * sizes[WIDTH]
    levels, counters = u8_at(image, pixels * channels), i32_at(memory, _COUNTERS * _LEVELS)
    rest = memory + 4 * len(counters)
    if kind == EQUALIZE:
        _count_levels(levels, channels, counters)
    elif kind == AUTOCONTRAST:
        _count_range(levels, channels, counters, u8_at(rest, 2 * _BLOCK))
    for channel in range(channels):
        counts, table = counters[_LEVELS * channel :], u8_at(rest + _LEVELS * channel, _LEVELS)
        _write_table(KEEP if channel == _OPACITY else kind, parameter, counts, table)
    _look_up(image, other, rest, pixels, channels)
    return 1


_KINDS = SOLARIZE, SOLARIZE_ADD, POSTERIZE, INVERT, AUTOCONTRAST, EQUALIZE
LEVEL_CODES = dict.fromkeys(_KINDS, AddressedFunction(change_levels))
