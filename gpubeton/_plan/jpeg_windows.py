"""The windows of JPEGs that a decoder from entry points decodes: what the CPU finds out, for the GPU to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

# Columns of `CropWindows.rows`, int32; EVERY is 0 if the decoder cannot decode an image: the others mean nothing.
HEIGHT = 0  # in pixels
WIDTH = 1
COMPONENTS = 2  # 1 or 3
LUMA_ACROSS = 3  # luma blocks of an MCU, side by side: 1 or 2
LUMA_DOWN = 4  # and one above the other
EVERY = 5  # MCUs from one entry point to the next
IS_RESTARTED = 6  # 1: the entry points are restart intervals
NUM_ENTRIES = 7
SCAN = 8  # offset of the compressed data
ENTRY_DIGEST = 9  # a hash of the entry points, unless they are restart intervals
HEADER_COLUMNS = 10  # those before are the same for every crop
FIRST_ROW = 10  # of the window: the MCUs that the crop needs
FIRST_COLUMN = 11
ROWS = 12
COLUMNS = 13
NUM_INTERVALS = 14  # stretches from one entry point to the next that the window needs
FIRST_ENTRY = 15  # the entry points with which they begin and end: the first, and the last + 1
STOP_ENTRY = 16
BEGIN = 17  # the bytes of all these intervals, and of what lies between them: the first, and the last + 1
STOP = 18
WINDOW_COLUMNS = 19

TABLE_BYTES = 16 + 256
"""Bytes of a Huffman table: 16 numbers of codes, and the symbols."""


class CropWindows(NamedTuple):
    """What a decoder from entry points needs to know of N images."""

    rows: NDArray[np.int32]  # (N, WINDOW_COLUMNS)
    quantization: NDArray[np.uint8]  # (N, 3, 64): factors of each component, by rows
    tables: NDArray[np.uint8]  # (T, 4, TABLE_BYTES): sets of Huffman tables: DC and AC of Y, DC and AC of Cb and Cr
    table_of: NDArray[np.int32]  # (N,): the set of each image

    def take(self, which: Any) -> CropWindows:
        """Take some of the images."""
        return CropWindows(self.rows[which], self.quantization[which], self.tables, self.table_of[which])


class Intervals(NamedTuple):
    """The intervals of some images, in groups of similar size that use the same tables."""

    entries: NDArray[np.uint8]  # (E, 10): ENTRY_DTYPE, those that the windows need of all images
    first_entry: NDArray[np.int64]  # (N,): where the first of each image is, or would be; it may be negative
    intervals: NDArray[np.int32]  # (M, 2): image and entry
    groups: NDArray[np.int32]  # (G, 3): set of tables, first interval and number of intervals


GROUP = 128
"""Most intervals of a group: the threads of a block, which share its tables."""


class ReadJpegs(Protocol):
    """Reads JPEGs in memory for a decoder from entry points; see `gpubeton._cpu.jpeg.entries.JpegReader`."""

    def read(
        self,
        address: NDArray[np.uint64],
        size: NDArray[np.uint64],
        height: NDArray[np.int32],
        width: NDArray[np.int32],
        entries: NDArray[np.uint64],
        num_entries: NDArray[np.int32],
        seals: NDArray[np.uint32],
        draws: NDArray[np.int32],
    ) -> CropWindows:
        """Read the headers, and find out which MCUs the crops need."""
        ...

    def place_crops(self, parts: CropWindows, draws: NDArray[np.int32]) -> None:
        """Find out which MCUs other crops of the same images need; changes the rows."""
        ...

    def list_intervals(
        self, address: NDArray[np.uint64], size: NDArray[np.uint64], entries: NDArray[np.uint64], parts: CropWindows
    ) -> Intervals:
        """List the intervals that crops need."""
        ...

    def list_known(
        self, size: NDArray[np.uint64], first_entry: NDArray[np.int64], entries: NDArray[np.uint8], parts: CropWindows
    ) -> Intervals:
        """List the intervals that crops need, of images with known entry points."""
        ...


def window_blocks(rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count the blocks of each image's window; `rows` as in `CropWindows`."""
    columns = rows.astype(np.int64)
    in_mcu = columns[:, LUMA_ACROSS] * columns[:, LUMA_DOWN] + columns[:, COMPONENTS] - 1
    return columns[:, ROWS] * columns[:, COLUMNS] * in_mcu


def window_nbytes(rows: NDArray[np.int32], width: int) -> NDArray[np.int64]:  # (N, 3)
    """Bytes of each image's coefficients, samples, and samples resampled to `width` columns."""
    columns, blocks = rows.astype(np.int64), window_blocks(rows)
    lines = columns[:, ROWS] * (columns[:, LUMA_DOWN] + columns[:, COMPONENTS] - 1)
    resampled = 2 * 8 * lines * (width + width % 2)
    return aligned(np.stack([2 * 64 * blocks, 64 * blocks, resampled], axis=1))


def aligned(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """Round numbers of bytes up to multiples of 16."""
    return np.asarray(-(-sizes.astype(np.int64) // 16) * 16)


def split_bands(nbytes: NDArray[np.int64], budget: int) -> Iterator[slice]:
    """Split images, which need so many bytes each, into bands that fit into a budget; a larger one is alone."""
    stop = np.cumsum(nbytes)
    start = 0
    while start < len(nbytes):
        before = int(stop[start - 1]) if start else 0
        end = max(int(np.searchsorted(stop, before + budget, side="right")), start + 1)
        yield slice(start, end)
        start = end
