"""EarlierSamples: encoded samples in unfinished files, which are copied instead of being encoded again."""

from __future__ import annotations

import itertools
import os
import zlib
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.fields.registry import type_id_of
from gpubeton.files.descriptors import read_at
from gpubeton.writing.file_builder import RegionSizes
from gpubeton.writing.moved_regions import MovedRegions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from gpubeton.fields.base import Field
    from gpubeton.writing.file_builder import FileBuilder
    from gpubeton.writing.resumable_file import UnfinishedFile


class EarlierChunk:
    """Some samples that were read from unfinished files."""

    def __init__(self, metadata: NDArray[np.void], contents: list[bytes], offset: NDArray[np.uint64],
                 regions: RegionSizes) -> None:  # fmt: skip
        self.metadata = metadata  # (N,)
        self.regions = regions
        self._contents = contents  # of each region
        self._offset = offset  # (R,) of each region in its unfinished file

    def settle(self, offset: NDArray[np.uint64], fields: Sequence[Field]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Put the new pointers into the metadata; give the offset and the bytes of each region."""
        regions = self.regions
        new, sizes = regions.pointers(offset), regions.sizes.astype(np.uint64)
        moved = MovedRegions(regions.counts, self._offset, sizes, new)
        for number, field in enumerate(fields):
            moved.update_pointers(self.metadata[f"f{number}"], type_id_of(field), None)
        return zip(new.tolist(), (np.frombuffer(each, np.uint8) for each in self._contents), strict=True)


@dataclass(frozen=True)
class EarlierSamples:
    """Encoded samples in unfinished files, and the rows of a new file that they are for; can be sent to processes."""

    numbers: NDArray[np.int64]  # (rows,) the sample for each row, -1: none
    _paths: list[str]
    _file: NDArray[np.int64]  # (N,) number of the file of each sample
    _type: np.dtype[np.void]  # of a row of metadata
    _metadata: NDArray[
        np.uint8
    ]  # (N, bytes of a row): copies of structured arrays would not have the bytes between fields
    _offset: NDArray[np.uint64]  # (R,)
    _first: NDArray[np.int64]  # (N,) number of the first region of each sample
    _regions: RegionSizes  # of all samples
    _changes: dict[int, list[str]]  # what the samples have lost

    @classmethod
    def find(
        cls,
        files: Iterable[UnfinishedFile],
        identities: Sequence[bytes],  # of the samples that are wanted, in the order of the rows
        metadata_type: np.dtype[np.void],
        builder_of: Callable[[int], FileBuilder],  # places samples as the writer of a file with so many rows did
    ) -> EarlierSamples:
        """List the samples in unfinished files, and find those that are wanted."""
        paths: list[str] = []
        empty = np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint32)
        columns: list[tuple[Any, ...]] = [
            (np.empty(0, np.int64), np.empty((0, metadata_type.itemsize), np.uint8), *empty)
        ]
        by_identity: dict[tuple[bytes, int], int] = {}
        lost: dict[int, list[str]] = {}
        total = 0
        for path, rows, chunks in files:
            builder, seen = builder_of(rows), Counter[bytes]()
            with path.open("rb") as file:
                for chunk in chunks:
                    own, place = chunk.regions, builder.place(chunk.task.start, chunk.regions)
                    numbered = zip(itertools.count(chunk.task.start), _numbered(chunk.identities, seen), strict=False)
                    file.seek(builder.metadata_offset + place.first_row * metadata_type.itemsize)
                    metadata = file.read(len(place.offset) * metadata_type.itemsize)
                    skipped = {sample.row for sample in own.skipped}
                    found = {row: identity for row, identity in numbered if row not in skipped}
                    if zlib.crc32(metadata) != chunk.metadata:
                        continue  # it has not reached the disk
                    number_of = {row: total + number for number, row in enumerate(found)}
                    by_identity.update((identity, number_of[row]) for row, identity in found.items())
                    for name, changed in own.changes.items():
                        for row in changed:
                            lost.setdefault(number_of[row], []).append(name)
                    words = np.frombuffer(metadata, np.uint8).reshape(-1, metadata_type.itemsize)
                    numbers_of_file = np.full(len(found), len(paths))
                    pointers = own.pointers(place.offset)
                    columns.append((numbers_of_file, words, pointers, own.counts, own.sizes, own.checksums))
                    total += len(found)
            paths.append(os.fspath(path))
        wanted = (by_identity.get(each, -1) for each in _numbered(identities, Counter()))
        numbers = np.fromiter(wanted, np.int64, len(identities))
        files_of, rows_of, offset, counts, sizes, checksums = map(np.concatenate, zip(*columns, strict=True))
        regions = RegionSizes(counts, sizes, checksums)
        return cls(numbers, paths, files_of, metadata_type, rows_of, offset, np.cumsum(counts) - counts, regions, lost)

    def read(self, start: int, stop: int) -> EarlierChunk | None:
        """Read the samples for some rows; None if one is missing, or has not reached the disk."""
        numbers = self.numbers[start:stop]
        if (numbers < 0).any():
            return None
        all_of_them = self._regions
        assert all_of_them.checksums is not None
        counts = all_of_them.counts[numbers]
        own = np.repeat(self._first[numbers] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        contents = []
        with ExitStack() as stack:
            files = {
                number: stack.enter_context(open(self._paths[number], "rb"))
                for number in np.unique(self._file[numbers]).tolist()
            }
            for number, region in zip(np.repeat(self._file[numbers], counts).tolist(), own.tolist(), strict=True):
                size, offset = int(all_of_them.sizes[region]), int(self._offset[region])
                contents.append(read_at(files[number].fileno(), size, offset))
                if zlib.crc32(contents[-1]) != all_of_them.checksums[region] or len(contents[-1]) != size:
                    return None
        changes: dict[str, list[int]] = {}
        for row, number in enumerate(numbers.tolist(), start):
            for name in self._changes.get(number, ()):
                changes.setdefault(name, []).append(row)
        sizes, checksums = all_of_them.sizes[own], all_of_them.checksums[own]
        regions = RegionSizes(counts, sizes, checksums, changes=changes, are_copied=True)
        metadata = self._metadata[numbers].view(self._type).reshape(-1)
        return EarlierChunk(metadata, contents, self._offset[own], regions)


def _numbered(identities: Iterable[bytes], seen: Counter[bytes]) -> Iterator[tuple[bytes, int]]:
    """Number those that are equal: a source of which all samples have one name is a list of samples all the same."""
    for each in identities:
        seen[each] += 1
        yield each, seen[each]
