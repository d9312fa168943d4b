"""The page of each sample, in the memory of a number for each page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class PageRuns:
    """Pages of samples, which are kept once for samples that follow each other in one page."""

    start: NDArray[np.int64]  # (R + 1,) the first sample of each run; then the number of samples
    page: NDArray[np.int64]  # (R,)

    @classmethod
    def join(cls, blocks: Iterable[NDArray[np.int64]]) -> PageRuns:
        """Find the runs in the pages of all samples, which come block by block, (N,) each."""
        starts, pages, count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        for block in blocks:
            first = _changes(block)
            starts.append(first + count)
            pages.append(block[first])
            count += len(block)
        start, page = np.concatenate(starts), np.concatenate(pages)
        first = _changes(page)  # a run may go on in the next block
        return cls(np.append(start[first], count), page[first])

    def of(self, samples: NDArray[np.uint64]) -> PageRuns:
        """Find the runs of other samples, (N,), in their order."""
        return PageRuns.join([self.page[np.searchsorted(self.start, samples.astype(np.int64), side="right") - 1]])

    def cut(self, rows: slice) -> PageRuns:
        """Give those of samples that follow each other."""
        first = int(np.searchsorted(self.start, rows.start, side="right")) - 1
        last = int(np.searchsorted(self.start, rows.stop))
        return PageRuns(self.start[first : last + 1].clip(rows.start, rows.stop) - rows.start, self.page[first:last])

    def to_array(self) -> NDArray[np.int64]:
        """Give the page of each sample, (N,)."""
        return np.repeat(self.page, np.diff(self.start))


def _changes(values: NDArray[np.int64]) -> NDArray[np.intp]:
    """Find where values differ from those before them; the first does."""
    return np.flatnonzero(np.concatenate([np.ones(len(values[:1]), np.bool_), values[1:] != values[:-1]]))
