"""Resizing as OpenCV's INTER_AREA does it: means over areas where images shrink, two pixels where they grow.

Arrays and tensors get the same levels to the bit: products and sums are made in single precision, one by one and in the
order of the pixels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._batch.image_batch import as_nchw, as_nhwc, as_tensor, is_nchw, writable
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.pixel_type import dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

SLIVER = 1e-3  # smaller shares of a pixel are left out, as OpenCV does (resize.cpp, computeResizeAreaTab)
AT_ONCE = 1 << 22  # pixels that are resized together; each channel takes a few numbers of 32 bits for each
LEVELS = ("uint8", "uint16")


def crop_and_resize(batch: Any, boxes: NDArray[np.int32], size: tuple[int, int], *, is_nearest: bool) -> Any:
    """Resize a part, (N, 4) top, left, height and width, of each image; return a new batch with the same axes."""
    images = as_nhwc(batch)
    is_array = isinstance(images, np.ndarray)
    # Compiled code for levels on the CPU is several times as fast as torch's steps.
    is_here = is_array or images.device.type == "cpu"
    if is_here and Compiler.is_enabled and dtype_name(images.dtype) in LEVELS:
        levels = images if is_array else images.numpy()
        resized: Any = np.empty((len(boxes), *size, levels.shape[3]), levels.dtype)
        (pick_crops if is_nearest else resize_crops)(levels, boxes, resized)
    else:
        resized = resize_tensors(as_tensor(images), boxes, size, is_nearest=is_nearest)
    if is_array:
        return resized if isinstance(resized, np.ndarray) else resized.numpy()
    tensor = as_tensor(resized)
    return as_nchw(tensor) if is_nchw(batch) else tensor


class Taps(NamedTuple):
    """The source pixels and weights of each pixel of a resized row or column."""

    first: NDArray[np.int32]  # (output,) first source pixel, counted from the start of the part
    weights: NDArray[np.float32]  # (output, taps) of that pixel and the next ones


def resize_crops(images: NDArray[Any], boxes: NDArray[np.int32], out: NDArray[Any]) -> None:
    """Resize a part, (N, 4), of each image of a batch of levels, (N, H, W, C), to `out`, (N, h, w, C)."""
    resize = _compiled_resize(out.shape[3], np.iinfo(out.dtype).max)
    height, width = out.shape[1:3]
    for image, (top, left, rows, columns), target in zip(images, boxes.tolist(), out, strict=True):
        down, across = crop_taps((top, left, rows, columns), (height, width))
        # OpenCV rounds halves up in blocks of 2 x 2 and to even in all others.
        is_halved = rows == 2 * height and columns == 2 * width
        resize(image[top : top + rows, left : left + columns], *down, *across, is_halved, target)


def pick_crops(images: NDArray[Any], boxes: NDArray[np.int32], out: NDArray[Any]) -> None:
    """Do the same by taking the pixel at the center of each new one."""
    height, width = out.shape[1:3]
    for image, down, across, target in zip(images, *nearest_places(boxes, (height, width)), out, strict=True):
        target[:] = image[down[:, None], across]


def nearest_places(boxes: NDArray[np.int32], size: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the rows, (N, height), and columns of boxes, (N, 4), in which the centers of new pixels lie."""
    corners, sides = boxes[:, :2].astype(np.int64), boxes[:, 2:].astype(np.int64)
    rows, columns = (
        corners[:, axis, None] + (2 * np.arange(length) + 1) * sides[:, axis, None] // (2 * length)
        for axis, length in enumerate(size)
    )
    return rows, columns


def crop_taps(box: Sequence[int], size: tuple[int, int]) -> tuple[Taps, Taps]:
    """Return the taps of a resized part, those down and those across."""
    _, _, rows, columns = box
    grows = rows < size[0] or columns < size[1]
    return _taps(rows, size[0], grows=grows), _taps(columns, size[1], grows=grows)


def _compiled_resize(channels: int, most: int) -> Callable[..., Any]:
    def resize(source: Any, top: Any, down: Any, left: Any, across: Any, is_halved: bool, out: Any) -> None:
        """Resize one image: its rows first, then across them, in single precision and in the order of the pixels."""
        narrow = np.empty((source.shape[0], out.shape[1], channels), np.float32)
        for y in range(source.shape[0]):
            for x in range(out.shape[1]):
                for channel in range(channels):
                    total = np.float32(0)
                    for k in range(across.shape[1]):
                        total += np.float32(source[y, left[x] + k, channel]) * across[x, k]
                    narrow[y, x, channel] = total
        for y in range(out.shape[0]):
            for x in range(out.shape[1]):
                for channel in range(channels):
                    total = np.float32(0)
                    for k in range(down.shape[1]):
                        total += narrow[top[y] + k, x, channel] * down[y, k]
                    level = np.floor(total + np.float32(0.5)) if is_halved else np.rint(total)
                    out[y, x, channel] = min(max(level, np.float32(0)), np.float32(most))

    # Exact, so that a GPU gets the same levels: fast arithmetic reorders, and rounds a product and a sum once.
    return Compiler.compile_exact(resize)


