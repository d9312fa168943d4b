"""Samples that are encoded together: the sizes of their regions, and where they go in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class SkippedRow:
    """A sample that was left out, because it could not be read or encoded."""

    row: int  # of the file if no sample were left out
    reason: str


@dataclass(frozen=True)
class RegionSizes:
    """Sizes of the regions of some samples, in the order of the file."""

    # FFCV finds a region by its pointer alone. So an empty region takes one byte of room: otherwise the next region
    # would begin at the same place, and FFCV would read it with a size of 0.

    counts: NDArray[np.int64]  # (N,) regions of each sample
    sizes: NDArray[np.int64]  # (R,) bytes of each region
    checksums: NDArray[np.uint32] | None = None  # (R,) CRC-32 of each region
    skipped: tuple[SkippedRow, ...] = ()  # not among the N
    changes: dict[str, list[int]] = field(default_factory=dict)  # losses, by their rows, as in `skipped`

    @property
    def owners(self) -> NDArray[np.int64]:
        """The sample of each region, counted from 0: shape (R,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def room_of_samples(self) -> NDArray[np.int64]:
        """Bytes that each sample takes in a page: shape (N,)."""
        return np.bincount(self.owners, np.maximum(self.sizes, 1), len(self.counts)).astype(np.int64)

    def pointers(self, offset: NDArray[np.integer]) -> NDArray[np.uint64]:
        """Compute the offset of each region, shape (R,), from that of each sample, shape (N,)."""
        room, of_samples = np.maximum(self.sizes, 1), self.room_of_samples
        start = np.cumsum(room) - room - np.repeat(np.cumsum(of_samples) - of_samples, self.counts)  # in the sample
        pointers: NDArray[np.uint64] = np.repeat(offset.astype(np.uint64), self.counts)
        return pointers + start.astype(np.uint64)


@dataclass(frozen=True)
class ChunkPlace:
    """Where the samples of a chunk go."""

    first_row: int  # less than the first row of its task if samples were left out before
    offset: NDArray[np.uint64]  # (N,) of each sample in the file
