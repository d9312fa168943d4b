"""Colour lines: the steps on colours, compiled, a line of pixels at a time.

A line is copied apart into its channels, int32 of shape (3, W), goes through all steps up to the next contrast, and is
copied back: pixels of three bytes fit no vector register, while channels fill it.

Sums of int32 are int64 to Numba; what is known to fit is cast back at once, so that eight numbers go into a register.

Gray values are quotients of whole numbers, rounded down. Vectors divide floats only: with a half added, a quotient is
at least 0.00005 away from the next whole number, and float32 is off by less than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.pipeline.compiler import Compiler
from gpubeton.transforms.colour_kinds import (
    BLUE_WEIGHT,
    CONTRAST,
    GREEN_WEIGHT,
    HUE,
    ONE,
    RED_WEIGHT,
    SATURATION,
    WEIGHTS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_SHIFT = 15
"""Levels are in units of 2**-15 while they are worked on."""


def apply_steps(images: NDArray[np.uint8], steps: NDArray[np.int32]) -> None:
    """Carry out the steps of each image, in place.

    Parameters
    ----------
    images : ndarray of uint8, shape (N, H, W, 3)
        Levels; any strides.
    steps : ndarray of int32, shape (N, 2 * K)
        Kind and factor of each step, see `gpubeton.transforms.colour`.

    Examples
    --------
    >>> image = np.array([[[[100, 150, 200]]]], "uint8")
    >>> apply_steps(image, np.array([[0, ONE // 2]], "int32"))
    >>> image.ravel().tolist()
    [50, 75, 100]
    """
    _compiled()(images, steps)


def _compiled() -> Callable[..., Any]:
    """The loop over the images, with its parts as machine code; the compiler remembers all of them."""
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
                own = steps[number, start:stop]
                if is_idle(own):
                    continue
                added = image_mean(image, line, ONE - own[1]) if own[0] == CONTRAST else 0
                for y in range(len(image)):
                    load(image[y], line)
                    line_steps(line, own, added)
                    store(line, image[y])

    return Compiler.compile(images_steps)


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
    """Whether the steps change nothing."""
    changes = 0
    for step in range(0, len(steps), 2):
        changes += steps[step + 1] != (0 if steps[step] == HUE else ONE)
    return changes == 0


def load_line(row: Any, line: Any) -> None:
    """Copy a row of pixels apart into its channels.

    Parameters
    ----------
    row : ndarray of uint8, shape (W, 3)
        The pixels.
    line : ndarray of int32, shape (3, W)
        Written.
    """
    for x in range(len(row)):
        for channel in range(3):
            line[channel, x] = row[x, channel]


def store_line(line: Any, row: Any) -> None:
    """Copy channels back into a row of pixels.

    Parameters
    ----------
    line : ndarray of int32, shape (3, W)
        Levels from 0 to 255.
    row : ndarray of uint8, shape (W, 3)
        Written.
    """
    for x in range(len(row)):
        for channel in range(3):
            row[x, channel] = line[channel, x]


def blend(line: Any, factor: Any, added: Any) -> None:
    """Multiply all levels and add the same to each.

    Parameters
    ----------
    line : ndarray of int32, shape (3, W)
        Levels, changed.
    factor : int
        In units of 2**-15.
    added : int
        In units of 2**-15.
    """
    factor, added = np.int32(factor), np.int32(added)
    for channel in range(3):
        levels = line[channel]
        for x in range(len(levels)):
            level = np.int32(np.int32(factor * levels[x]) + added) >> _SHIFT
            levels[x] = min(max(np.int32(level), np.int32(0)), np.int32(255))


def saturate(line: Any, factor: Any) -> None:
    """Move each pixel away from its gray value, or towards it.

    Parameters
    ----------
    line : ndarray of int32, shape (3, W)
        Levels, changed.
    factor : int
        In units of 2**-15.
    """
    half, share = np.float32(0.5), np.float32(1 / WEIGHTS)
    factor = np.int32(factor)
    red, green, blue = line[0], line[1], line[2]
    for x in range(len(red)):
        weighed = np.int32(RED_WEIGHT * red[x] + GREEN_WEIGHT * green[x] + BLUE_WEIGHT * blue[x])
        gray = np.int32(np.float32(np.float32(weighed) + half) * share)
        base = np.int32(gray << _SHIFT)
        r = np.int32(np.int32(np.int32(factor * np.int32(red[x] - gray)) + base) >> _SHIFT)
        g = np.int32(np.int32(np.int32(factor * np.int32(green[x] - gray)) + base) >> _SHIFT)
        b = np.int32(np.int32(np.int32(factor * np.int32(blue[x] - gray)) + base) >> _SHIFT)
        red[x] = min(max(r, np.int32(0)), np.int32(255))
        green[x] = min(max(g, np.int32(0)), np.int32(255))
        blue[x] = min(max(b, np.int32(0)), np.int32(255))


def turn(line: Any, factor: Any) -> None:
    """Turn the hue of each pixel; see `colour_tensors.turn` for how.

    Parameters
    ----------
    line : ndarray of int32, shape (3, W)
        Levels, changed.
    factor : int
        In units of 2**-15.
    """
    per_chroma = np.int32(6 * factor)
    none = np.int32(0)
    red, green, blue = line[0], line[1], line[2]
    for x in range(len(red)):
        r, g, b = red[x], green[x], blue[x]
        most, least = max(r, g, b), min(r, g, b)
        chroma = np.int32(most - least)
        side = np.int32(chroma << _SHIFT)
        corner = np.int32(4 * chroma + r - g)
        corner = np.int32(2 * chroma + b - r) if most == g else corner
        corner = np.int32(g - b) if most == r else corner
        place = np.int32(np.int32(corner << _SHIFT) + np.int32(per_chroma * chroma))
        place = np.int32(place + 6 * side) if place < 0 else place
        place = np.int32(place - 6 * side) if place >= np.int32(6 * side) else place
        base = np.int32(least << _SHIFT)
        r = np.int32(base + min(max(np.int32(abs(np.int32(place - 3 * side)) - side), none), side))
        g = np.int32(base + min(max(np.int32(2 * side - abs(np.int32(place - 2 * side))), none), side))
        b = np.int32(base + min(max(np.int32(2 * side - abs(np.int32(place - 4 * side))), none), side))
        red[x] = np.int32(r + (np.int32(np.int32(r >> 7) * 32864) >> 16)) >> _SHIFT
        green[x] = np.int32(g + (np.int32(np.int32(g >> 7) * 32864) >> 16)) >> _SHIFT
        blue[x] = np.int32(b + (np.int32(np.int32(b >> 7) * 32864) >> 16)) >> _SHIFT


def gray_sum(line: Any) -> Any:
    """Sum the gray values; a line of 65,535 pixels stays far below 2**31.

    Parameters
    ----------
    line : ndarray of int32, shape (3, W)
        Levels.

    Returns
    -------
    int
        The sum, int64.
    """
    red, green, blue = line[0], line[1], line[2]
    half, share = np.float32(0.5), np.float32(1 / WEIGHTS)
    total = np.int32(0)
    for x in range(len(red)):
        weighed = np.int32(RED_WEIGHT * red[x] + GREEN_WEIGHT * green[x] + BLUE_WEIGHT * blue[x])
        total = np.int32(total + np.int32(np.float32(np.float32(weighed) + half) * share))
    return np.int64(total)
