"""Interpolation weights: which source samples make an output sample, and how much of each.

A *tap* is one source sample's part in an output sample. Weights are 16-bit fractions that sum to one, each stored twice
in a 32-bit word: broadcasting a word to all 16-bit lanes of a vector then needs no shuffle.

The interpolations, all separable:

area       the mean over the source area that an output pixel covers, as OpenCV's INTER_AREA (and so FFCV) has it: where
           either side is enlarged, both use its two-tap rule instead
bilinear   two taps around the centre, however much the image shrinks (torch: ``interpolate(..., antialias=False)``)
antialias  a triangle as wide as the shrinking needs (torch and Pillow: ``antialias=True``)
nearest    one tap, the source pixel in which the output pixel's centre lies (Pillow's NEAREST, torch's
           ``nearest-exact``); its weight gives each level back as it is
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.cpu.compile import inlined, stage
from gpubeton.pipeline.interpolation import AREA_ENLARGING, INTERPOLATIONS

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array

BILINEAR, AREA, ANTIALIAS, NEAREST = (INTERPOLATIONS[name] for name in ("bilinear", "area", "antialias", "nearest"))

# OpenCV ignores slivers of a source pixel below this (resize.cpp, computeResizeAreaTab).
_SLIVER = 1e-3

_ONE = 65536


def most_taps(source: int, output: int) -> int:
    """Return how many taps an output sample can have when `source` pixels, or fewer, become `output`.

    Parameters
    ----------
    source : int
        Longest crop side in pixels.
    output : int
        Output side in pixels.

    Returns
    -------
    int
        An upper bound over all interpolations, chroma included.

    Examples
    --------
    >>> most_taps(448, 224)
    8
    """
    return 2 * math.ceil(max(1.0, source / output)) + 4


@stage
def effective(interpolation: int, source_height: int, source_width: int, height: int, width: int) -> int:
    """Return the rule that `interpolation` means for this crop and output."""
    if interpolation == AREA and (source_height < height or source_width < width):
        return AREA_ENLARGING
    return interpolation


@inlined
def _two_taps(position: int, fraction: float, size: int, row: Array) -> tuple[int, int]:
    row[0] = 1.0 - fraction
    row[1] = fraction
    return position, 2 if position + 1 < size and fraction > 0 else 1


@stage
def _bilinear(index: int, scale: float, size: int, row: Array) -> tuple[int, int]:
    centre = min(max((index + 0.5) * scale - 0.5, 0.0), size - 1.0)
    first = int(centre)
    return _two_taps(first, centre - first, size, row)


@stage
def _area_enlarging(index: int, size: int, output: int, row: Array) -> tuple[int, int]:
    # OpenCV rounds twice, which decides where an output pixel ends at a source pixel's border; and in float32 a share
    # of almost one is one, which counts as none.
    inverse = output / size
    first = int(math.floor(index * (1.0 / inverse)))
    fraction: float = np.float64(np.float32((index + 1) - (first + 1) * inverse))
    fraction = 0.0 if fraction <= 0 else fraction - math.floor(fraction)
    if first >= size - 1:
        first = size - 1
        fraction = 0.0
    return _two_taps(first, fraction, size, row)


@stage
def _area(index: int, scale: float, size: int, row: Array) -> tuple[int, int]:
    start = index * scale
    stop = start + scale
    cell = min(scale, size - start)
    part = 1.0 / cell
    last = min(int(math.floor(stop)), size - 1)
    whole = min(int(math.ceil(start)), last)
    count = 0
    first = whole
    if whole - start > _SLIVER:
        first = whole - 1
        row[0] = (whole - start) * part
        count = 1
    for _ in range(whole, last):
        row[count] = part
        count += 1
    if stop - last > _SLIVER:
        row[count] = min(min(stop - last, 1.0), cell) * part
        count += 1
    return first, count


@stage
def _antialias(index: int, scale: float, size: int, row: Array) -> tuple[int, int]:
    support = max(scale, 1.0)
    centre = (index + 0.5) * scale
    first = max(int(centre - support + 0.5), 0)
    stop = min(int(centre + support + 0.5), size)
    total = 0.0
    for k in range(first, stop):
        weight = max(0.0, 1.0 - abs((k - centre + 0.5) / support))
        row[k - first] = weight
        total += weight
    for k in range(stop - first):
        row[k] /= total
    return first, stop - first


@stage
def _nearest(index: int, size: int, output: int, row: Array) -> tuple[int, int]:
    # In whole numbers: a centre on the border of two pixels belongs to the second, whatever the sizes.
    row[0] = 1.0
    return (2 * index + 1) * size // (2 * output), 1


@stage
def ideal(rule: int, index: int, size: int, output: int, row: Array) -> tuple[int, int]:
    """Compute the weights of one output sample.

    Parameters
    ----------
    rule : int
        What `effective` returned.
    index : int
        The output sample.
    size, output : int
        Source samples and output samples.
    row : ndarray of float64
        Written: the weights.

    Returns
    -------
    tuple of int
        First source sample and number of taps.
    """
    scale = size / output
    if rule == BILINEAR:
        return _bilinear(index, scale, size, row)
    if rule == AREA:
        return _area(index, scale, size, row)
    if rule == ANTIALIAS:
        return _antialias(index, scale, size, row)
    if rule == NEAREST:
        return _nearest(index, size, output, row)
    return _area_enlarging(index, size, output, row)


@inlined
def _settle(words: Array, count: int, width: int, total: int) -> None:
    """Make `count` weights sum to one exactly (the largest takes what rounding left over) and store each twice."""
    largest = 0
    for k in range(1, count):
        if words[k] > words[largest]:
            largest = k
    # One itself does not fit into 16 bits: 65535/65536 is a 256th of a grey level away.
    words[largest] = min(65535, words[largest] + (_ONE - total))
    for k in range(count):
        words[k] *= 65537
    for k in range(count, width):
        words[k] = 0


@inlined
def _quantise(row: Array, count: int, words: Array) -> int:
    """Turn weights into 16-bit fractions, each rounding what the ones before left over; return their sum."""
    total = 0
    rest = 0.5
    for k in range(count):
        exact = row[k] * _ONE + rest
        weight = int(exact)
        rest = exact - weight
        words[k] = weight
        total += weight
    return total


@inlined
def _through_upsampling(
    luma: Array, first: int, count: int, limit: int, fancy: bool, chroma: Array
) -> tuple[int, int, int]:
    """Turn 16-bit weights of luma samples into those of chroma samples, which libjpeg would first upsample by two.

    An upsampled sample is 3/4 of its nearest chroma sample and 1/4 of the next nearest (libjpeg's triangle filter), so
    that the two steps are one set of weights. Returns the first chroma sample, their number and the weights' sum.
    """
    origin = max((first >> 1) - 1, 0)
    last = min(((first + count - 1) >> 1) + 1, limit - 1)
    taps = last - origin + 1
    for k in range(taps):
        chroma[k] = 0
    for k in range(count):
        nearest = (first + k) >> 1
        # The neighbour on the side on which the luma sample lies; at the image's edge there is none.
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
def resized_index(i: int, output: int, shift: int, flip: bool) -> int:
    """Return which resized sample output sample i shows; see `fill_axis`."""
    index: int = min(max(min(i, output - 1) + shift, 0), output - 1)
    return output - 1 - index if flip else index


@stage
def fill_axis(
    rule: int, start: int, size: int, output: int, shift: int, flip: bool, first: Array, words: Array, row: Array
) -> int:
    """Compute the taps of one side of an image.

    Parameters
    ----------
    rule : int
        What `effective` returned.
    start, size : int
        The crop in source samples.
    output : int
        Output samples.
    shift : int
        Output sample i shows resized sample i + shift, or the nearest there is.
    flip : bool
        Whether the resized samples are mirrored first.
    first : ndarray of int32, shape (padded output,)
        Written: first source sample of each output sample. What pads repeats the last one.
    words : ndarray of uint32, shape (padded output, most taps)
        Written: weights, zero behind the last tap.
    row : ndarray of float64
        Scratch for one output sample's weights.

    Returns
    -------
    int
        The largest number of taps.
    """
    taps = 0
    for i in range(first.shape[0]):
        begin, count = ideal(rule, resized_index(i, output, shift, flip), size, output, row)
        first[i] = start + begin
        _settle(words[i], count, words.shape[1], _quantise(row, count, words[i]))
        taps = max(taps, count)
    return taps


@stage
def fill_axis_pair(
    rule: int,
    start: int,
    size: int,
    output: int,
    shift: int,
    flip: bool,
    limit: int,
    fancy: bool,
    first: Array,
    words: Array,
    row: Array,
) -> tuple[int, int]:
    """Compute the taps of one side on luma samples and on chroma samples of half their number.

    Parameters
    ----------
    rule, start, size, output, shift, flip
        As for `fill_axis`.
    limit : int
        Chroma samples of the whole image.
    fancy : bool
        Whether libjpeg would interpolate the chroma samples (it repeats those of very narrow images).
    first : ndarray of int32, shape (2, padded output)
        Written: first luma and first chroma sample.
    words : ndarray of uint32, shape (2, padded output, most taps)
        Written: their weights.
    row : ndarray of float64, shape (most taps,)
        Scratch for one output sample's weights.

    Returns
    -------
    tuple of int
        The largest numbers of luma and of chroma taps.
    """
    width = words.shape[2]
    luma_taps = 0
    chroma_taps = 0
    for i in range(first.shape[1]):
        begin, count = ideal(rule, resized_index(i, output, shift, flip), size, output, row)
        first[0, i] = start + begin
        total = _quantise(row, count, words[0, i])
        origin, chroma_count, chroma_total = _through_upsampling(
            words[0, i], start + begin, count, limit, fancy, words[1, i]
        )
        first[1, i] = origin
        _settle(words[0, i], count, width, total)
        _settle(words[1, i], chroma_count, width, chroma_total)
        luma_taps = max(luma_taps, count)
        chroma_taps = max(chroma_taps, chroma_count)
    return luma_taps, chroma_taps
