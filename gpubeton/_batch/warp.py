"""Warp: rotate, shift, scale and shear images.

A warp is a row of six int64 in units of 2**-32, (a, b, c, d, e, f): pixel (x, y) of the result is read at
``(a x + b y + c, d x + e y + f)``, in source pixels, whole numbers at pixels' centers. "nearest" takes the pixel there,
a tie the one with the larger coordinate; "bilinear" weighs the four around it, places in units of 2**-11, rounded. What
lies outside the image has the color of the fill.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.image_batch import CHANNELS, ImageChange, fill_of, writable
from gpubeton.pipeline.compiler import Compiler

if TYPE_CHECKING:
    from numpy.typing import NDArray


IDENTITY = 1 << 32, 0, 0, 0, 1 << 32, 0
"""The warp that changes nothing."""

_IMAGES_AT_ONCE = 16
"""Images of a tensor that are worked on together; their places take 64 bits for each pixel."""


@lru_cache(maxsize=64)
def warp(interpolation: str, fill: tuple[int, ...]) -> ImageChange:
    """Return the change of images, of any kind, that carries out warps, int64 (N, 6)."""
    return ImageChange(partial(_warp_arrays, interpolation, fill), partial(_warp_tensors, interpolation, fill))


def _warp_arrays(interpolation: str, fill: tuple[int, ...], images: NDArray[Any], rows: NDArray[Any]) -> None:
    code = Compiler.compile(warp_nearest if interpolation == "nearest" else warp_bilinear)
    chosen = np.flatnonzero((rows != IDENTITY).any(axis=1))
    if images.shape[3] == CHANNELS and images.dtype == np.uint8:
        code(images, chosen, rows, np.array(fill, np.int64))
        return
    # Gray and RGBA images and uint16: three channels at a time.
    outside = fill_of("warp", fill, images.shape[3])
    triple = np.empty((1, *images.shape[1:3], CHANNELS), np.int64)
    for number in chosen:
        for first in range(0, images.shape[3], CHANNELS):
            channels = images.shape[3] - first
            part = images[number, ..., first : first + CHANNELS]
            triple[0, ..., :channels] = part
            color = np.array([*outside[first : first + CHANNELS], 0, 0][:CHANNELS], np.int64)
            code(triple, np.zeros(1, np.intp), rows[number : number + 1], color)
            part[:] = triple[0, ..., :channels]


def warp_nearest(
    images: Any,  # (N, H, W, 3) uint8: levels, changed
    chosen: Any,  # (R,) intp: which images
    rows: Any,  # (N, 6) int64: warps of all
    fill: Any,  # (3,) int64: levels outside the image
) -> None:
    """Warp images in place, each pixel the nearest."""
    height, width = images.shape[1], images.shape[2]
    for number in chosen:
        image, matrix = images[number], rows[number]
        old = image.copy()
        for y in range(height):
            for x in range(width):
                column = (matrix[0] * x + matrix[1] * y + matrix[2] + (1 << 31)) >> 32
                row = (matrix[3] * x + matrix[4] * y + matrix[5] + (1 << 31)) >> 32
                if 0 <= column < width and 0 <= row < height:
                    for channel in range(3):
                        image[y, x, channel] = old[row, column, channel]
                else:
                    for channel in range(3):
                        image[y, x, channel] = fill[channel]


def warp_bilinear(
    images: Any,  # (N, H, W, 3) uint8: levels, changed
    chosen: Any,  # (R,) intp: which images
    rows: Any,  # (N, 6) int64: warps of all
    fill: Any,  # (3,) int64: levels outside the image
) -> None:
    """Warp images in place, each pixel weighed of four."""
    height, width = images.shape[1], images.shape[2]
    for number in chosen:
        image, matrix = images[number], rows[number]
        old = image.copy()
        for y in range(height):
            for x in range(width):
                across = (matrix[0] * x + matrix[1] * y + matrix[2] + (1 << 20)) >> 21
                down = (matrix[3] * x + matrix[4] * y + matrix[5] + (1 << 20)) >> 21
                left, top = across >> 11, down >> 11
                part_x, part_y = np.int32(across & 2047), np.int32(down & 2047)
                rest_x, rest_y = np.int32(2048 - part_x), np.int32(2048 - part_y)
                if 0 <= left < width - 1 and 0 <= top < height - 1:
                    for channel in range(3):
                        upper = rest_x * old[top, left, channel] + part_x * old[top, left + 1, channel]
                        lower = rest_x * old[top + 1, left, channel] + part_x * old[top + 1, left + 1, channel]
                        image[y, x, channel] = (rest_y * upper + part_y * lower + (1 << 21)) >> 22
                    continue
                for channel in range(3):
                    total = 1 << 21
                    for row in range(2):
                        for column in range(2):
                            weight = (part_x if column else rest_x) * (part_y if row else rest_y)
                            inside = 0 <= top + row < height and 0 <= left + column < width
                            total += weight * (old[top + row, left + column, channel] if inside else fill[channel])
                    image[y, x, channel] = total >> 22


def _warp_tensors(interpolation: str, fill: tuple[int, ...], images: Any, rows: NDArray[Any]) -> None:
    import torch

    chosen = np.flatnonzero((rows != IDENTITY).any(axis=1))
    wide = torch.int32 if images.dtype == torch.uint8 else torch.int64
    outside = torch.tensor(fill_of("warp", fill, images.shape[3]), dtype=wide, device=images.device)
    for start in range(0, len(chosen), _IMAGES_AT_ONCE):
        part = chosen[start : start + _IMAGES_AT_ONCE]
        indices = torch.from_numpy(part).to(images.device)
        warps = torch.from_numpy(np.ascontiguousarray(rows[part].T)).to(images.device).view(6, -1, 1, 1)
        warped = _read(interpolation, images[indices].to(wide), warps, outside).to(images.dtype)
        writable(images)[indices] = writable(warped)


def _read(interpolation: str, levels: Any, warps: Any, outside: Any) -> Any:
    """Return the warped images, of the levels' shape (R, H, W, C) and type."""
    import torch

    height, width = levels.shape[1:3]
    y = torch.arange(height, device=levels.device).view(-1, 1)
    x = torch.arange(width, device=levels.device)
    across, down = (warps[first] * x + warps[first + 1] * y + warps[first + 2] for first in (0, 3))

    def at(column: Any, row: Any) -> Any:
        is_inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        places = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
        levels_at = (
            levels.flatten(1, 2)
            .gather(1, places.flatten(1).unsqueeze(2).expand(-1, -1, levels.shape[3]))
            .view(levels.shape)
        )
        return torch.where(is_inside.unsqueeze(3), levels_at, outside)

    if interpolation == "nearest":
        return at((across + (1 << 31)) >> 32, (down + (1 << 31)) >> 32)
    across, down = (across + (1 << 20)) >> 21, (down + (1 << 20)) >> 21
    parts = [torch.stack([2048 - (place & 2047), place & 2047]).to(levels.dtype) for place in (across, down)]
    total = torch.full_like(levels, 1 << 21)
    for row in range(2):
        for column in range(2):
            weight = (parts[0][column] * parts[1][row]).unsqueeze(3)
            total += weight * at((across >> 11) + column, (down >> 11) + row)
    return total >> 22
