"""Copy samples of files to a new file, byte for byte; choose and split samples."""

from __future__ import annotations

import os
import warnings
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton import __version__
from gpubeton._bytes import open_bytes
from gpubeton._writing import (
    AtomicFile,
    FileBuilder,
    MovedRegions,
    RegionSizes,
    check_size,
    check_target,
    checked_page_size,
    index_file,
)
from gpubeton.dataset.contents import checked_samples
from gpubeton.errors import NoSamplesError, OptionError, RegionError
from gpubeton.fields.registry import CustomFields, open_beton
from gpubeton.format import Index, Notes, read_notes
from gpubeton.format.data_files import split_offsets
from gpubeton.format.dataset import join, list_files
from gpubeton.format.entry_points import no_entry_points, open_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from gpubeton._bytes import ByteSource, Progress
    from gpubeton.format.dataset import Paths
    from gpubeton.format.entry_points import EntryBlock

__all__ = ["choose", "copy_samples", "split"]

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
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Path:
    """Write a file with samples of other files; bytes are copied, nothing is decoded or encoded.

    The layout is that of `DatasetWriter`: a copy of all samples of a file that it has written is the same file, byte
    for byte. The new file has notes if one of the others has any; recorded checksums are compared while copying.

    Parameters
    ----------
    paths : str, path, or sequence of them
        One file, or several with the same fields, whose samples are numbered continuously.
    out : str or path
        The file to write, none of the others.
    samples : sequence of int, optional
        The samples, in their order in the new file; one may occur more than once. By default all.
    custom_fields
        As for `verify`.
    page_size : int, optional
        Bytes of a page. By default the largest of the files.
    class_names : sequence of str, optional
        Names of the classes, an empty one for none. By default those of the files, which have to be the same.
    overwrite : bool
        Whether to replace a file that exists.
    on_progress : callable, optional
        Called with the number of copied samples and of all samples.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    FieldMismatchError
        If the files have different fields.
    OptionError
        If a sample does not exist, the files name different classes, or the new file exists already.
    RegionError
        If a region has another checksum than recorded.
    StorageError
        If bytes cannot be read or written, or a file is changed or replaced while it is copied.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> small = copy_samples("train.beton", "small.beton", range(100))
    >>> both = copy_samples(["train.beton", "small.beton"], "both.beton")
    >>> Loader(both, 50).reader.num_samples
    400
    """
    names = list_files(paths)
    check_target(out, names, overwrite=overwrite)
    parts = [open_beton(path, custom_fields) for path in names]
    inputs = _Inputs(parts, [read_notes(part.files[0].path, part.files[0].identity) for part in parts])
    whole = inputs.whole
    chosen = checked_samples(samples, whole.num_samples, f"{whole.title}: ")
    if len(chosen) == 0:
        raise NoSamplesError(f"{os.fspath(out)}: 0 samples to write, at least 1 is needed")
    size = max(part.header.page_size for part in parts) if page_size is None else checked_page_size(page_size)
    content = inputs.content(class_names)
    with AtomicFile(out, overwrite=overwrite) as file, ExitStack() as stack:
        builder = FileBuilder(file, whole.descriptors, whole.metadata_type.itemsize, size, len(chosen))
        identities = [part.files[0].identity for part in parts]
        sources = [stack.enter_context(open_bytes(*file)) for file in zip(names, identities, strict=True)]
        for start in range(0, len(chosen), _BLOCK):
            block = inputs.block(chosen[start : start + _BLOCK], size)
            sums = None if content is None else np.zeros(len(block.size), np.uint32)
            regions = RegionSizes(block.count, block.size.astype(np.int64))
            place = builder.place(start, regions)
            new = regions.pointers(place.offset)
            for run, where, data in _runs(block, new, sources):
                file.write(where, data)
                if sums is not None:
                    _check(block, run, data, sums, whole)
            if sums is not None:
                builder.add_checksums(sums)
            rows = inputs.rows(block, new)
            file.write(builder.metadata_offset + place.first_row * rows.itemsize, rows.tobytes())
            if on_progress is not None:
                on_progress(start + len(block.count), len(chosen))
        for identity, source in zip(identities, sources, strict=True):
            identity.check(source.name, source.identity())
        builder.finish(content, inputs.writer_of_entry_points(file, chosen))
        file.commit()
    return Path(out)


