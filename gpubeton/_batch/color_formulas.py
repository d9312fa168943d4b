"""Color formulas: what color steps make of a pixel.

A factor is in units of 2**-15. A pixel of levels r, g, b, with a gray value of
``(2989 r + 5870 g + 1140 b) // 10000``, becomes

==========  ===========================================================================
BRIGHTNESS  ``factor * level``
CONTRAST    ``factor * level + (1 - factor) * mean``, mean of the image's gray values
SATURATION  ``factor * level + (1 - factor) * gray`` of the pixel
HUE         the pixel turned by `factor` of a full circle in HSV's hexagon
==========  ===========================================================================

clipped to 0 to 255 and rounded down to whole levels after each step, as FFCV and torchvision do. All arithmetic is on
integers, so CPUs and GPUs agree to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ONE = 1 << 15  # the factor 1; with it, 255 times a factor leaves room in 32 bits for factors up to `MAX_FACTOR`
MAX_FACTOR = 256
SHIFT = 15  # levels are in units of 2**-15 while they are worked on

# Weights of the gray value: FFCV's and torchvision's, which sum to a little less than 1.
RED_WEIGHT, GREEN_WEIGHT, BLUE_WEIGHT, WEIGHTS = 2989, 5870, 1140, 10000

# Pixels are deinterleaved into their channels, int32 (3, W), changed, and interleaved again: three bytes fit no SIMD
# register, while channels fill it. Sums of int32 are int64 to Numba; each result that is known to fit is cast back at
# once, so that eight numbers fit into a register.


def load_line(row: Any, line: Any) -> None:
    """Deinterleave a row of pixels, (W, 3) uint8, into channels, (3, W) int32."""
    for x in range(len(row)):
        for channel in range(3):
            line[channel, x] = row[x, channel]


def store_line(line: Any, row: Any) -> None:
    """Interleave channels, levels from 0 to 255, into a row of pixels."""
    for x in range(len(row)):
        for channel in range(3):
            row[x, channel] = line[channel, x]


def blend(line: Any, factor: Any, added: Any) -> None:
    """Multiply all levels and add the same to each: brightness and contrast."""
    factor, added = np.int32(factor), np.int32(added)
    for channel in range(3):
        levels = line[channel]
        for x in range(len(levels)):
            level = np.int32(np.int32(factor * levels[x]) + added) >> SHIFT
            levels[x] = min(max(np.int32(level), np.int32(0)), np.int32(255))


def saturate(line: Any, factor: Any) -> None:
    """Move each pixel away from its gray value, or towards it."""
    # SIMD divides floats only. With a half added, a quotient is at least 0.00005 away from the next integer, and
    # float32 is off by less than that.
    half, share = np.float32(0.5), np.float32(1 / WEIGHTS)
    factor = np.int32(factor)
    red, green, blue = line[0], line[1], line[2]
    for x in range(len(red)):
        weighed = np.int32(RED_WEIGHT * red[x] + GREEN_WEIGHT * green[x] + BLUE_WEIGHT * blue[x])
        gray = np.int32(np.float32(np.float32(weighed) + half) * share)
        base = np.int32(gray << SHIFT)
        r = np.int32(np.int32(np.int32(factor * np.int32(red[x] - gray)) + base) >> SHIFT)
        g = np.int32(np.int32(np.int32(factor * np.int32(green[x] - gray)) + base) >> SHIFT)
        b = np.int32(np.int32(np.int32(factor * np.int32(blue[x] - gray)) + base) >> SHIFT)
        red[x] = min(max(r, np.int32(0)), np.int32(255))
        green[x] = min(max(g, np.int32(0)), np.int32(255))
        blue[x] = min(max(b, np.int32(0)), np.int32(255))


def turn(line: Any, factor: Any) -> None:
    """Turn the colors on HSV's hexagon."""
    # With the largest and the smallest channel of a pixel kept, and `side` their difference, its color is a position
    # on a hexagon of circumference `6 * side`: red at 0, green at `2 * side`, blue at `4 * side`. Along a side one
    # channel rises or falls while the others stay, so each channel is a trapezium over the position: only integers,
    # and no division. Rounded as torchvision does, which reads a channel as `level / 255` and writes it as
    # `floor(255.999 * value)`: 0.999 / 255 is nearly 32864 / 2**23, within 0.0001 of a level.
    per_chroma = np.int32(6 * factor)
    none = np.int32(0)
    red, green, blue = line[0], line[1], line[2]
    for x in range(len(red)):
        r, g, b = red[x], green[x], blue[x]
        most, least = max(r, g, b), min(r, g, b)
        chroma = np.int32(most - least)
        side = np.int32(chroma << SHIFT)
        corner = np.int32(4 * chroma + r - g)
        corner = np.int32(2 * chroma + b - r) if most == g else corner
        corner = np.int32(g - b) if most == r else corner
        place = np.int32(np.int32(corner << SHIFT) + np.int32(per_chroma * chroma))
        place = np.int32(place + 6 * side) if place < 0 else place
        place = np.int32(place - 6 * side) if place >= np.int32(6 * side) else place
        base = np.int32(least << SHIFT)
        r = np.int32(base + min(max(np.int32(abs(np.int32(place - 3 * side)) - side), none), side))
        g = np.int32(base + min(max(np.int32(2 * side - abs(np.int32(place - 2 * side))), none), side))
        b = np.int32(base + min(max(np.int32(2 * side - abs(np.int32(place - 4 * side))), none), side))
        red[x] = np.int32(r + (np.int32(np.int32(r >> 7) * 32864) >> 16)) >> SHIFT
        green[x] = np.int32(g + (np.int32(np.int32(g >> 7) * 32864) >> 16)) >> SHIFT
        blue[x] = np.int32(b + (np.int32(np.int32(b >> 7) * 32864) >> 16)) >> SHIFT


def gray_sum(line: Any) -> Any:
    """Sum the gray values; the sum of 65,535 pixels is far below 2**31."""
    red, green, blue = line[0], line[1], line[2]
    half, share = np.float32(0.5), np.float32(1 / WEIGHTS)
    total = np.int32(0)
    for x in range(len(red)):
        weighed = np.int32(RED_WEIGHT * red[x] + GREEN_WEIGHT * green[x] + BLUE_WEIGHT * blue[x])
        total = np.int32(total + np.int32(np.float32(np.float32(weighed) + half) * share))
    return np.int64(total)
