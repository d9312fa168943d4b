"""Color formulas: the color operations of each image as pairs of int32, computed by Numba and by torch.

A step is a kind and a factor in units of 2**-15. A pixel of levels r, g, b, with a gray value of
``(2989 r + 5870 g + 1140 b) // 10000``, becomes

==========  ===========================================================================
BRIGHTNESS  ``factor * level``
CONTRAST    ``factor * level + (1 - factor) * mean``, mean of the image's gray values
SATURATION  ``factor * level + (1 - factor) * gray`` of the pixel
HUE         the pixel turned by `factor` of a full circle in HSV's hexagon
==========  ===========================================================================

clipped to 0 to 255 and rounded down to whole levels after each step, as FFCV and torchvision do. All arithmetic is on
integers, so arrays, tensors and CUDA kernels agree to the bit. Floating-point images are not rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.image_batch import ImageChange
from gpubeton.pipeline.compiler import Compiler

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)

ONE = 1 << 15
"""The factor 1. With it, 255 times a factor still leaves room in 32 bits for factors up to `MAX_FACTOR`."""

MAX_FACTOR = 256

NEUTRAL = {BRIGHTNESS: ONE, CONTRAST: ONE, SATURATION: ONE, HUE: 0}
"""The factor of each kind that leaves every level as it is."""

RED_WEIGHT, GREEN_WEIGHT, BLUE_WEIGHT, WEIGHTS = 2989, 5870, 1140, 10000
"""Weights of the gray value: FFCV's and torchvision's, which sum to a little less than 1."""

SHIFT = 15
"""Levels are in units of 2**-15 while they are worked on."""


# --- Numba: a row of pixels at a time -------------------------------------------------------------------------------
#
# A row is deinterleaved into its channels, int32 (3, W), goes through all steps up to the next contrast, and is
# interleaved again: pixels of three bytes fit no SIMD register, while channels fill it. Sums of int32 are int64 to
# Numba; each result that is known to fit is cast back at once, so that eight numbers fit into a register.


def _change_arrays(
    images: NDArray[np.uint8],  # (N, H, W, 3)
    steps: NDArray[np.int32],  # (N, 2 * K)
) -> None:
    _compiled_images()(images, steps)


def _compiled_images() -> Callable[..., Any]:
    """Compile the loop over the images and its parts; the compiler remembers all of them."""
    is_idle, load, store = Compiler.compile(_is_idle), Compiler.compile(load_line), Compiler.compile(store_line)
    image_mean, line_steps = _compiled_mean(), _compiled_line_steps()

    def images_steps(images: Any, steps: Any) -> None:
        line = np.empty((3, images.shape[2]), np.int32)
        for number in range(len(images)):
            image, stop = images[number], 0
            while stop < steps.shape[1]:
                start, stop = stop, stop + 2
                while stop < steps.shape[1] and steps[number, stop] != CONTRAST:
                    stop += 2
                run = steps[number, start:stop]
                if is_idle(run):
                    continue
                added = image_mean(image, line, ONE - run[1]) if run[0] == CONTRAST else 0
                for y in range(len(image)):
                    load(image[y], line)
                    line_steps(line, run, added)
                    store(line, image[y])

    return Compiler.compile(images_steps)


def _change_gray_arrays(images: NDArray[np.uint8], steps: NDArray[np.int32]) -> None:
    Compiler.compile(change_grays)(images[..., 0], steps)


def change_grays(images: Any, steps: Any) -> None:
    """Carry out brightness and contrast on gray images, (N, H, W), whose gray values are their levels."""
    for number in range(len(images)):
        image = images[number]
        for step in range(0, steps.shape[1], 2):
            factor, added = np.int32(steps[number, step + 1]), np.int32(0)
            if factor == ONE:
                continue
            if steps[number, step] == CONTRAST:
                total = np.int64(image.sum())  # a sum of uint8 is uint64, and its product with int64 a float
                added = np.int32((ONE - factor) * total // image.size)
            for y in range(len(image)):
                row = image[y]
                for x in range(len(row)):
                    level = np.int32(np.int32(factor * np.int32(row[x])) + added) >> SHIFT
                    row[x] = min(max(np.int32(level), np.int32(0)), np.int32(255))


def _compiled_mean() -> Callable[..., Any]:
    load, summed = Compiler.compile(load_line), Compiler.compile(gray_sum)

    def mean(image: Any, line: Any, times: Any) -> Any:
        total = np.int64(0)
        for y in range(len(image)):
            load(image[y], line)
            total += summed(line)
        return times * total // (image.shape[0] * image.shape[1])

    return Compiler.compile(mean)


def _compiled_line_steps() -> Callable[..., Any]:
    blended, saturated, turned = Compiler.compile(blend), Compiler.compile(saturate), Compiler.compile(turn)

    def line_steps(line: Any, steps: Any, added: Any) -> None:
        for step in range(0, len(steps), 2):
            kind, factor = steps[step], steps[step + 1]
            if kind == SATURATION:
                saturated(line, factor)
            elif kind == HUE:
                turned(line, factor)
            else:
                blended(line, factor, added if kind == CONTRAST else 0)

    return Compiler.compile(line_steps)


def _is_idle(steps: Any) -> Any:
    """Return whether the steps change nothing."""
    changes = 0
    for step in range(0, len(steps), 2):
        changes += steps[step + 1] != (0 if steps[step] == HUE else ONE)
    return changes == 0


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
    """Turn the hue of each pixel; `_turn_tensors` explains how."""
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


# --- torch: a whole batch at a time ---------------------------------------------------------------------------------


def _change_tensors(
    images: Any,  # (N, H, W, 3) uint8, or (N, H, W, 1), whose gray values are its levels
    steps: NDArray[np.int32],  # (N, 2 * K)
) -> None:
    import torch

    for step in range(0, steps.shape[1], 2):
        kinds, factors = steps[:, step], steps[:, step + 1]
        for kind, neutral in NEUTRAL.items():
            chosen = np.flatnonzero((kinds == kind) & (factors != neutral))
            if len(chosen) == 0:
                continue
            rows = torch.from_numpy(chosen).to(images.device)
            factor = torch.from_numpy(factors[chosen]).to(images.device).view(-1, 1, 1)
            levels = images[rows].to(torch.int32).unbind(3)
            changed = _turn_tensors(levels, factor) if kind == HUE else _blend_tensors(kind, levels, factor)
            images[rows] = torch.stack(changed, dim=3).to(torch.uint8)


def _blend_tensors(kind: int, levels: Any, factor: Any) -> list[Any]:
    """Mix channels, int32 (N, H, W) each, with black, the mean gray or the pixel's own, by factors (N, 1, 1)."""
    import torch

    if kind == CONTRAST:
        gray = _gray_of(levels)
        total = gray.sum((1, 2), keepdim=True, dtype=torch.int64)
        added = torch.div((ONE - factor) * total, gray[0].numel(), rounding_mode="floor").to(torch.int32)
        changed = [factor * level + added for level in levels]
    elif kind == SATURATION:
        gray = _gray_of(levels)
        changed = [factor * (level - gray) + (gray << SHIFT) for level in levels]
    else:
        changed = [factor * level for level in levels]
    return [(level >> SHIFT).clamp(0, 255) for level in changed]


