"""Staged: the regions of one batch, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.cpu.pack import gather_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.engine.arrays import ArrayPool
    from gpubeton.engine.sources import Source
    from gpubeton.storage.fetch import Fetch, Storage

_OFFSET, _SIZE, _ADDRESS = range(3)


class Staged:
    """The regions of the samples of one batch, on their way into memory or there.

    Parameters
    ----------
    storage : Storage
        Brings the bytes.
    sources : sequence of Source
        The fields that are wanted.
    samples : ndarray of uint64, shape (N,)
        Sample ids.
    """

    def __init__(self, storage: Storage, sources: Sequence[Source], samples: NDArray[np.uint64]) -> None:
        regions = [regions for source in sources for regions in source.regions]
        first = np.cumsum([0, *(len(source.regions) for source in sources)])
        self._rows = {source.name: slice(first[number], first[number + 1]) for number, source in enumerate(sources)}
        # Offset in the file, size and address of each region of each sample.
        self._table = np.zeros((3, len(regions), len(samples)), np.uint64)
        for number, own in enumerate(regions):
            self._table[_OFFSET, number] = own.offset[samples]
            self._table[_SIZE, number] = own.size[samples]
        self._fetches: list[Fetch] = [storage.fetch(self._table[_OFFSET].reshape(-1), self._table[_SIZE].reshape(-1))]

    @property
    def is_ready(self) -> bool:
        """Whether every byte is there."""
        return self._fetches[0].is_ready

    @property
    def nbytes(self) -> int:
        """Bytes of all regions together."""
        return int(self._table[_SIZE].sum())

    def wait(self) -> None:
        """Wait until every byte is there; call it before anything below."""
        self._table[_ADDRESS] = self._fetches[0].addresses().reshape(self._table.shape[1:])

    def offset(self, source: Source) -> NDArray[np.uint64]:
        """Offsets in the file of a field's regions, shape (regions of the field, N)."""
        return self._table[_OFFSET, self._rows[source.name]]

    def size(self, source: Source) -> NDArray[np.uint64]:
        """Sizes of a field's regions, shape (regions of the field, N)."""
        return self._table[_SIZE, self._rows[source.name]]

    def address(self, source: Source) -> NDArray[np.uint64]:
        """Addresses of a field's regions, shape (regions of the field, N)."""
        return self._table[_ADDRESS, self._rows[source.name]]

    def gather(self, source: Source, width: int, pool: ArrayPool) -> NDArray[np.uint8]:
        """Copy a field's regions into rows of one width.

        Parameters
        ----------
        source : Source
            The field.
        width : int
            Bytes of a row. What is longer is cut.
        pool : ArrayPool
            Memory for the rows.

        Returns
        -------
        ndarray of uint8, shape (regions of the field * N, width)
            The regions, zeros behind their ends.
        """
        rows = pool.take((len(self.size(source)) * self._table.shape[2], width), np.uint8)
        size = np.minimum(self.size(source).reshape(-1), np.uint64(width))
        gather_rows(self.address(source).reshape(-1), size, rows)
        return rows

    def replace_row(self, row: int, other: Staged) -> None:
        """Put a sample that was staged by itself in the place of another; its bytes belong to this batch then."""
        self._table[:, :, row] = other._table[:, :, 0]
        self._fetches.extend(other._fetches)

    def keep_rows(self, rows: NDArray[np.intp]) -> None:
        """Forget all samples but those in these rows."""
        self._table = self._table[:, :, rows]

    def release(self) -> None:
        """Give the bytes up; may be called twice."""
        for fetch in self._fetches:
            fetch.release()
