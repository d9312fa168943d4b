"""Resizing parts of tensors where they lie, on a GPU or the CPU, to the same levels as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.pipeline.pixel_type import dtype_name
from gpubeton.transforms.area_resize import Taps, crop_taps, nearest_places
from gpubeton.transforms.layout import writable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_PIXELS_AT_ONCE = 1 << 22
"""Pixels of a batch that are worked on together; each channel takes a few numbers of 32 bits for each."""


def resize_tensors(images: Any, boxes: NDArray[np.int32], size: tuple[int, int]) -> Any:
    """Resize a part of each image of a batch as `resize_crops` does.

    Products and sums are made in single precision, in the same order, and each by itself: levels agree to the bit.

    Parameters
    ----------
    images : torch.Tensor, shape (N, H, W, C)
        Levels, uint8 or uint16, or floating point numbers (float64 in double precision); any strides and device.
    boxes : ndarray of int32, shape (N, 4)
        Top, left, height and width of each part, in pixels; inside the image.
    size : tuple of int
        Height and width of the results in pixels.

    Returns
    -------
    torch.Tensor, shape (N, height, width, C)
        A new batch of the same type, on the same device.

    Examples
    --------
    >>> import torch
    >>> images = torch.tensor([0, 60, 90, 200], dtype=torch.uint8).view(1, 1, 4, 1)
    >>> resize_tensors(images, np.array([[0, 0, 1, 3]], "int32"), (1, 2)).flatten().tolist()
    [20, 80]
    """
    return _in_groups(images, boxes, size, _resized)


def pick_tensors(images: Any, boxes: NDArray[np.int32], size: tuple[int, int]) -> Any:
    """Resize a part of each image of a batch as `pick_crops` does.

    Parameters
    ----------
    images : torch.Tensor, shape (N, H, W, C)
        Of any type, strides and device.
    boxes : ndarray of int32, shape (N, 4)
        Top, left, height and width of each part, in pixels; inside the image.
    size : tuple of int
        Height and width of the results in pixels.

    Returns
    -------
    torch.Tensor, shape (N, height, width, C)
        A new batch of the same type, on the same device.

    Examples
    --------
    >>> import torch
    >>> images = torch.tensor([0, 60, 90, 200], dtype=torch.uint8).view(1, 1, 4, 1)
    >>> pick_tensors(images, np.array([[0, 0, 1, 3]], "int32"), (1, 2)).flatten().tolist()
    [0, 90]
    """
    return _in_groups(images, boxes, size, _picked)


def _in_groups(images: Any, boxes: NDArray[np.int32], size: tuple[int, int], change: Callable[..., Any]) -> Any:
    out = images.new_empty((len(boxes), *size, images.shape[3]))
    at_once = max(1, _PIXELS_AT_ONCE // max(images.shape[1] * images.shape[2], size[0] * size[1]))
    for first in range(0, len(boxes), at_once):
        part = slice(first, first + at_once)
        out[part] = change(images[part], boxes[part], size)
    return out


def _resized(images: Any, boxes: NDArray[np.int32], size: tuple[int, int]) -> Any:
    import torch

    name = dtype_name(images.dtype)
    wide = torch.float64 if name == "float64" else torch.float32
    taps = [crop_taps(box, size) for box in boxes.tolist()]
    # Rows of the parts alone: all that stand in one of them, the last of shorter parts again and again.
    rows = boxes[:, :1] + np.minimum(np.arange(boxes[:, 2].max()), boxes[:, 2:3] - 1)
    parts = _gathered(images.to(wide), 1, _on(images, rows))
    narrow = _weighed(parts, 2, _packed([across for _, across in taps], boxes[:, 1]), wide)
    total = _weighed(narrow, 1, _packed([down for down, _ in taps], np.zeros(len(boxes), np.int32)), wide)
    if name not in ("uint8", "uint16"):
        return total.to(images.dtype)
    is_halved = _on(images, (boxes[:, 2] == 2 * size[0]) & (boxes[:, 3] == 2 * size[1])).view(-1, 1, 1, 1)
    levels = torch.where(is_halved, (total + 0.5).floor(), total.round())
    return levels.clamp(0, 255 if name == "uint8" else 65535).to(images.dtype)


def _weighed(images: Any, axis: int, taps: tuple[NDArray[np.int64], NDArray[np.float32]], wide: Any) -> Any:
    """Sums along an axis, tap by tap: a product of matrices would add in an order of its own."""
    places, weights = (_on(images, values) for values in taps)
    shape = [len(images), 1, 1, 1]
    shape[axis] = places.shape[1]
    total: Any = 0
    for tap in range(places.shape[2]):
        # Two steps, which no device makes one of that rounds once.
        product = _gathered(images, axis, places[:, :, tap]) * weights[:, :, tap].to(wide).view(shape)
        total = product if tap == 0 else total + product
    return total


def _packed(taps: list[Taps], start: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Places and weights of all taps, (N, output, taps); images with fewer read their last place again, times zero."""
    most = max(own.weights.shape[1] for own in taps)
    places = np.empty((len(taps), len(taps[0].first), most), np.int64)
    weights = np.zeros(places.shape, np.float32)
    for number, own in enumerate(taps):
        count = own.weights.shape[1]
        places[number] = start[number] + own.first[:, None] + np.minimum(np.arange(most), count - 1)
        weights[number, :, :count] = own.weights
    return places, weights


def _picked(images: Any, boxes: NDArray[np.int32], size: tuple[int, int]) -> Any:
    down, across = nearest_places(boxes, size)
    bits = writable(images)
    picked = _gathered(_gathered(bits, 1, _on(images, down)), 2, _on(images, across))
    return picked.view(images.dtype)


def _gathered(images: Any, axis: int, places: Any) -> Any:
    """The rows (axis 1) or columns (2) of each image that stand at its own places, shape (N, places)."""
    shape = [len(images), 1, 1, 1]
    shape[axis] = places.shape[1]
    whole = list(images.shape)
    whole[axis] = places.shape[1]
    return images.gather(axis, places.view(shape).expand(whole))


def _on(images: Any, values: NDArray[Any]) -> Any:
    """The values as a tensor beside the images; whole numbers as torch's indices."""
    import torch

    wanted = values.astype(np.int64) if values.dtype.kind == "i" else values
    return torch.from_numpy(np.ascontiguousarray(wanted)).to(images.device)