@dataclass(frozen=True)
class _Block:
    """Some samples, and their regions in the order of the new file."""

    samples: NDArray[np.int64]  # (N,)
    count: NDArray[np.int64]  # (N,) regions of each sample
    owner: NDArray[np.int64]  # (R,) sample of each region, counted from 0
    part: NDArray[np.intp]  # (R,) number of its file
    old: NDArray[np.uint64]  # (R,) its offset there
    size: NDArray[np.uint64]  # (R,)
    expected: NDArray[np.uint32]  # (R,) recorded checksum, 0 without


class _Inputs:
    """The files that are copied from, as one dataset."""

    def __init__(self, parts: list[Index], notes: list[Notes | None]) -> None:
        self.parts = parts
        self.notes = notes
        self._entry_points: list[dict[str, EntryBlock]] = []
        self.whole = join(parts)  # refuses files with different fields
        for part in parts:
            entry_points, faults = open_blocks(part)
            self._entry_points.append(entry_points)
            for fault in faults:
                warnings.warn(f"{fault}. The copy has none of them.", stacklevel=3)
        self.starts = np.cumsum([0, *(part.num_samples for part in parts)])
        # Stable: an empty region stays before the one that begins at the same place.
        order = np.argsort(self.whole.allocations["sample_id"], kind="stable")
        self._table, self._sums = self.whole.allocations[order], self.whole.checksums[order]
        self._bounds = np.searchsorted(self._table["sample_id"], np.arange(self.whole.num_samples + 1))
        # With the pointers of their files, of which custom fields may have more than those that `whole` knows.
        self._columns = [np.concatenate([part.column(name) for part in parts]) for name in self.whole.names]

    def content(self, class_names: Sequence[str] | None) -> dict[str, Any] | None:
        """Make the notes of the new file; None if no file has any."""
        all_notes = [notes for notes in self.notes if notes is not None]
        if not all_notes and class_names is None:
            return None
        names = {notes.class_names for notes in all_notes if notes.class_names is not None}
        if class_names is None and len(names) > 1:
            first, second, *_ = [notes.class_names or () for notes in all_notes if notes.class_names in names]
            raise OptionError(
                f"{self.whole.title}: the files name different classes ({_some(first)} and {_some(second)}), so that "
                "one label would mean two things. Choose the names: class_names, or --classes FILE"
            )
        content: dict[str, Any] = {
            "made_by": f"gpubeton {__version__}",
            "copied_from": [Path(part.path).name for part in self.parts],
            # Without what the new notes have anyway, or what would grow with each copy.
            "originals": [
                {key: value for key, value in notes.content.items() if key not in ("class_names", "originals")}
                for notes in all_notes
            ],
        }
        copied = next(iter(names), None) if class_names is None else class_names or None
        return content if copied is None else {**content, "class_names": list(copied)}

    def writer_of_entry_points(self, file: AtomicFile, samples: NDArray[np.int64]) -> Callable[[int], int] | None:
        """Give a function that writes those of some samples; None if no file has any."""
        if not any(self._entry_points):
            return None
        types = {name: self.whole.column(name).dtype for name in self.whole.names}

        def blocks_of(_: Index, name: str) -> Iterator[EntryBlock]:
            blocks = [
                fields.get(name) or no_entry_points(part.num_samples)
                for fields, part in zip(self._entry_points, self.parts, strict=True)
            ]
            for start in range(0, len(samples), _BLOCK):
                chosen = samples[start : start + _BLOCK]
                parts = np.searchsorted(self.starts, chosen, side="right") - 1
                for run in np.split(np.arange(len(chosen)), np.flatnonzero(np.diff(parts)) + 1):
                    part = int(parts[run[0]])  # of all samples of the run
                    yield blocks[part].take(chosen[run] - self.starts[part])

        return partial(index_file, file.temporary, types, file.write, blocks_of=blocks_of)

    def block(self, samples: NDArray[np.int64], page_size: int) -> _Block:
        """Collect the regions of some samples."""
        first = self._bounds[samples]
        count = self._bounds[samples + 1] - first
        owner = np.repeat(np.arange(len(samples)), count)
        rows = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        size = self._table["size"][rows]
        room = np.bincount(owner, np.maximum(size, 1), len(samples))
        sample = int(samples[room.argmax()])
        check_size(int(room.max()), page_size, f"{self.whole.title}: sample {sample}", sample)
        return _Block(samples, count, owner, *split_offsets(self._table["ptr"][rows]), size, self._sums[rows])

    def rows(self, block: _Block, new: NDArray[np.uint64]) -> NDArray[np.void]:
        """Make the metadata of a block, with pointers to where its regions go."""
        rows = np.zeros(len(block.samples), self.whole.metadata_type)
        moved = MovedRegions(block.count, block.old, block.size, new)
        for number, descriptor in enumerate(self.whole.descriptors):
            column = rows[f"f{number}"]
            column[:] = self._columns[number][block.samples]
            has_regions = self.whole.has_regions(descriptor.name)
            stored = self.whole.regions(descriptor.name).size[block.samples] if has_regions else None
            moved.update_pointers(column, descriptor.type_id, stored)
        return rows


