"""Warp: turn, shift, scale and shear images.

A warp is a row of six int64 in units of 2**-32, (a, b, c, d, e, f): pixel (x, y) of the result is read at
``(a x + b y + c, d x + e y + f)``, in source pixels, whole numbers at pixels' centres. "nearest" takes the pixel there,
a tie the one with the larger coordinate; "bilinear" weighs the four around it, places in units of 2**-11, rounded. What
lies outside the image has the colour of the fill.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.pipeline.compiler import Compiler
from gpubeton.transforms.fill import fill_of
from gpubeton.transforms.image_change import ImageChange
from gpubeton.transforms.layout import CHANNELS, writable

if TYPE_CHECKING:
    from numpy.typing import NDArray

WARP_COLUMNS = 6
IDENTITY = 1 << 32, 0, 0, 0, 1 << 32, 0
"""The warp that changes nothing."""

_IMAGES_AT_ONCE = 16
"""Images of a tensor that are worked on together; their places take 64 bits for each pixel."""


@lru_cache(maxsize=64)
def warp(interpolation: str, fill: tuple[int, ...]) -> ImageChange:
    """Return the change that carries out warps.

    Parameters
    ----------
    interpolation : {"nearest", "bilinear"}
        How pixels are read.
    fill : tuple of int
        Levels of what comes from outside.

    Returns
    -------
    ImageChange
        Of images of any kind. Takes rows of int64, shape (N, WARP_COLUMNS).

    Examples
    --------
    >>> image = np.array([[[[1] * 3, [2] * 3, [3] * 3]]], "uint8")
    >>> warp("nearest", (9, 9, 9))(image, np.array([[1 << 32, 0, 1 << 32, 0, 1 << 32, 0]]))
    >>> image[0, 0, :, 0].tolist()
    [2, 3, 9]
    """
    return ImageChange(partial(_warp_arrays, interpolation, fill), partial(_warp_tensors, interpolation, fill))


def affine_rows(
    size: tuple[int, int],
    angle: Any = 0.0,
    translate: tuple[Any, Any] = (0.0, 0.0),
    scale: Any = 1.0,
    shear: tuple[Any, Any] = (0.0, 0.0),
    centre: tuple[float, float] = (0.0, 0.0),
) -> NDArray[np.int64]:
    """Make the warps of images that are sheared, scaled, turned and then shifted.

    Parameters
    ----------
    size : tuple of int
        Height and width of the images in pixels.
    angle : float or ndarray of float64, shape (N,)
        Degrees, clockwise.
    translate : tuple of two floats or ndarrays
        Pixels to the right and down.
    scale : float or ndarray
        Factor.
    shear : tuple of two floats or ndarrays
        Degrees along x and along y.
    centre : tuple of two floats
        What stays in its place, in pixels to the right and down from the image's middle.

    Returns
    -------
    ndarray of int64, shape (N, WARP_COLUMNS)
        The warps, see `gpubeton.transforms.warp`.

    Notes
    -----
    torchvision's ``affine``.

    Examples
    --------
    >>> (affine_rows((5, 5), angle=90.0) >> 32).tolist()
    [[0, 1, 0, -1, 0, 4]]
    """
    angle, right, down, scale, shear_x, shear_y = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(one, np.float64)) for one in (angle, *translate, scale, *shear))
    )
    angle, shear_x, shear_y = np.radians(angle), np.radians(shear_x), np.radians(shear_y)
    # Forward, for a scale of 1: ((p, q), (r, s)), whose determinant is 1.
    p = np.cos(angle - shear_y) / np.cos(shear_y)
    q = -p * np.tan(shear_x) - np.sin(angle)
    r = np.sin(angle - shear_y) / np.cos(shear_y)
    s = np.cos(angle) - r * np.tan(shear_x)
    a, b, d, e = s / scale, -q / scale, -r / scale, p / scale
    middle_x, middle_y = (size[1] - 1) / 2, (size[0] - 1) / 2
    from_x, from_y = middle_x + centre[0] + right, middle_y + centre[1] + down
    c = middle_x + centre[0] - a * from_x - b * from_y
    f = middle_y + centre[1] - d * from_x - e * from_y
    rows: NDArray[np.int64] = np.rint(np.stack([a, b, c, d, e, f], axis=1) * 2.0**32).astype(np.int64)
    return rows


def checked_interpolation(operation: str, value: str) -> str:
    """Check how pixels are to be read.

    Parameters
    ----------
    operation : str
        Name of the operation, for the error.
    value : str
        Its argument `interpolation`, a string or torchvision's ``InterpolationMode``.

    Returns
    -------
    str
        "nearest" or "bilinear".

    Raises
    ------
    OptionError
        If it is neither.

    Examples
    --------
    >>> checked_interpolation("RandomRotation", "nearest")
    'nearest'
    """
    name = getattr(value, "value", value)
    if name not in {"nearest", "bilinear"}:
        raise OptionError(f"{operation}: interpolation is {value!r}; expected 'nearest' or 'bilinear'")
    return str(name)


def _warp_arrays(interpolation: str, fill: tuple[int, ...], images: NDArray[np.uint8], rows: NDArray[Any]) -> None:
    if images.shape[3] != CHANNELS or images.dtype != np.uint8:
        _warp_other_arrays(interpolation, fill, images, rows)
        return
    code = warp_nearest if interpolation == "nearest" else warp_bilinear
    chosen = np.flatnonzero((rows != IDENTITY).any(axis=1))
    Compiler.compile(code)(images, chosen, rows, np.array(fill, np.int64))


def _warp_other_arrays(interpolation: str, fill: tuple[int, ...], images: NDArray[Any], rows: NDArray[Any]) -> None:
    """The same for gray images, those with transparency, and uint16, each channel by itself."""
    code = Compiler.compile(warp_nearest if interpolation == "nearest" else warp_bilinear)
    outside = fill_of("warp", fill, images.shape[3])
    chosen = np.flatnonzero((rows != IDENTITY).any(axis=1))
    triple = np.empty((1, *images.shape[1:3], CHANNELS), np.int64)
    for number in chosen:
        for first in range(0, images.shape[3], CHANNELS):
            channels = images.shape[3] - first
            part = images[number, ..., first : first + CHANNELS]
            triple[0, ..., :channels] = part
            own = np.array([*outside[first : first + CHANNELS], 0, 0][:CHANNELS], np.int64)
            code(triple, np.zeros(1, np.intp), rows[number : number + 1], own)
            part[:] = triple[0, ..., :channels]


def warp_nearest(images: Any, chosen: Any, rows: Any, fill: Any) -> None:
    """Warp images in place, each pixel the nearest.

    Parameters
    ----------
    images : ndarray of uint8, shape (N, H, W, 3)
        Levels, changed.
    chosen : ndarray of intp, shape (R,)
        Which images.
    rows : ndarray of int64, shape (N, 6)
        Warps of all.
    fill : ndarray of int64, shape (3,)
        Levels of what comes from outside.
    """
    height, width = images.shape[1], images.shape[2]
    for number in chosen:
        image, own = images[number], rows[number]
        old = image.copy()
        for y in range(height):
            for x in range(width):
                column = (own[0] * x + own[1] * y + own[2] + (1 << 31)) >> 32
                row = (own[3] * x + own[4] * y + own[5] + (1 << 31)) >> 32
                if 0 <= column < width and 0 <= row < height:
                    for channel in range(3):
                        image[y, x, channel] = old[row, column, channel]
                else:
                    for channel in range(3):
                        image[y, x, channel] = fill[channel]


def warp_bilinear(images: Any, chosen: Any, rows: Any, fill: Any) -> None:
    """Warp images in place, each pixel weighed of four.

    Parameters
    ----------
    images : ndarray of uint8, shape (N, H, W, 3)
        Levels, changed.
    chosen : ndarray of intp, shape (R,)
        Which images.
    rows : ndarray of int64, shape (N, 6)
        Warps of all.
    fill : ndarray of int64, shape (3,)
        Levels of what comes from outside.
    """
    height, width = images.shape[1], images.shape[2]
    for number in chosen:
        image, own = images[number], rows[number]
        old = image.copy()
        for y in range(height):
            for x in range(width):
                across = (own[0] * x + own[1] * y + own[2] + (1 << 20)) >> 21
                down = (own[3] * x + own[4] * y + own[5] + (1 << 20)) >> 21
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
        own = torch.from_numpy(part).to(images.device)
        warps = torch.from_numpy(np.ascontiguousarray(rows[part].T)).to(images.device).view(6, -1, 1, 1)
        warped = _read(interpolation, images[own].to(wide), warps, outside).to(images.dtype)
        writable(images)[own] = writable(warped)


def _read(interpolation: str, levels: Any, warps: Any, outside: Any) -> Any:
    """The warped images, of the levels' shape (R, H, W, C) and type."""
    import torch

    height, width = levels.shape[1:3]
    y = torch.arange(height, device=levels.device).view(-1, 1)
    x = torch.arange(width, device=levels.device)
    across, down = (warps[first] * x + warps[first + 1] * y + warps[first + 2] for first in (0, 3))

    def at(column: Any, row: Any) -> Any:
        is_inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        places = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
        found = (
            levels.flatten(1, 2)
            .gather(1, places.flatten(1).unsqueeze(2).expand(-1, -1, levels.shape[3]))
            .view(levels.shape)
        )
        return torch.where(is_inside.unsqueeze(3), found, outside)

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
