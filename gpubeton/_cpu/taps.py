"""Filter taps: the source samples of each output sample, and their weights.

Weights are 16-bit fractions that sum to one, each stored twice in a 32-bit word: broadcasting a word to all 16-bit
lanes of a vector then needs no shuffle. Those of bicubic may be negative, or more than one: they are signed, with 14
bits after the point, and the word of each has the next one in its upper half, for products in pairs.

The interpolations, all separable:

area       the mean over the source area that an output pixel covers, as in OpenCV's INTER_AREA (and so in FFCV): if
           either side is enlarged, both use its two-tap rule instead
bilinear   two taps around the center, however much the image shrinks (torch: ``interpolate(..., antialias=False)``)
antialias  a triangle as wide as the scale (torch and Pillow: ``antialias=True``)
bicubic    the same with Keys' cubic, a = -0.5, as in Pillow and torchvision
nearest    one tap, the source pixel that holds the output pixel's center (Pillow's NEAREST, torch's
           ``nearest-exact``); its weight does not change the value
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpubeton._batch.resize import SLIVER
from gpubeton._compile.compile import device_function, inlined
from gpubeton.pipeline.interpolation import AREA_ENLARGING, INTERPOLATIONS

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array

BILINEAR, AREA, ANTIALIAS, NEAREST, BICUBIC = (
    INTERPOLATIONS[name] for name in ("bilinear", "area", "antialias", "nearest", "bicubic")
)

SIGNED_BITS = 14
"""Bits after the point of a signed weight."""

_ONE = 65536
_SIGNED_ONE = 1 << SIGNED_BITS

# Most taps of an output sample: luma and chroma across, luma and chroma down.
TapCounts: TypeAlias = tuple[int, int, int, int]


def most_taps(scale: float) -> int:
    """Return an upper bound of the taps when at most `scale` pixels become one; chroma included."""
    # `scale` is times `filter_radius`: bicubic needs twice the taps.
    return 2 * math.ceil(max(1.0, scale)) + 4


@device_function
def effective(interpolation: int, source_height: int, source_width: int, height: int, width: int) -> int:
    """Return the rule of an interpolation for this crop and its size in the output."""
    if interpolation == AREA and (source_height < height or source_width < width):
        return AREA_ENLARGING
    return interpolation


@inlined
def _two_taps(position: int, fraction: float, size: int, row: Array) -> tuple[int, int]:
    row[0] = 1.0 - fraction
    row[1] = fraction
    return position, 2 if position + 1 < size and fraction > 0 else 1


@device_function
def _area_enlarging(index: int, size: int, output: int, row: Array) -> tuple[int, int]:
    # OpenCV rounds twice, which matters where an output pixel ends at the border of a source pixel. And in float32 a
    # fraction of almost one becomes one, which counts as none.
    inverse = output / size
    first = int(math.floor(index * (1.0 / inverse)))
    fraction: float = np.float64(np.float32((index + 1) - (first + 1) * inverse))
    fraction = 0.0 if fraction <= 0 else fraction - math.floor(fraction)
    if first >= size - 1:
        first = size - 1
        fraction = 0.0
    return _two_taps(first, fraction, size, row)


@device_function
def _area(index: int, scale: float, size: int, row: Array) -> tuple[int, int]:
    start = index * scale
    stop = start + scale
    cell = min(scale, size - start)
    part = 1.0 / cell
    last = min(int(math.floor(stop)), size - 1)
    whole = min(int(math.ceil(start)), last)
    count = 0
    first = whole
    if whole - start > SLIVER:
        first = whole - 1
        row[0] = (whole - start) * part
        count = 1
    for _ in range(whole, last):
        row[count] = part
        count += 1
    if stop - last > SLIVER:
        row[count] = min(min(stop - last, 1.0), cell) * part
        count += 1
    return first, count


@inlined
def _cubic(x: float) -> float:
    """Return Keys' cubic with a = -0.5 at the distance x >= 0."""
    if x < 1.0:
        return (1.5 * x - 2.5) * x * x + 1.0
    return (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5 if x < 2.0 else 0.0


@inlined
def _antialias(index: int, scale: float, size: int, is_cubic: bool, row: Array) -> tuple[int, int]:
    stretch = max(scale, 1.0)
    support = 2.0 * stretch if is_cubic else stretch
    center = (index + 0.5) * scale
    first = max(int(center - support + 0.5), 0)
    stop = min(int(center + support + 0.5), size)
    total = 0.0
    for k in range(first, stop):
        distance = abs((k - center + 0.5) / stretch)
        weight = _cubic(distance) if is_cubic else max(0.0, 1.0 - distance)
        row[k - first] = weight
        total += weight
    for k in range(stop - first):
        row[k] /= total
    return first, stop - first


@device_function
def ideal(
    rule: int,  # of `effective`
    index: int,
    size: int,  # source samples
    output: int,  # output samples
    row: Array,  # float64, written: the weights
) -> tuple[int, int]:
    """Compute the exact weights of output sample `index`; return its first source sample and number of taps."""
    scale = size / output
    if rule == BILINEAR:
        center = min(max((index + 0.5) * scale - 0.5, 0.0), size - 1.0)
        first = int(center)
        return _two_taps(first, center - first, size, row)
    if rule == AREA:
        return _area(index, scale, size, row)
    # Constants make two functions of one.
    if rule == ANTIALIAS:
        return _antialias(index, scale, size, False, row)
    if rule == BICUBIC:
        return _antialias(index, scale, size, True, row)
    if rule == NEAREST:
        # In whole numbers: a center on the border of two pixels belongs to the second, for any sizes.
        row[0] = 1.0
        return (2 * index + 1) * size // (2 * output), 1
    return _area_enlarging(index, size, output, row)


@inlined
def _settle(words: Array, count: int, width: int, total: int, unit: int) -> None:
    """Make `count` weights sum to exactly one (the largest takes the rounding error); store each twice, or as pairs."""
    largest = 0
    for k in range(1, count):
        if words[k] > words[largest]:
            largest = k
    # One does not fit into 16 bits: 65535/65536 is off by 1/256 of a gray level.
    words[largest] = min(65535, words[largest] + (unit - total))
    if unit == _ONE:
        for k in range(count):
            words[k] *= 65537
    else:
        for k in range(count):
            following = words[k + 1] if k + 1 < count else 0
            words[k] = (words[k] & 0xFFFF) | (following << 16)
    for k in range(count, width):
        words[k] = 0


@inlined
def _quantize(row: Array, count: int, words: Array, unit: int) -> int:
    """Round weights to fractions, carrying each rounding error to the next; return their sum."""
    total = 0
    rest = 0.5
    for k in range(count):
        exact = row[k] * unit + rest
        weight = int(exact)
        if unit != _ONE and exact < weight:  # rounded up, as negative numbers are
            weight -= 1
        rest = exact - weight
        words[k] = weight
        total += weight
    return total


@inlined
def _through_upsampling(
    luma: Array, first: int, count: int, limit: int, fancy: bool, chroma: Array
) -> tuple[int, int, int]:
    """Turn weights of luma samples into weights of chroma samples of half their number."""
    # Returns the first chroma sample, the number of taps and the sum of the weights.
    # libjpeg first upsamples chroma by two: 3/4 of the nearest sample and 1/4 of the next nearest (its triangle
    # filter). Upsampling and resampling are both linear, so they become one set of weights.
    origin = max((first >> 1) - 1, 0)
    last = min(((first + count - 1) >> 1) + 1, limit - 1)
    taps = last - origin + 1
    for k in range(taps):
        chroma[k] = 0
    for k in range(count):
        nearest = (first + k) >> 1
        # The next nearest is on the side of the luma sample; at the image's edge it is the nearest itself.
        other = min(max(nearest + 2 * ((first + k) & 1) - 1, 0), limit - 1) if fancy else nearest
        chroma[nearest - origin] += 3 * luma[k]
        chroma[other - origin] += luma[k]
    total = 0
    rest = 2
    for k in range(taps):
        exact = chroma[k] + rest
        chroma[k] = exact >> 2
        rest = exact & 3
        total += exact >> 2
    return origin, taps, total


@inlined
def _settle_pair(
    row: Array, luma: tuple[int, int], limit: int, fancy: bool, luma_words: Array, chroma_words: Array, unit: int
) -> tuple[int, int]:
    """Make the weights of luma samples (first, count) and of chroma; return the first chroma sample and the number."""
    width = luma_words.shape[0]
    total = _quantize(row, luma[1], luma_words, unit)
    origin, count, chroma_total = _through_upsampling(luma_words, luma[0], luma[1], limit, fancy, chroma_words)
    _settle(luma_words, luma[1], width, total, unit)
    _settle(chroma_words, count, width, chroma_total, unit)
    return origin, count


@inlined
def resized_index(i: int, output: int, resized: int, shift: int, flip: bool) -> int:
    """Return the resized sample that output sample i shows; see `fill_axis`."""
    index: int = min(max(min(i, output - 1) + shift, 0), resized - 1)
    return resized - 1 - index if flip else index


@device_function
def fill_axis(
    rule: int,  # of `effective`
    start: int,  # of the crop, in source samples
    size: int,  # of the crop
    output: int,  # output samples
    resized: int,  # samples that the crop is resized to; fewer than `output` if the image is padded
    shift: int,  # output sample i shows resized sample i + shift, or the nearest one in range
    flip: bool,  # mirror the resized samples first
    first: Array,  # (padded output,) int32, written: first source sample of each output sample, padded
    words: Array,  # (padded output, most taps) int32, written: weights, zero after the last tap
    row: Array,  # (most taps,) float64, scratch
) -> int:
    """Compute the taps of one side of an image; return the largest number of taps."""
    taps = 0
    for i in range(first.shape[0]):
        begin, count = ideal(rule, resized_index(i, output, resized, shift, flip), size, resized, row)
        first[i] = start + begin
        if rule == BICUBIC:
            _settle(words[i], count, words.shape[1], _quantize(row, count, words[i], _SIGNED_ONE), _SIGNED_ONE)
        else:
            _settle(words[i], count, words.shape[1], _quantize(row, count, words[i], _ONE), _ONE)
        taps = max(taps, count)
    return taps


@device_function
def fill_axis_pair(
    rule: int,  # the first seven: as for `fill_axis`
    start: int,
    size: int,
    output: int,
    resized: int,
    shift: int,
    flip: bool,
    limit: int,  # chroma samples of the whole image
    fancy: bool,  # interpolate chroma as libjpeg does; it repeats the samples of very narrow images
    first: Array,  # (2, padded output) int32, written: first luma and first chroma sample
    words: Array,  # (2, padded output, most taps) int32, written: their weights
    row: Array,  # (most taps,) float64, scratch
) -> tuple[int, int]:
    """Compute the taps of one side on luma, and on chroma of half the size; return the largest numbers of taps."""
    luma_taps = 0
    chroma_taps = 0
    for i in range(first.shape[1]):
        begin, count = ideal(rule, resized_index(i, output, resized, shift, flip), size, resized, row)
        first[0, i] = start + begin
        luma = start + begin, count
        if rule == BICUBIC:
            origin, chroma_count = _settle_pair(row, luma, limit, fancy, words[0, i], words[1, i], _SIGNED_ONE)
        else:
            origin, chroma_count = _settle_pair(row, luma, limit, fancy, words[0, i], words[1, i], _ONE)
        first[1, i] = origin
        luma_taps = max(luma_taps, count)
        chroma_taps = max(chroma_taps, chroma_count)
    return luma_taps, chroma_taps
