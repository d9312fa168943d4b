"""Copying: a file with samples of others, their bytes as they are."""

from __future__ import annotations

import os
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton import __version__
from gpubeton.copying.pointers import Moves
from gpubeton.errors import NoSamplesError, OptionError, RegionError, RegionTooLargeError
from gpubeton.fields.registry import CustomFields, open_index
from gpubeton.format import Index, Notes, read_notes
from gpubeton.format.byte_source import open_bytes
from gpubeton.format.data_files import Paths, listed_paths
from gpubeton.format.index import join
from gpubeton.writing.assembly import Assembly
from gpubeton.writing.atomic_file import AtomicFile
from gpubeton.writing.extent import Extent
from gpubeton.writing.placement import checked_page_size
from gpubeton.writing.tasks import Placed, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton.format.byte_source import ByteSource

__all__ = ["copy_samples"]

#: Samples that are taken at a time.
_BLOCK = 256
#: Bytes that are read at a time, at most: regions that follow each other in both files go at once.
_RUN = 16 << 20


def copy_samples(
    paths: Paths,
    out: str | os.PathLike[str],
    samples: Sequence[int] | NDArray[Any] | None = None,
    custom_fields: CustomFields | None = None,
    *,
    page_size: int | None = None,
    class_names: Sequence[str] | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> Path:
    """Write a file with samples of others; their bytes are copied, nothing is decoded or encoded.

    Its layout is the writer's: all samples of a file that a `DatasetWriter` has written give the same file, byte for
    byte. It has notes if one of the others has any; checksums are compared on the way.

    Parameters
    ----------
    paths : str, path, or sequence of them
        One file, or several with the same fields, whose samples are numbered through.
    out : str or path
        The file to write. It may be one of the others, which is replaced when all is there.
    samples : sequence of int, optional
        Which samples, in their order in the new file; one may occur more than once. By default all.
    custom_fields : mapping of str to Field class, optional
        The class of each custom field.
    page_size : int, optional
        Bytes of a page. By default the largest of the files.
    class_names : sequence of str, optional
        Names of the classes. By default those of the files, which have to agree.
    on_progress : callable, optional
        Called with the samples done and all of them.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    FieldMismatchError
        If the files have different fields.
    OptionError
        If a sample is not there, or the files name different classes.
    RegionError
        If a region has another checksum than recorded.
    StorageError
        If bytes cannot be read or written, or a file is written to or replaced meanwhile.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> small = copy_samples("train.beton", "small.beton", range(100))
    >>> both = copy_samples(["train.beton", "small.beton"], "both.beton")
    >>> Loader(both, 50).reader.num_samples
    400
    """
    names = listed_paths(paths)
    parts = [open_index(path, custom_fields)[0] for path in names]
    originals = _Originals(parts, [read_notes(part.path, part.files[0].identity) for part in parts])
    whole = originals.whole
    chosen = np.arange(whole.num_samples) if samples is None else np.asarray(samples, np.int64)
    wrong = chosen[(chosen < 0) | (chosen >= whole.num_samples)]
    if len(wrong):
        raise OptionError(f"{whole.title}: no sample {wrong[0]}; there are {whole.num_samples}")
    if len(chosen) == 0:
        raise NoSamplesError(f"{os.fspath(out)}: 0 samples to write, at least 1 is needed")
    size = max(part.header.page_size for part in parts) if page_size is None else checked_page_size(page_size)
    content = originals.content(class_names)
    with AtomicFile(out) as file, ExitStack() as stack:
        assembly = Assembly(file, whole.descriptors, whole.metadata.itemsize, size, len(chosen))
        identities = [part.files[0].identity for part in parts]
        sources = [stack.enter_context(open_bytes(*each)) for each in zip(names, identities, strict=True)]
        for start in range(0, len(chosen), _BLOCK):
            block = originals.block(chosen[start : start + _BLOCK], size)
            sums = None if content is None else np.zeros(len(block.size), np.uint32)
            extent = Extent(block.count, block.size.astype(np.int64))
            placed = assembly.place(Task(start, start + len(block.count)), extent)
            new = extent.pointers(placed.offset)
            for run, where, data in _runs(block, new, sources):
                file.write(where, data)
                if sums is not None:
                    _check(block, run, data, sums, whole)
            if sums is not None:
                assembly.note_checksums(sums)
            _write_rows(file, assembly, placed, originals.rows(block, new))
            if on_progress is not None:
                on_progress(start + len(block.count), len(chosen))
        for identity, source in zip(identities, sources, strict=True):
            identity.check(source.name, source.identity())
        assembly.finish(content)
        file.commit()
    return Path(out)


@dataclass(frozen=True)
class _Block:
    """Some samples, and their regions in the order of the new file.

    `part` and `old` say where each region is: the number of its file and its offset there. `expected` are the recorded
    checksums, -1 where there is none.
    """

    samples: NDArray[np.int64]
    count: NDArray[np.int64]
    owner: NDArray[np.int64]
    part: NDArray[np.int64]
    old: NDArray[np.uint64]
    size: NDArray[np.uint64]
    expected: NDArray[np.int64]


class _Originals:
    """The files that are copied from, as one dataset."""

    def __init__(self, parts: list[Index], notes: list[Notes | None]) -> None:
        self.parts = parts
        self.notes = notes
        self.whole = join(parts)  # which refuses files with different fields
        self.starts = np.cumsum([0, *(part.num_samples for part in parts)])
        tables = [part.allocations for part in parts]
        owner = np.concatenate([t["sample_id"].astype(np.int64) + s for t, s in zip(tables, self.starts, strict=False)])
        # Stable: an empty region stays before the one that begins at the same place.
        order = np.argsort(owner, kind="stable")
        self._ptr = np.concatenate([table["ptr"] for table in tables])[order]
        self._size = np.concatenate([table["size"] for table in tables])[order]
        self._sums = np.concatenate([_sums(part, note) for part, note in zip(parts, notes, strict=True)])[order]
        self._bounds = np.searchsorted(owner[order], np.arange(self.whole.num_samples + 1))

    def content(self, class_names: Sequence[str] | None) -> dict[str, Any] | None:
        """Give the notes of the new file; None if no file has any."""
        found = [notes for notes in self.notes if notes is not None]
        if not found and class_names is None:
            return None
        names = {notes.class_names for notes in found if notes.class_names is not None}
        if class_names is None and len(names) > 1:
            first, second, *_ = [notes.class_names or () for notes in found if notes.class_names in names]
            raise OptionError(
                f"{self.whole.title}: the files name different classes ({_some(first)} and {_some(second)}), so that "
                "one label would mean two things. Say which names hold: class_names, or --classes FILE"
            )
        content: dict[str, Any] = {
            "made_by": f"gpubeton {__version__}",
            "copied_from": [Path(part.path).name for part in self.parts],
            "originals": [dict(_without_names(notes.content)) for notes in found],
        }
        kept = class_names or next(iter(names), None)
        return content if kept is None else {**content, "class_names": list(kept)}

    def block(self, samples: NDArray[np.int64], page_size: int) -> _Block:
        """Collect the regions of some samples."""
        first = self._bounds[samples]
        count = self._bounds[samples + 1] - first
        owner = np.repeat(np.arange(len(samples)), count)
        rows = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        size = self._size[rows]
        room = np.bincount(owner, np.maximum(size, 1), len(samples))
        if room.max(initial=0) > page_size:
            sample = int(samples[room.argmax()])
            raise RegionTooLargeError(
                f"{self.whole.title}: sample {sample}: {int(room.max())} bytes, but a page has {page_size}. "
                f"Use page_size={1 << (int(room.max()) - 1).bit_length()}.",
                sample,
            )
        part = np.searchsorted(self.starts, samples[owner], side="right") - 1
        return _Block(samples, count, owner, part, self._ptr[rows], size, self._sums[rows])

    def rows(self, block: _Block, new: NDArray[np.uint64]) -> NDArray[np.void]:
        """Make the metadata of a block, with pointers to where its regions go."""
        rows = np.zeros(len(block.samples), self.whole.metadata.dtype)
        parts = np.searchsorted(self.starts, block.samples, side="right") - 1
        moves = Moves(np.cumsum(block.count) - block.count, block.count, block.old, block.size, new)
        for number, descriptor in enumerate(self.whole.descriptors):
            column = rows[f"f{number}"]
            stored = np.zeros(len(rows), np.uint64)
            for each in np.unique(parts).tolist():
                own = parts == each
                local = block.samples[own] - self.starts[each]
                column[own] = self.parts[each].column(descriptor.name)[local]
                if self.whole.has_regions(descriptor.name):
                    stored[own] = self.parts[each].regions(descriptor.name).size[local]
            moves.apply(column, descriptor.type_id, stored if self.whole.has_regions(descriptor.name) else None)
        return rows


def _runs(block: _Block, new: NDArray[np.uint64], sources: Sequence[ByteSource]) -> Iterator[tuple[slice, int, bytes]]:
    """Read regions that follow each other in both files together; give which they are, and where they go."""
    follows = np.zeros(len(block.size) + 1, np.bool_)
    if len(block.size) > 1:
        same_file = block.part[1:] == block.part[:-1]
        in_old = block.old[1:] == block.old[:-1] + block.size[:-1]
        follows[1:-1] = same_file & in_old & (new[1:] == new[:-1] + block.size[:-1])
    start = 0
    while start < len(block.size):
        stop, size = start + 1, int(block.size[start])
        while follows[stop] and size + int(block.size[stop]) <= _RUN:
            size += int(block.size[stop])
            stop += 1
        part = int(block.part[start])
        yield slice(start, stop), int(new[start]), sources[part].read_exactly(int(block.old[start]), size)
        start = stop


def _check(block: _Block, run: slice, data: bytes, sums: NDArray[np.uint32], whole: Index) -> None:
    """Compute the checksums of some regions, and compare them with what was recorded."""
    position = 0
    for region in range(run.start, run.stop):
        size = int(block.size[region])
        sums[region] = zlib.crc32(data[position : position + size])
        position += size
        if block.expected[region] not in (-1, sums[region]):
            sample = int(block.samples[block.owner[region]])
            raise RegionError(
                f"{whole.origin(sample) or f'{whole.title}: sample {sample}'}: a region of {size} bytes has the "
                f"checksum {sums[region]:08x}, expected {int(block.expected[region]):08x}. The file is damaged; "
                "`gpubeton verify` names all such samples."
            )


def _write_rows(file: AtomicFile, assembly: Assembly, placed: Placed, rows: NDArray[np.void]) -> None:
    file.write(assembly.metadata_offset + placed.first_row * rows.itemsize, rows.tobytes())


def _sums(part: Index, notes: Notes | None) -> NDArray[np.int64]:
    if notes is None or notes.checksums is None:
        return np.full(len(part.allocations), -1, np.int64)
    return notes.checksums.astype(np.int64)


def _without_names(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Leave out what is in the notes anyway, or would grow with each copy."""
    return ((key, value) for key, value in content.items() if key not in ("class_names", "originals"))


def _some(names: Sequence[str]) -> str:
    return f"{len(names)} beginning with {', '.join(map(repr, names[:3]))}"
