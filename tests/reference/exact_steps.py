"""Warps, perspective and HSV with whole numbers, by the formulas of their modules, in plain NumPy."""

from __future__ import annotations

import numpy as np


def affine_places(numbers, size, bits):
    """Places across and down in units of 2**-11, int64 (H, W), rounded to 2**-bits of a pixel."""
    y, x = np.mgrid[: size[0], : size[1]].astype(np.int64)
    a, b, c, d, e, f = (np.int64(number) for number in numbers)
    step = 2 ** (32 - bits)
    return [(total + step // 2) // step * 2 ** (11 - bits) for total in (a * x + b * y + c, d * x + e * y + f)]


def perspective_places(numbers, size, bits):
    """The same; -4096, two pixels outside, where there is none."""
    y, x = np.mgrid[: size[0], : size[1]].astype(np.int64)
    above_x, above_y, below = (a * x + b * y + c for a, b, c in np.array(numbers, np.int64).reshape(3, 3))
    divisor = below // 2**16
    has_place = (divisor >= 1) & (divisor < 2**26)
    places = [np.where(has_place, above // np.where(has_place, divisor, 1), -4096) for above in (above_x, above_y)]
    return places if bits else [(place + 1024) // 2048 * 2048 for place in places]


def read(image, across, down, fill):
    """The image at places, each pixel weighed of four."""
    height, width = image.shape[:2]
    total = np.full((*across.shape, image.shape[2]), 2**21, np.int64)
    for row in range(2):
        for column in range(2):
            x, y = across // 2048 + column, down // 2048 + row
            weight = np.abs(2048 * (1 - column) - across % 2048) * np.abs(2048 * (1 - row) - down % 2048)
            inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
            levels = image[np.where(inside, y, 0), np.where(inside, x, 0)].astype(np.int64)
            total += weight[..., None] * np.where(inside[..., None], levels, fill)
    return (total // 2**22).astype(image.dtype)


def hsv(image, saturation, value, turn):
    """The image with new colors; factors and turn in units of 2**-15."""
    most = np.iinfo(image.dtype).max
    levels = np.broadcast_to(image[..., :3], (*image.shape[:2], 3)).astype(np.int64)
    red, green, blue = np.moveaxis(levels, 2, 0)
    largest, chroma = levels.max(axis=2), levels.max(axis=2) - levels.min(axis=2)
    corner = np.where(largest == green, 2 * chroma + blue - red, 4 * chroma + red - green)
    corner = np.where(largest == red, green - blue, corner)
    place = (256 * corner + 6 * (turn % 2**15) * chroma // 2**7) % np.maximum(6 * 256 * chroma, 1)
    ratio = np.minimum(value, most * 2**15 // np.maximum(largest, 1))
    top = ratio * largest
    share = np.minimum(saturation * (ratio // 2) // 2**14, top // np.maximum(chroma, 1))
    side = 256 * chroma
    heights = [np.abs(place - 3 * side) - side, *(2 * side - np.abs(place - at * side) for at in (2, 4))]
    result = image.copy()
    for channel in range(min(image.shape[2], 3)):
        lost = side - np.clip(heights[channel], 0, side)
        result[..., channel] = (256 * top - share * lost + 2**22) // 2**23
    return result
