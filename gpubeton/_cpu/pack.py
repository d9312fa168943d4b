"""Copy many places in memory: samples into rows of an array, regions and crops into page-locked memory for a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton._compile.compile import compiled
from gpubeton._compile.intrinsics import clear, copy, signed
from gpubeton._plan.draw_rows import HEIGHT, LEFT, TOP, WIDTH

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array


@compiled
def gather_rows(
    address: Array,  # (N,) uint64
    size: Array,  # (N,) uint64: bytes of each sample; only the first `width` are copied
    out: Array,  # (N, width) uint8, C-contiguous, written
) -> None:
    """Copy each sample's bytes into its row, and fill the rest of the row with zeros."""
    width = out.shape[1]
    for i in range(out.shape[0]):
        count = min(signed(size[i]), width)
        row = out.ctypes.data + i * width
        copy(row, int(address[i]), count)
        clear(row + count, width - count)


@compiled
def pack_regions(
    address: Array,  # (N,) uint64
    size: Array,  # (N,) uint64: bytes
    target: Array,  # (N,) uint64: addresses
) -> None:
    """Copy regions of memory."""
    for i in range(address.shape[0]):
        copy(int(target[i]), int(address[i]), int(size[i]))


@compiled
def pack_crops(
    address: Array,  # (N,) uint64: first pixel of each image, uint8 RGB
    width: Array,  # (N,) int32: its width in pixels
    draws: Array,  # (N, columns) int32: crop boxes inside the images, see `gpubeton._plan.draw_rows`
    target: Array,  # (N,) uint64: addresses for ``pitch * HEIGHT`` bytes each
    pitch: Array,  # (N,) int32: bytes from one row of the target to the next; bytes between rows do not change
) -> None:
    """Copy only the crops of raw-stored images."""
    for i in range(address.shape[0]):
        line = 3 * draws[i, WIDTH]
        source = int(address[i]) + (draws[i, TOP] * width[i] + draws[i, LEFT]) * 3
        for y in range(draws[i, HEIGHT]):
            copy(int(target[i]) + y * pitch[i], source + y * 3 * width[i], line)
