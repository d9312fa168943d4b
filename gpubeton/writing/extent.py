"""Extent: how large the regions of some samples are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Extent", "Refusal"]


@dataclass(frozen=True)
class Refusal:
    """A sample that was left out, because it could not be taken or encoded.

    Parameters
    ----------
    index : object
        Its index in the dataset.
    reason : str
        What happened.
    """

    index: Any
    reason: str


@dataclass(frozen=True)
class Extent:
    """How large the regions of some samples are, in the order in which they follow each other.

    An empty region takes one byte of room, so that no two regions begin at the
    same place: FFCV looks regions up by their pointer alone, and would read the
    neighbour of an empty one with a size of 0.

    Parameters
    ----------
    counts : ndarray of int64, shape (N,)
        Number of regions of each sample.
    sizes : ndarray of int64, shape (R,)
        Bytes of each region, sample by sample.
    checksums : ndarray of uint32, shape (R,), optional
        CRC-32 of each region, where they are wanted.
    refused : tuple of Refusal
        Samples that were left out; they are not among the N.
    remarks : dict of str to int
        What the dataset has to say of the others, and of how many.

    Examples
    --------
    >>> extent = Extent.of([[10, 0], [], [5]])
    >>> extent.room_of_samples.tolist(), extent.pointers(np.array([100, 111, 111])).tolist()
    ([11, 0, 5], [100, 110, 111])
    """

    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    checksums: NDArray[np.uint32] | None = None
    refused: tuple[Refusal, ...] = ()
    remarks: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, samples: Sequence[Sequence[int]]) -> Extent:
        """Make an extent from the sizes of each sample.

        Parameters
        ----------
        samples : sequence of sequence of int
            Bytes of each region, for each sample.

        Returns
        -------
        Extent
            The same as arrays.
        """
        counts = np.fromiter((len(sizes) for sizes in samples), np.int64, len(samples))
        return cls(counts, np.fromiter((size for sizes in samples for size in sizes), np.int64, int(counts.sum())))

    @property
    def owners(self) -> NDArray[np.int64]:
        """The sample of each region, counted from 0: shape (R,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def room_of_samples(self) -> NDArray[np.int64]:
        """Bytes that each sample takes in a page: shape (N,)."""
        ends = np.concatenate([[0], np.cumsum(np.maximum(self.sizes, 1))])
        last = np.cumsum(self.counts)
        room: NDArray[np.int64] = ends[last] - ends[last - self.counts]
        return room

    def pointers(self, offset: NDArray[np.integer]) -> NDArray[np.uint64]:
        """Say where each region goes, given where each sample goes.

        Parameters
        ----------
        offset : ndarray of uint64 or int64, shape (N,)
            Where the first region of each sample begins.

        Returns
        -------
        ndarray of uint64, shape (R,)
            Where each region begins.
        """
        room = np.maximum(self.sizes, 1)
        start = np.cumsum(room) - room
        first = np.cumsum(self.counts) - self.counts
        sample_start = np.repeat(start[np.minimum(first, len(start) - 1)], self.counts) if len(start) else start
        pointers: NDArray[np.uint64] = np.repeat(offset.astype(np.uint64), self.counts)
        pointers += (start - sample_start).astype(np.uint64)
        return pointers
