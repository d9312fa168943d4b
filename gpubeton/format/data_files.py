"""The files of a dataset: their paths, and one number for the file and the offset of a byte."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._bytes.file_list import FileListIdentity
from gpubeton._bytes.open_files import open_bytes
from gpubeton._bytes.store_client import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._bytes.byte_source import ByteSource, SourceIdentity

# A global offset is the number of the file in the upper bits and the offset from the start of that file in the lower
# ones. In a dataset of one file, whose number is 0, it is the offset. Sorting global offsets sorts by file, then by
# offset; and those of different files are too far apart for any two regions of them to be read as one.
OFFSET_BITS = 48

MAX_FILE_SIZE = (1 << OFFSET_BITS) - (1 << 30)
"""Most bytes of a file: 256 TiB, less what keeps the last region of a file away from the first of the next."""

MAX_FILES = 1 << (63 - OFFSET_BITS)
"""Most files of a dataset: global offsets fit into signed 64-bit numbers too."""

DESCRIPTION = "index.json"
"""Name of the file that describes all files of a folder, see `gpubeton.format.manifest`."""

INDEX_SUFFIX = ".index"
"""Ending of the names of index files, see `gpubeton.format.index_file`."""


def first_offset(file: int) -> np.uint64:
    """Give the global offset of the first byte of a file."""
    return np.uint64(file << OFFSET_BITS)


def split_offsets(offsets: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
    """Split global offsets (N,) into the number of the file (N,) and the offset in it (N,)."""
    files = (offsets >> np.uint64(OFFSET_BITS)).astype(np.intp)
    return files, offsets & np.uint64((1 << OFFSET_BITS) - 1)


@dataclass(frozen=True)
class EntryPlace:
    """Where the entry points of a file are."""

    fields: tuple[str, ...] = ()  # that have some
    start: int = 0  # of their bytes, in the file or in the one beside it
    stop: int = 0
    beside: tuple[int, str | None] | None = None  # size and version of the file beside it, or of `path`; None: in it
    path: str | None = None  # the index that has them; None if that file or the one beside it does


@dataclass(frozen=True)
class DataFile:
    """One of the files of a dataset; most datasets have one."""

    path: str  # the file
    identity: SourceIdentity  # which file it was, and in what state, when it was checked
    page_size: int  # bytes of its pages
    first_sample: int  # sample id of its first sample
    num_samples: int  # how many it has
    entry_place: EntryPlace | None = field(default=None, compare=False)  # None if it has to be looked for
    fault: str = field(default="", compare=False)  # why its checksums cannot be used; nothing if there is no fault
    is_container: bool = False  # it has values alone, such as a tar file: all else about them is in an index

    @property
    def size(self) -> int:
        """Its bytes, when it was checked."""
        return self.identity.size

    @property
    def is_list(self) -> bool:
        """Whether it is a list of files with an image each."""
        return isinstance(self.identity, FileListIdentity)

    @property
    def rows(self) -> slice:
        """Its samples in the dataset."""
        return slice(self.first_sample, self.first_sample + self.num_samples)

    def open(self) -> ByteSource:
        """Open the file, `StorageError` if it has changed since it was checked."""
        return open_bytes(self.path, self.identity)

    def pages_of(self, least: int) -> tuple[int, int]:
        """Give the bytes of its pages, of at least so many, and their number; the last one need not be full."""
        page_size = max(self.page_size, least)
        return page_size, -(-self.size // page_size)


def title_of(files: Sequence[DataFile]) -> str:
    """Name the files of a dataset, in few words."""
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{shown(files[0].path)}{more}"


def find_file(files: Sequence[DataFile], sample: int) -> DataFile:
    """Find the file that holds a sample; IndexError if there is no such sample."""
    num_samples = files[-1].rows.stop
    if not 0 <= sample < num_samples:
        raise IndexError(f"{title_of(files)}: no sample {sample}; expected 0 to {num_samples - 1}")
    return files[bisect_right(files, sample, key=lambda file: file.first_sample) - 1]


def origin_of(files: Sequence[DataFile], sample: int, offset: int | None = None) -> str:
    """Name the file of a sample, and its place there; nothing if all are in one ``.beton`` file."""
    # `offset` is the global one of its first region, None if it has none.
    file = find_file(files, sample)
    if not file.is_container or offset is None:
        return "" if len(files) == 1 else f"sample {sample - file.first_sample} of {shown(file.path)}"
    place = int(split_offsets(np.array([offset], np.uint64))[1][0])
    if isinstance(file.identity, FileListIdentity):
        return shown(file.identity.files.path_at(place, sample - file.first_sample))
    return f"sample {sample - file.first_sample} of {shown(file.path)}, from byte {place:,} on"