@lru_cache(maxsize=1024)
def _taps(size: int, output: int, *, grows: bool) -> Taps:
    """Return the taps that turn `size` pixels into `output`; `grows` is true if any side of the image does."""
    shares = _two_pixels(size, output) if grows else _areas(size, output)
    # As many for each, inside the line: those at its end begin earlier, with zeros in front.
    position, weights = shares
    most = int((weights > 0).sum(axis=1).max())
    begin = np.where(weights > 0, position, size).min(axis=1)
    first = np.minimum(begin, size - most)
    packed = np.zeros((output, most + 1), np.float64)
    np.add.at(packed, (np.arange(output)[:, None], np.where(weights > 0, position - first[:, None], most)), weights)
    return Taps(first.astype(np.int32), packed[:, :most].astype(np.float32))


def _areas(size: int, output: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the pixels that each new pixel covers, and their shares: both (output, taps)."""
    scale = size / output
    start = np.arange(output)[:, None] * scale
    stop = np.minimum(start + scale, size)
    position = np.floor(start).astype(np.intp) + np.arange(int(np.ceil(scale)) + 1)
    covered = np.minimum(stop, position + 1) - np.maximum(start, position)
    covered[(covered <= SLIVER) | (position >= size)] = 0
    return np.minimum(position, size - 1), covered / np.minimum(scale, size - start)


def _two_pixels(size: int, output: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return OpenCV's taps for images that grow: two pixels, mixed only where a new pixel covers both."""
    index = np.arange(output)
    inverse = output / size
    first = np.floor(index * (1.0 / inverse)).astype(np.intp)  # rounded twice, as OpenCV does
    share = ((index + 1) - (first + 1) * inverse).astype(np.float32).astype(np.float64)
    share = np.where(share <= 0, 0, share - np.floor(share))
    first = np.minimum(first, size - 1)
    return np.minimum(first[:, None] + [0, 1], size - 1), np.stack([1 - share, share], axis=1)


def resize_tensors(
    images: Any, boxes: NDArray[np.int32], size: tuple[int, int], at_once: int = AT_ONCE, *, is_nearest: bool = False
) -> Any:
    """Resize a part of each image of any type and device as `resize_crops` does, or `pick_crops`, to the bit."""
    change = _picked if is_nearest else _resized
    out = images.new_empty((len(boxes), *size, images.shape[3]))
    step = max(1, at_once // max(images.shape[1] * images.shape[2], size[0] * size[1]))
    for first in range(0, len(boxes), step):
        part = slice(first, first + step)
        out[part] = change(images[part], boxes[part], size)
    return out


def _resized(images: Any, boxes: NDArray[np.int32], size: tuple[int, int]) -> Any:
    import torch

    name = dtype_name(images.dtype)
    wide = torch.float64 if name == "float64" else torch.float32
    taps = [crop_taps(box, size) for box in boxes.tolist()]
    # Only the rows of the parts; shorter parts repeat their last row.
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
    """Sum along an axis, tap by tap: a matrix product would add in another order."""
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
    """Return places and weights of all taps, (N, output, taps); images with fewer repeat their last place, times 0."""
    most = max(axis_taps.weights.shape[1] for axis_taps in taps)
    places = np.empty((len(taps), len(taps[0].first), most), np.int64)
    weights = np.zeros(places.shape, np.float32)
    for number, axis_taps in enumerate(taps):
        count = axis_taps.weights.shape[1]
        places[number] = start[number] + axis_taps.first[:, None] + np.minimum(np.arange(most), count - 1)
        weights[number, :, :count] = axis_taps.weights
    return places, weights


def _picked(images: Any, boxes: NDArray[np.int32], size: tuple[int, int]) -> Any:
    down, across = nearest_places(boxes, size)
    bits = writable(images)
    picked = _gathered(_gathered(bits, 1, _on(images, down)), 2, _on(images, across))
    return picked.view(images.dtype)


def _gathered(images: Any, axis: int, places: Any) -> Any:
    """Return the rows (axis 1) or columns (2) of each image at its places, (N, places)."""
    shape = [len(images), 1, 1, 1]
    shape[axis] = places.shape[1]
    whole = list(images.shape)
    whole[axis] = places.shape[1]
    return images.gather(axis, places.view(shape).expand(whole))


def _on(images: Any, values: NDArray[Any]) -> Any:
    """Return the values as a tensor on the device of the images; integers as int64, for indices."""
    import torch

    converted = values.astype(np.int64) if values.dtype.kind == "i" else values
    return torch.from_numpy(np.ascontiguousarray(converted)).to(images.device)
