"""Sources: where the values of a field are stored, and the regions of a batch in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._cpu.bad_images import describe_damage
from gpubeton._cpu.stored_bytes import find_damage, gather_rows
from gpubeton.format.layout import FieldType
from gpubeton.format.regions import Regions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._engine.buffers import ArrayPool
    from gpubeton._engine.storage import Fetch, Storage
    from gpubeton.fields.base import Field
    from gpubeton.format.entry_points import EntryPoints
    from gpubeton.format.index import Index

READS_AHEAD = 2
"""Batches whose bytes are fetched before the executors have room for them."""

BATCHES_WITHOUT_ENTRIES = 6
"""The CPU decodes so many first batches of an epoch without remote entry points, which are loaded meanwhile."""
# More than are read and decoded before the first one is handed over. A fixed number, because a damaged image is decoded
# differently without entry points: its pixels must not depend on when they came.


@dataclass(frozen=True, eq=False)
class Source:
    """The stored values of one field, of every sample of the files."""

    name: str  # of the field
    field: Field
    column: NDArray[Any]  # (N,) its metadata
    regions: tuple[Regions, ...]  # none if the values are in the metadata; several for some custom fields
    entry_points: EntryPoints | None = None  # of images stored as JPEG

    @classmethod
    def of(cls, index: Index, name: str, field: Field, entry_points: EntryPoints | None = None) -> Source:
        """Find the values of a field."""
        column = index.column(name)
        if index.has_regions(name):
            return cls(name, field, column, (index.regions(name),), entry_points)
        type_id = index.descriptors[index.names.index(name)].type_id
        if type_id != FieldType.CUSTOM:
            return cls(name, field, column, ())
        return cls(name, field, column, _pointed_to(index, column))

    @property
    def has_checksums(self) -> bool:
        """Whether checksums of some regions are known."""
        return any(regions.checksums is not None for regions in self.regions)

    def checksums(
        self, samples: NDArray[Any], verified: NDArray[np.bool_]
    ) -> NDArray[np.uint64]:  # (regions of the field, N)
        """Give the CRC-32 of the regions of samples, (N,); 0 where it is not known, or the sample is `verified`."""
        checksums = np.zeros((len(self.regions), len(samples)), np.uint64)
        for row, regions in zip(checksums, self.regions, strict=True):
            if regions.checksums is not None:
                np.copyto(row, regions.checksums[samples], where=~verified[samples])
        return checksums

    @property
    def max_size(self) -> int:
        """Bytes of the longest region; 0 if there are none."""
        return max((int(regions.size.max()) for regions in self.regions), default=0)

    def image_sizes(self, samples: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:  # (N,) each
        """Give height and width of the stored images of samples, (N,), in pixels."""
        return self.column["height"][samples].astype(np.int32), self.column["width"][samples].astype(np.int32)


def _pointed_to(index: Index, column: NDArray[Any]) -> tuple[Regions, ...]:
    """Find the regions of a custom field: any number in its metadata may point to a region of the same sample."""
    table = index.allocations
    if len(table) == 0:
        return ()
    sample = np.arange(len(column), dtype=np.uint64)
    regions = []
    for pointer in _numbers(column):
        # Of rows with the same pointer the last is the one that is not empty.
        row = np.searchsorted(table["ptr"], pointer, side="right") - 1
        is_own = (row >= 0) & (table["ptr"][row] == pointer) & (table["sample_id"][row] == sample)
        if is_own.any():
            # Any other number is no pointer, and may be outside of the file.
            columns = (pointer, table["size"][row], index.checksums[row])
            regions.append(Regions(*(np.where(is_own, column, column.dtype.type(0)) for column in columns)))
    return tuple(regions)


def _numbers(column: NDArray[Any]) -> list[NDArray[np.uint64]]:
    """List the unsigned 64-bit numbers of a column, an array (N,) of each."""
    if column.dtype.names is not None:
        return [numbers for name in column.dtype.names for numbers in _numbers(column[name])]
    if column.dtype != np.dtype("<u8"):
        return []
    return [np.ascontiguousarray(numbers) for numbers in column.reshape(len(column), -1).T]


class FetchedRegions:
    """The regions of the samples of one batch, in memory or on their way there."""

    def __init__(
        self,
        storage: Storage,
        samples: NDArray[np.uint64],  # (N,) sample ids
        places: NDArray[np.uint64],  # (2, R, N), see `BatchPlan.places`
        region_rows: Mapping[str, slice],  # see `Plan.region_rows`
        # by field, whether the regions of samples are in a GPU's memory: only their addresses in mapped files are found
        resident: Mapping[str, Callable[[NDArray[Any]], NDArray[np.bool_]]] | None = None,
        batch: int | None = None,  # whose samples these are; None for samples in place of bad ones
        unverified: Sequence[tuple[Source, NDArray[np.bool_]]] = (),  # fields to compare, see `Source.checksums`
    ) -> None:
        self._region_rows = region_rows
        # (R, N) of each region of each sample
        self._offset: NDArray[np.uint64] = places[0]
        self._size: NDArray[np.uint64] = places[1]
        self._checksums: NDArray[np.uint64] = np.zeros_like(self._size)
        for source, verified in unverified:
            self._checksums[region_rows[source.name]] = source.checksums(samples, verified)
        self._address: NDArray[np.uint64] = self._offset[:0]  # known when they are in memory
        size = self._size.copy() if resident else self._size
        for name, holds in (resident or {}).items():
            size[region_rows[name], holds(samples)] = 0
            self._checksums[region_rows[name], holds(samples)] = 0  # they were compared before they were copied
        self._fetches: list[Fetch] = [storage.fetch(self._offset.reshape(-1), size.reshape(-1), batch)]

    @property
    def is_ready(self) -> bool:
        """Whether every byte is in memory."""
        return self._fetches[0].is_ready

    @property
    def nbytes(self) -> int:
        """Bytes of all regions together."""
        return int(np.add.reduce(self._size, axis=None))  # as `sum`, but without a function in Python around it

    def wait(self) -> None:
        """Wait until every byte is in memory; call it before the methods below."""
        self._address = self._fetches[0].addresses().reshape(self._offset.shape)

    def places(self, row: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Offsets and sizes of all regions of a row's sample, (R,) each."""
        return self._offset[:, row], self._size[:, row]

    def offset(self, source: Source) -> NDArray[np.uint64]:  # (regions of the field, N)
        """Offsets in the file of a field's regions."""
        return self._offset[self._region_rows[source.name]]

    def size(self, source: Source) -> NDArray[np.uint64]:  # (regions of the field, N)
        """Sizes of a field's regions in bytes."""
        return self._size[self._region_rows[source.name]]

    def address(self, source: Source) -> NDArray[np.uint64]:  # (regions of the field, N)
        """Addresses of a field's regions in memory."""
        return self._address[self._region_rows[source.name]]

    def checksums(self, source: Source) -> NDArray[np.uint64]:  # (regions of the field, N)
        """CRC-32 that a field's regions are to be compared with; 0 for none."""
        return self._checksums[self._region_rows[source.name]]

    @property
    def verified_nbytes(self) -> int:
        """Bytes of the regions that are to be compared with checksums."""
        return int(np.add.reduce(self._size, axis=None, where=self._checksums != 0))

    def find_damage(self, source: Source) -> Iterator[tuple[int, str]]:
        """Compare a field's regions with their checksums; give the row of each that differs, and how."""
        address, size, checksums = self.address(source), self.size(source), self.checksums(source)
        is_damaged = np.zeros(size.shape, np.bool_)
        if checksums.any():
            find_damage(address.reshape(-1), size.reshape(-1), checksums.reshape(-1), is_damaged.reshape(-1))
        for place in zip(*np.nonzero(is_damaged), strict=True):
            yield int(place[1]), describe_damage(int(address[place]), int(size[place]), int(checksums[place]))

    def gather(self, source: Source, width: int, pool: ArrayPool) -> NDArray[np.uint8]:  # (regions * N, width)
        """Copy a field's regions into rows of `width` bytes: longer ones are cut, zeros follow shorter ones."""
        size = np.minimum(self.size(source).reshape(-1), np.uint64(width))
        rows = pool.take((len(size), width), np.uint8)
        gather_rows(self.address(source).reshape(-1), size, rows)
        return rows

    def replace_row(self, row: int, other: FetchedRegions) -> None:
        """Replace a sample by one that was fetched alone, and take over its bytes."""
        for column, new in zip(self._columns(), other._columns(), strict=True):
            column[:, row] = new[:, 0]
        self._fetches.extend(other._fetches)

    def keep_rows(self, rows: NDArray[np.intp]) -> None:
        """Drop all samples but these rows."""
        # By `take`, without gaps, as compiled code has it.
        columns = (column.take(rows, axis=1) for column in self._columns())
        self._offset, self._size, self._checksums, self._address = columns

    def release(self) -> None:
        """Release the bytes; may be called twice."""
        for fetch in self._fetches:
            fetch.release()

    def _columns(self) -> tuple[NDArray[np.uint64], ...]:
        return self._offset, self._size, self._checksums, self._address
