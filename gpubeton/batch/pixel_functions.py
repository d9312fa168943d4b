"""Pixel functions: a user's function of one pixel, compiled into a loop over rows of pixels.

Levels enter the function as float32, which holds them exactly; its results are rounded to the nearest level, halves up.
Nothing is reordered or contracted, so that a GPU with the same operations on float32 gets the same levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.batch.color_formulas import load_line, store_line
from gpubeton.pipeline.compiler import Compiler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

POSITION = ("x", "y", "height", "width")
"""Arguments of a function besides its parameters: its position in the image, and the image's size, in pixels."""


def compiled_line(
    function: Callable[..., Any], arguments: Sequence[str], parameters: Sequence[str]
) -> Callable[..., Any]:
    """Compile a function of one pixel into ``change(line, values, y, height, width)`` of a row of channels, (3, W)."""
    # Parameter j of the pixel function is ``values[2 * j]``, as in the steps of an image.
    pixel = Compiler.compile_exact(getattr(function, "py_func", function))  # also if it was compiled before
    level_of = Compiler.compile_exact(nearest_level)
    of_the_line, of_the_pixel = _compiled_arguments(arguments, parameters)

    def change(line: Any, values: Any, y: Any, height: Any, width: Any) -> None:
        red, green, blue = line[0], line[1], line[2]
        # Before the loop: as far as the compiler knows, `line` and `values` may share memory.
        fixed = of_the_line(values, np.float32(y), np.float32(height), np.float32(width))
        for x in range(width):
            own = of_the_pixel(fixed, np.float32(x))
            r, g, b = pixel(np.float32(red[x]), np.float32(green[x]), np.float32(blue[x]), *own)
            red[x], green[x], blue[x] = level_of(r), level_of(g), level_of(b)

    return Compiler.compile_exact(change)


def compiled_images(change: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``change_images(images, values, is_chosen)`` over uint8 (N, H, W, 3), which it changes."""
    load, store = Compiler.compile_exact(load_line), Compiler.compile_exact(store_line)

    def change_images(images: Any, values: Any, is_chosen: Any) -> None:
        height, width = images.shape[1], images.shape[2]
        line = np.empty((3, width), np.int32)
        for number in range(len(images)):
            if is_chosen[number]:
                for y in range(height):
                    load(images[number, y], line)
                    change(line, values[number], y, height, width)
                    store(line, images[number, y])

    return Compiler.compile_exact(change_images)


def nearest_level(value: Any) -> Any:
    """Round to the nearest level, halves up; NaN becomes 0."""
    level = np.floor(np.float32(value) + np.float32(0.5))
    level = max(np.float32(0), level)
    return np.int32(min(np.float32(255), level))


def _compiled_arguments(arguments: Sequence[str], parameters: Sequence[str]) -> tuple[Any, Any]:
    """Compile functions that gather the arguments as tuples: those of a whole row, and all of a pixel."""

    def no_fixed(values: Any, y: Any, height: Any, width: Any) -> Any:
        return ()

    def no_own(fixed: Any, x: Any) -> Any:
        return ()

    of_the_line, of_the_pixel = Compiler.compile_exact(no_fixed), Compiler.compile_exact(no_own)
    place = 0
    for name in arguments:
        if name == "x":
            of_the_pixel = _with_x(of_the_pixel)
        else:
            index = -1 - ("y", "height", "width").index(name) if name in POSITION else 2 * parameters.index(name)
            of_the_line, of_the_pixel = _with_fixed(of_the_line, index), _with_own(of_the_pixel, place)
            place += 1
    return of_the_line, of_the_pixel


def _with_x(before: Any) -> Any:
    def with_x(fixed: Any, x: Any) -> Any:
        return (*before(fixed, x), x)

    return Compiler.compile_exact(with_x)


def _with_own(before: Any, place: int) -> Any:
    def with_own(fixed: Any, x: Any) -> Any:
        return (*before(fixed, x), fixed[place])

    return Compiler.compile_exact(with_own)


def _with_fixed(before: Any, index: int) -> Any:
    def with_value(values: Any, y: Any, height: Any, width: Any) -> Any:
        return (*before(values, y, height, width), values[index])

    def with_position(values: Any, y: Any, height: Any, width: Any) -> Any:
        return (*before(values, y, height, width), (y, height, width)[-1 - index])

    return Compiler.compile_exact(with_value if index >= 0 else with_position)
