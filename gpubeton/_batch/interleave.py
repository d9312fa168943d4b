"""Deinterleave RGB pixels into channels and interleave them back, in SIMD registers.

A byte shuffle within 16 bytes costs one instruction on any machine. A shuffle over two whole vectors is one instruction
on some machines and a dozen on others. The *span* is how far a byte may move; it does not change the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton._batch import color_formulas
from gpubeton._compile.compile import device_function
from gpubeton._compile.simd import HAS_BYTE_PERMUTE, I8, I32, Vector, VectorBuilder, vector_kernel

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array

_NARROW = 16

# Pixels per step of `load_planes` and `store_planes`: three vectors of 16 bytes.
_GROUP = 16


def best_span(count: int) -> int:
    """Return the cheapest span on this CPU for vectors of `count` (16, 32 or 64) bytes: 16 or `count`."""
    return count if HAS_BYTE_PERMUTE else _NARROW


def deinterleave(emit: VectorBuilder, pixels: Vector, count: int, span: int) -> list[Vector]:
    """Load RGB pixels, (count, 3) uint8; return red, green and blue, `count` bytes each: a multiple of the span."""
    parts = [
        Vector.joined([emit.load(pixels + start, I8, span) for start in range(span * third, 3 * count, 3 * span)])
        for third in range(3)
    ]
    channels = []
    for channel in range(3):
        early, late = [], []
        for pixel in range(count):
            third, place = divmod(3 * (pixel % span) + channel, span)
            place += pixel - pixel % span
            # The first shuffle takes what the first two parts have, and leaves the other lanes to the third part.
            early.append(place + count * (third == 1))
            late.append(place + count if third == 2 else pixel)
        channels.append(parts[0].shuffle(parts[1], early).shuffle(parts[2], late))
    return channels


def interleave(emit: VectorBuilder, channels: list[Vector], pixels: Vector, span: int) -> None:
    """Store red, green and blue as RGB pixels, (count, 3) uint8."""
    red, green, blue = channels
    count = red.count
    for third in range(3):
        two, three = [], []
        for lane in range(count):
            pixel, channel = divmod(span * third + lane % span, 3)
            pixel += lane - lane % span
            # Red and green first, each at its final place; then blue between them.
            two.append(pixel + count * (channel == 1))
            three.append(pixel + count if channel == 2 else lane)
        part = red.shuffle(green, two).shuffle(blue, three)
        for first in range(0, count, span):
            emit.store(part.part(first, first + span), pixels + (3 * first + span * third))


def load_words(emit: VectorBuilder, pixels: Vector) -> list[Vector]:
    """Load 16 RGB pixels, (16, 3) uint8; return red, green and blue, 16 32-bit values each."""
    # Where bytes move within 16, each part has four whole pixels; else both parts are one vector of all 48 bytes.
    starts, size = ((0, 16), 32) if HAS_BYTE_PERMUTE else ((0, 12, 24, 36), 16)
    values = Vector.joined([emit.load(pixels + start, I8, size) for start in starts])
    zeros = emit.fill(I8, 64, 0)
    places = {start + byte: size * part + byte for part, start in enumerate(starts) for byte in range(size)}
    orders = [
        [64 if lane else places[3 * pixel + channel] for pixel in range(_GROUP) for lane in range(4)]
        for channel in range(3)
    ]
    return [values.shuffle(zeros, order).bits(I32, _GROUP) for order in orders]


def store_words(emit: VectorBuilder, channels: list[Vector], shift: int, pixels: Vector) -> None:
    """Store the 8 bits above the lowest `shift` of red, green and blue, (16,) 32 bits, as RGB pixels, (16, 3) uint8."""
    red, green, blue = (
        channel.shift_right_logical(shift - 8 * at) & 255 << 8 * at for at, channel in enumerate(channels)
    )
    words = (red | green | blue).bits(I8, 64)
    order = [4 * (place // 3) + place % 3 for place in range(48)]
    values = words.shuffle(words, [*order, *order[:16]])
    emit.store(values.part(0, 32), pixels)
    emit.store(values.part(32, 48), pixels + 32)


# --- whole rows as planes of 32-bit values ----------------------------------------------------------------------------
# LLVM does not vectorize the plain loops over pixels: it moves single bytes, which takes longer than most color steps.

_load_few = device_function(color_formulas.load_line)
_store_few = device_function(color_formulas.store_line)


@vector_kernel
def _load(emit: VectorBuilder, row: Vector, planes: Vector, width: Vector, groups: Vector) -> None:
    with emit.loop(groups) as group:
        first = (group * _GROUP).smaller(width - _GROUP)  # the last group overlaps the one before it
        for number, channel in enumerate(deinterleave(emit, row + first * 3, _GROUP, _GROUP)):
            emit.store(channel.zero_extend(I32), planes + (width * number + first) * 4, align=4)


@vector_kernel
def _store(emit: VectorBuilder, planes: Vector, row: Vector, width: Vector, groups: Vector) -> None:
    with emit.loop(groups) as group:
        first = (group * _GROUP).smaller(width - _GROUP)  # the last group overlaps the one before it
        channels = [emit.load(planes + (width * c + first) * 4, I32, _GROUP, align=4).narrow(I8) for c in range(3)]
        interleave(emit, channels, row + first * 3, _GROUP)


@device_function
def load_planes(row: Array, planes: Array) -> None:  # (W, 3) or (W, 4) uint8, and (3, W) int32; C-contiguous
    """Copy a row of pixels into one plane per channel; opacity stays."""
    width = row.shape[0]
    if width < _GROUP or row.shape[1] != 3:
        _load_few(row, planes)
    else:
        _load(row.ctypes.data, planes.ctypes.data, width, -(-width // _GROUP))


@device_function
def store_planes(planes: Array, row: Array) -> None:  # the same
    """Copy the planes of three channels, values from 0 to 255, back into a row of pixels."""
    width = row.shape[0]
    if width < _GROUP or row.shape[1] != 3:
        _store_few(planes, row)
    else:
        _store(planes.ctypes.data, row.ctypes.data, width, -(-width // _GROUP))
