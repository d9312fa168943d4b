"""The parts of JPEGs that a decoder from entry points decodes: what the CPU finds out, for the GPU to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Columns of `JpegParts.rows`, int32; EVERY is 0 if the decoder cannot decode an image, and other columns count nothing.
HEIGHT = 0  # in pixels
WIDTH = 1
COMPONENTS = 2  # 1 or 3
LUMA_ACROSS = 3  # luma blocks of an MCU, side by side: 1 or 2
LUMA_DOWN = 4  # and one above the other
EVERY = 5  # MCUs from one entry point to the next
IS_RESTARTED = 6  # 1: the entry points are restart intervals
NUM_ENTRIES = 7
FIRST_ROW = 8  # of the window: the MCUs that the crop needs
FIRST_COLUMN = 9
ROWS = 10
COLUMNS = 11
NUM_INTERVALS = 12  # stretches from one entry point to the next that the window needs
SCAN = 13  # offset of the compressed data
PART_COLUMNS = 14

TABLE_BYTES = 16 + 256
"""Bytes of a Huffman table: 16 numbers of codes, and the symbols."""


class JpegParts(NamedTuple):
    """What a decoder from entry points needs to know of N images."""

    rows: NDArray[np.int32]  # (N, PART_COLUMNS)
    quantization: NDArray[np.uint8]  # (N, 3, 64): factors of each component, by rows
    tables: NDArray[np.uint8]  # (T, 4, TABLE_BYTES): sets of Huffman tables: DC and AC of Y, DC and AC of Cb and Cr
    table_of: NDArray[np.int32]  # (N,): the set of each image


class Intervals(NamedTuple):
    """The intervals of some images, in groups of similar size that use the same tables."""

    entries: NDArray[np.uint8]  # (E, 10): ENTRY of all images
    first_entry: NDArray[np.int64]  # (N,): the first of each image
    intervals: NDArray[np.int32]  # (M, 2): image and entry
    groups: NDArray[np.int32]  # (G, 3): set of tables, first interval and number of intervals


GROUP = 64
"""Most intervals of a group."""
