"""Launches of the kernels that make images from JPEGs with entry points, and the memory that they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton.gpu.device_structs import JPEG
from gpubeton.gpu.memory_layout import round_up
from gpubeton.plan import jpeg_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpubeton.gpu.cuda import Device, Stream

_THREADS = 128
_AXES = 4
_BLOCK = 64
# Blocks of 8 x 8 that a block of threads of jpeg_idct.cu transforms at a time, and how often.
_TRANSFORMED = 16
_TIMES = 4
# Output rows that a block of threads of jpeg_down.cu makes.
_ROWS = 8

# Columns of `JpegParts.rows` that the kernels read, too.
_SAME = ("height", "width", "components", "luma_across", "luma_down", "every", "is_restarted", "num_entries",
         "first_row", "first_column", "rows", "columns")  # fmt: skip


class JpegOutput(NamedTuple):
    """What JPEGs become: the same for all images of a launch; addresses are of the device."""

    rule: int  # `Rule` of kernels/taps.cuh
    height: int
    width: int
    fills: int  # uint8 (F, 3)
    table: int  # uint32 (256, 3), or 0: levels stay
    item_size: int
    out: int  # (rows, height, width, 3)


class JpegImages(NamedTuple):
    """Images of one launch: device addresses of their description, and numbers."""

    num_images: int
    jpegs: int  # JPEG (num_images,)
    tables: int  # uint8 (T, 4, 272)
    groups: int  # int32 (num_groups, 3)
    num_groups: int
    intervals: int  # int32 (M, 2)
    draws: int  # int32 (num_images, columns)
    columns: int
    most: int  # int32 (num_images, 4), zeros
    most_taps: int
    status: int  # int32 (num_images,), zeros
    most_blocks: int  # blocks of the largest window
    taps: int  # memory of `taps_nbytes`


def window_blocks(rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count the blocks of each image's window; `rows` as in `JpegParts`."""
    own = rows.astype(np.int64)
    in_mcu = own[:, jpeg_parts.LUMA_ACROSS] * own[:, jpeg_parts.LUMA_DOWN] + own[:, jpeg_parts.COMPONENTS] - 1
    return own[:, jpeg_parts.ROWS] * own[:, jpeg_parts.COLUMNS] * in_mcu


def window_nbytes(rows: NDArray[np.int32], width: int) -> NDArray[np.int64]:  # (N, 3)
    """Bytes of each image's coefficients, samples, and samples resampled to `width` columns."""
    own, blocks = rows.astype(np.int64), window_blocks(rows)
    lines = own[:, jpeg_parts.ROWS] * (own[:, jpeg_parts.LUMA_DOWN] + own[:, jpeg_parts.COMPONENTS] - 1)
    resampled = 2 * 8 * lines * (width + width % 2)
    sizes = np.stack([2 * _BLOCK * blocks, _BLOCK * blocks, resampled], axis=1)
    return np.asarray(-(-sizes // 16) * 16)


def taps_nbytes(count: int, height: int, width: int, most_taps: int) -> tuple[int, int, int]:
    """Bytes of first samples, weights and numbers of taps, as kernels/jpeg_taps.cuh has them."""
    entries = count * _AXES * max(height, width)
    return round_up(4 * entries), round_up(2 * most_taps * entries), round_up(4 * entries)


def split_bands(nbytes: NDArray[np.int64], budget: int) -> Iterator[slice]:
    """Split images, which need so many bytes each, into bands that fit into a budget; a larger one is alone."""
    stop = np.cumsum(nbytes)
    start = 0
    while start < len(nbytes):
        before = int(stop[start - 1]) if start else 0
        end = max(int(np.searchsorted(stop, before + budget, side="right")), start + 1)
        yield slice(start, end)
        start = end


def describe_jpegs(
    rows: NDArray[np.int32],  # (N, PART_COLUMNS)
    places: NDArray[np.uint64],  # (N,) device addresses of their bytes
    size: NDArray[np.uint64],  # (N,)
    entries: NDArray[np.uint64],  # (N,) device addresses of their entry points
    quantization: int,  # device address of uint8 (N, 3, 64)
    window: int,  # device address of the memory of `window_nbytes`
    nbytes: NDArray[np.int64],  # (N, 3) from `window_nbytes`
    batch_rows: NDArray[Any],  # (N,) rows of the batch
) -> NDArray[np.void]:  # (N,) JPEG
    """Describe JPEGs for the kernels."""
    jpegs = np.zeros(len(rows), JPEG)
    for name in _SAME:
        jpegs[name] = rows[:, getattr(jpeg_parts, name.upper())]
    jpegs["bytes"], jpegs["size"], jpegs["entries"], jpegs["row"] = places, size, entries, batch_rows
    jpegs["quantization"] = np.uint64(quantization) + np.arange(len(rows), dtype=np.uint64) * np.uint64(3 * _BLOCK)
    stops = np.cumsum(nbytes.reshape(-1)).reshape(nbytes.shape).astype(np.uint64)
    starts = stops - nbytes.astype(np.uint64) + np.uint64(window)
    jpegs["coefficients"], jpegs["samples"], jpegs["resampled"] = starts.T
    return jpegs


def launch_jpegs(device: Device, images: JpegImages, output: JpegOutput, stream: Stream) -> None:
    """Decode the windows of JPEGs, resample, paint and store them."""
    count = images.num_images
    if count == 0:
        return

    def launch(kernel: str, blocks: int, arguments: list[Any]) -> None:
        device.launch(kernel, (max(blocks, 1) * count, 1, 1), (_THREADS, 1, 1), arguments, stream)

    height, width, side = output.height, output.width, max(output.height, output.width)
    jpegs, status, number = np.uint64(images.jpegs), np.uint64(images.status), np.int32(count)
    first_nbytes, weights_nbytes, _ = taps_nbytes(count, height, width, images.most_taps)
    weights = images.taps + first_nbytes
    made = [*map(np.uint64, (images.taps, weights, weights + weights_nbytes, images.most))]
    draws, size = [np.uint64(images.draws), np.int32(images.columns)], [np.int32(height), np.int32(width)]
    taps = [number, np.int32(images.most_taps), *made]
    launch("jpeg_taps", -(-2 * side // _THREADS), [jpegs, *draws, np.int32(output.rule), *size, *taps])
    if images.num_groups:
        lists = map(np.uint64, (images.tables, images.groups, images.intervals))
        grid = (images.num_groups, 1, 1)
        device.launch("jpeg_huffman", grid, (jpeg_parts.GROUP, 1, 1), [jpegs, *lists, status], stream)
    launch("jpeg_idct", -(-images.most_blocks // (_TRANSFORMED * _TIMES)), [jpegs, number, status])
    # Eights of rows are fewer than blocks.
    eights = min(images.most_blocks, 64) * -(-width // _THREADS)
    launch("jpeg_across", eights, [jpegs, *draws, *size, *taps])
    finish = [np.uint64(output.fills), np.uint64(output.table), np.int32(output.item_size), np.uint64(output.out)]
    launch("jpeg_down", -(-height // _ROWS), [jpegs, *draws, *size, *taps, *finish, status])