def _turn_tensors(levels: Any, factor: Any) -> list[Any]:
    """Turn the colors on HSV's hexagon."""
    # With the largest and the smallest channel of a pixel kept, and `side` their difference, its color is a position
    # on a hexagon of circumference `6 * side`: red at 0, green at `2 * side`, blue at `4 * side`. Along a side one
    # channel rises or falls while the others stay, so each channel is a trapezium over the position: only integers,
    # and no division. Rounded as torchvision does, which reads a channel as `level / 255` and writes it as
    # `floor(255.999 * value)`.
    import torch

    red, green, blue = levels
    most = torch.maximum(torch.maximum(red, green), blue)
    least = torch.minimum(torch.minimum(red, green), blue)
    chroma = most - least
    side = chroma << SHIFT
    corner = torch.where(most == green, 2 * chroma + blue - red, 4 * chroma + red - green)
    corner = torch.where(most == red, green - blue, corner)
    place = ((corner << SHIFT) + 6 * factor * chroma).remainder((6 * side).clamp(min=1))
    heights = ((place - 3 * side).abs() - side, *(2 * side - (place - at * side).abs() for at in (2, 4)))
    return [_rounded((least << SHIFT) + height.clamp(min=0).minimum(side)) for height in heights]


def _gray_of(levels: Any) -> Any:
    """Return the gray value of each pixel, 0 to 254; of gray images the level itself."""
    if len(levels) == 1:
        return levels[0]
    red, green, blue = levels
    return (RED_WEIGHT * red + GREEN_WEIGHT * green + BLUE_WEIGHT * blue) // WEIGHTS


def _rounded(level: Any) -> Any:
    """Return ``floor(level * 255.999 / 255)``, within 0.0001 of a level: 0.999 / 255 is nearly 32864 / 2**23."""
    return (level + ((level >> 7) * 32864 >> 16)) >> SHIFT


change_colors = ImageChange(_change_arrays, _change_tensors)