def _runs(block: _Block, new: NDArray[np.uint64], sources: Sequence[ByteSource]) -> Iterator[tuple[slice, int, bytes]]:
    """Read regions that follow each other in both files together; give the regions, their new offset and bytes."""
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
    """Compute the checksums of some regions, and compare them with the recorded ones."""
    position = 0
    for region in range(run.start, run.stop):
        size = int(block.size[region])
        sums[region] = zlib.crc32(data[position : position + size])
        position += size
        if block.expected[region] not in (0, sums[region]):
            sample = int(block.samples[block.owner[region]])
            where = whole.origin(sample) or f"{whole.title}: sample {sample}"
            raise RegionError(
                f"{where}: a region of {size} bytes has the checksum {sums[region]:08x}, expected "
                f"{int(block.expected[region]):08x}. The file is damaged; "
                "`gpubeton verify` names all such samples."
            )


def _some(names: Sequence[str]) -> str:
    return f"{len(names)} beginning with {', '.join(map(repr, names[:3]))}"


def split(
    num_samples: int,
    shares: Sequence[float | int | None],
    *,
    labels: NDArray[np.int64] | None = None,
    shuffle: bool = True,
    seed: int = 0,
) -> list[NDArray[np.int64]]:
    """Divide samples into parts.

    Parameters
    ----------
    num_samples : int
        How many there are.
    shares : sequence of float, int or None
        Size of each part: a share of all samples up to 1.0 if it is a float, a number of samples if it is an int, the
        rest if it is None.
    labels : ndarray of int64, shape (num_samples,), optional
        The class of each sample. Each class is then divided in these proportions, up to rounding.
    shuffle : bool
        Whether the choice is random, by `seed`; otherwise the first part gets the first samples (of each class).
    seed : int
        For `shuffle`.

    Returns
    -------
    list of ndarray of int64
        The samples of each part, in ascending order. No sample is in two parts.

    Raises
    ------
    OptionError
        If there are not enough samples, a part is empty, or more than one is the rest.

    Examples
    --------
    >>> [part.tolist() for part in split(10, [0.5, 2, None], shuffle=False)]
    [[0, 1, 2, 3, 4], [5, 6], [7, 8, 9]]
    >>> [part.tolist() for part in split(6, [0.5, 0.5], labels=np.array([0, 0, 0, 0, 1, 1]), shuffle=False)]
    [[0, 1, 4], [2, 3, 5]]
    """
    counts = _counts(num_samples, shares)
    order = _order(num_samples, shuffle, seed)
    if labels is not None:
        # Each sample's place within its class, from 0 to 1. Sorted by it, every stretch has its share of each class.
        by_class = order[np.argsort(labels[order], kind="stable")]
        _, starts, sizes = np.unique(labels[by_class], return_index=True, return_counts=True)
        place = (np.arange(num_samples) - np.repeat(starts, sizes) + 0.5) / np.repeat(sizes, sizes)
        order = by_class[np.argsort(place, kind="stable")]
    ends = np.cumsum(counts)
    return [np.sort(order[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def choose(
    num_samples: int,
    *,
    indices: Sequence[int] | NDArray[np.int64] | None = None,
    labels: NDArray[np.int64] | None = None,
    classes: Collection[int] | None = None,
    per_class: int | None = None,
    count: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Choose samples.

    Parameters
    ----------
    num_samples : int
        How many there are.
    indices : sequence of int, optional
        Only these samples, in this order; one may occur more than once.
    labels : ndarray of int64, shape (num_samples,), optional
        The class of each sample, for `classes` and `per_class`.
    classes : collection of int, optional
        Only samples of these classes.
    per_class : int, optional
        Maximum number of samples of each class.
    count : int, optional
        Maximum number of samples.
    shuffle : bool
        Whether choice and order are random, by `seed`; otherwise the first ones, in order.
    seed : int
        For `shuffle`.

    Returns
    -------
    ndarray of int64, shape (N,)
        The chosen samples.

    Raises
    ------
    OptionError
        If an index is out of range, labels are needed and missing, or no sample is left.

    Examples
    --------
    >>> choose(6, labels=np.array([0, 1, 2, 0, 1, 2]), classes=[0, 2], per_class=1).tolist()
    [0, 2]
    """
    chosen = checked_samples(indices, num_samples)
    if (classes is not None or per_class is not None) and labels is None:
        raise OptionError("classes can only be chosen of a file with a field of labels; name it: --label FIELD")
    if shuffle:
        chosen = chosen[_order(len(chosen), shuffle, seed)]
    if classes is not None and labels is not None:
        chosen = chosen[np.isin(labels[chosen], list(classes))]
    if per_class is not None and labels is not None:
        by_class = np.argsort(labels[chosen], kind="stable")
        _, starts, sizes = np.unique(labels[chosen][by_class], return_index=True, return_counts=True)
        rank = np.arange(len(chosen)) - np.repeat(starts, sizes)
        chosen = chosen[np.sort(by_class[rank < per_class])]
    chosen = chosen[:count]
    if len(chosen) == 0:
        raise OptionError(f"no sample of {num_samples} is left; a file has at least 1")
    return chosen


def _order(count: int, shuffle: bool, seed: int) -> NDArray[np.int64]:
    order: NDArray[np.int64] = np.random.default_rng(seed).permutation(count) if shuffle else np.arange(count)
    return order


def _counts(num_samples: int, shares: Sequence[float | int | None]) -> list[int]:
    if sum(share is None for share in shares) > 1:
        raise OptionError("more than one part is to get the rest")
    for share in shares:
        if share is not None and (not share > 0 or (isinstance(share, float) and share > 1)):
            raise OptionError(
                f"a share of {share}, expected a part of 1 such as 0.9, or a number of samples such as 5000"
            )
    # Shares add up before they are rounded: of 3 samples, 0.5 and 0.5 are all 3.
    counts, done = [], 0.0
    for share in shares:
        before = done
        done += share * num_samples if isinstance(share, float) else 0.0
        counts.append(round(done) - round(before) if isinstance(share, float) else share or 0)
    rest = num_samples - sum(counts)
    if rest < 0:
        raise OptionError(f"the parts would get {sum(counts)} samples, but there are {num_samples}")
    counts = [rest if share is None else count for share, count in zip(shares, counts, strict=True)]
    if 0 in counts:
        raise OptionError(f"of {num_samples} samples, part {counts.index(0) + 1} would get none; a file has at least 1")
    return counts
