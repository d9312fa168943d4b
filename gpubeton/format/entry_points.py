"""Entry points: places inside JPEGs where decoding can begin, so that a crop needs a part of the data only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ENTRY", "EVERY", "EntryPoints"]

EVERY = 8
"""MCUs from one entry point of an image to the next, in the order of the scan."""

ENTRY = np.dtype([("bit", "<u4"), ("dc", "<i2", 3)])
"""An entry point: the first bit of an MCU, and the DC values of the three components before it.

Bits are counted from the first byte of the JPEG as it is stored; bit 0 of a byte is its highest. No entry point lies in
a stuffed zero byte.
"""


class EntryPoints:
    """The entry points of the images of one field."""

    def __init__(
        self,
        first: NDArray[np.uint64],  # (N + 1,) number of the first entry of each image, and of all entries
        seals: NDArray[np.uint32],  # (N,) see `gpubeton.cpu.jpeg.entries.seal_of`
        entries: NDArray[np.void],  # (M,) ENTRY, contiguous
    ) -> None:
        self.first, self.seals, self.entries = first, seals, entries
        self.counts = np.diff(first).astype(np.int32)  # (N,)
        addresses = entries.ctypes.data + first[:-1] * np.uint64(ENTRY.itemsize)
        self.addresses = np.where(self.counts > 0, addresses, np.uint64(0))  # (N,)

    def of(self, samples: NDArray[Any]) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint32]]:
        """Give address (N,), number of entries (N,) and seal (N,) of some images; address and number are 0 for none."""
        return self.addresses[samples], self.counts[samples], self.seals[samples]
