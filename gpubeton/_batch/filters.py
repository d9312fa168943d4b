"""Filters: blur and sharpen images, with integers, so that arrays and tensors agree to the bit.

A blur's weights are integers in units of 2**-15 that sum to 1. Rows are blurred first and kept in units of 2**-7 of a
level, then columns: all of it fits 32 bits, and is within 0.004 of a level of the exact sum before it is rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.image_batch import ImageChange
from gpubeton.pipeline.compiler import Compiler

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _blur_arrays(images: NDArray[np.uint8], rows: NDArray[Any]) -> None:
    Compiler.compile(blur_images)(images, rows)


def blur_images(
    images: Any,  # (N, H, W, 3) uint8: levels, changed
    rows: Any,  # (N, K) int32: weights of each, in units of 2**-15
) -> None:
    """Blur images, in place."""
    height, width, reach = images.shape[1], images.shape[2], rows.shape[1] // 2
    values = 3 * width
    line = np.empty(values + 6 * reach, np.int32)
    total = np.empty(values, np.int32)
    blurred = np.empty((height, values), np.int32)
    for number in range(len(images)):
        image, weights = images[number], rows[number]
        if weights[reach] == ONE:
            continue
        for y in range(height):
            for x in range(-reach, width + reach):
                source = width - 1 - abs(width - 1 - abs(x))
                for channel in range(3):
                    line[3 * (x + reach) + channel] = image[y, source, channel]
            total[:] = 128
            for tap in range(len(weights)):
                weight = weights[tap]
                for place in range(values):
                    total[place] += np.int32(weight * line[place + 3 * tap])
            for place in range(values):
                blurred[y, place] = total[place] >> 8
        for y in range(height):
            total[:] = 1 << 21
            for tap in range(len(weights)):
                weight = weights[tap]
                other = blurred[height - 1 - abs(height - 1 - abs(y + tap - reach))]
                for place in range(values):
                    total[place] += np.int32(weight * other[place])
            for x in range(width):
                for channel in range(3):
                    image[y, x, channel] = total[3 * x + channel] >> 22


def _blur_tensors(images: Any, rows: NDArray[Any]) -> None:
    import torch

    reach = rows.shape[1] // 2
    chosen = np.flatnonzero(rows[:, reach] != ONE)
    if len(chosen) == 0:
        return
    indices = torch.from_numpy(chosen).to(images.device)
    # Not a convolution: on a GPU those may round to 10 bits.
    weights = torch.from_numpy(rows[chosen].astype(np.int32)).to(images.device).view(len(chosen), -1, 1, 1, 1)
    levels = images[indices].to(torch.int32)
    for axis, added, shift in ((2, 128, 8), (1, 1 << 21, 22)):
        length = levels.shape[axis]
        places = torch.arange(-reach, length + reach, device=images.device)
        padded = levels.index_select(axis, length - 1 - (length - 1 - places.abs()).abs())
        total = torch.full_like(levels, added)
        for tap in range(rows.shape[1]):
            total += weights[:, tap] * padded.narrow(axis, tap, length)
        levels = total >> shift
    images[indices] = levels.to(torch.uint8)


def _sharpen_arrays(images: NDArray[np.uint8], rows: NDArray[Any]) -> None:
    Compiler.compile(sharpen_images)(images, rows)


def sharpen_images(
    images: Any,  # (N, H, W, 3) uint8: levels, changed
    rows: Any,  # (N, 1) integers: factors, in units of 2**-15
) -> None:
    """Sharpen images, in place."""
    height, width = images.shape[1], images.shape[2]
    values = 3 * width
    old = np.empty((height, values), np.int32)
    columns = np.empty(values, np.int32)
    for number in range(len(images)):
        image, factor = images[number], np.int32(rows[number, 0])
        if factor == ONE:
            continue
        away = np.int32(ONE - factor)
        for y in range(height):
            for x in range(width):
                for channel in range(3):
                    old[y, 3 * x + channel] = image[y, x, channel]
        for y in range(1, height - 1):
            above, line, below = old[y - 1], old[y], old[y + 1]
            for place in range(values):
                columns[place] = above[place] + line[place] + below[place]
            for x in range(1, width - 1):
                for channel in range(3):
                    place = 3 * x + channel
                    level = line[place]
                    total = np.uint32(columns[place - 3] + columns[place] + columns[place + 3] + 4 * level)
                    mean = np.int32(np.uint32(2 * total + 13) // np.uint32(26))
                    changed = np.int32(np.int32(level * ONE) + np.int32(away * np.int32(mean - level))) >> 15
                    image[y, x, channel] = min(max(changed, 0), 255)


def _sharpen_tensors(images: Any, rows: NDArray[Any]) -> None:
    import torch

    chosen = np.flatnonzero(rows[:, 0] != ONE)
    if len(chosen) == 0 or min(images.shape[1:3]) < 3:
        return
    indices = torch.from_numpy(chosen).to(images.device)
    factor = torch.from_numpy(rows[chosen, 0].astype(np.int32)).to(images.device).view(-1, 1, 1, 1)
    levels = images[indices].to(torch.int32)
    height, width = levels.shape[1] - 2, levels.shape[2] - 2
    middle = levels[:, 1:-1, 1:-1]
    total = 4 * middle
    for y in range(3):
        for x in range(3):
            total += levels[:, y : y + height, x : x + width]
    mean = (2 * total + 13) // 26
    changed = (middle * ONE + (ONE - factor) * (mean - middle)) >> 15
    levels[:, 1:-1, 1:-1] = changed.clamp(0, 255)
    images[indices] = levels.to(torch.uint8)


change_blur = ImageChange(_blur_arrays, _blur_tensors)
change_sharpness = ImageChange(_sharpen_arrays, _sharpen_tensors)
