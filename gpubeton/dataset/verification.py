"""Verification: compare every byte of a file with checksums and metadata."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._machine import worker_count
from gpubeton._writing import find_all
from gpubeton.errors import BadImageError, EntryPointsError, FieldTypeError, FormatError, StorageError
from gpubeton.fields.codecs import CODECS, Codec
from gpubeton.fields.pixels import EMPTY, rgb_of_file, size_of_file
from gpubeton.fields.registry import CustomFields, open_single
from gpubeton.format.data_files import first_offset
from gpubeton.format.entry_points import read_beside, read_within
from gpubeton.format.file_notes import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpubeton._bytes import ByteSource, Progress
    from gpubeton.fields.base import Field
    from gpubeton.format import Index
    from gpubeton.format.entry_points import EntryBlock
    from gpubeton.format.field_arguments import ImageKind

#: Regions that a thread takes at a time, least and most, and bytes of them: one request of a remote file.
_REGIONS_AT_ONCE = 64, 4096
_BYTES_AT_ONCE = 4 << 20


@dataclass(frozen=True)
class Finding:
    """A fault of a file. Made by `verify`."""

    sample: int | None  #: the sample; None for a fault of the whole file
    field: str | None  #: the field; None for a fault of all fields, or if it is not known
    what: str  #: the fault: found and expected values


@dataclass(frozen=True)
class Verification:
    """The result of a verification. Made by `verify`."""

    path: str  #: the file
    samples: int  #: in the file, by its index
    regions: int  #: in the file, by its index
    decoded: dict[str, int]  #: image files that were decoded completely, by their kind: "jpg", "png"
    checksums: int  #: regions that were compared with a recorded checksum; 0 if the file has none
    findings: list[Finding] = field(default_factory=list)  #: all faults; empty for a sound file
    entry_points: int = 0  #: entry points of JPEG files that were compared with those found again

    @property
    def is_sound(self) -> bool:
        """Whether there are no faults."""
        return not self.findings

    @property
    def bad_samples(self) -> list[int]:
        """Samples with faults, each once, in order."""
        return sorted({finding.sample for finding in self.findings if finding.sample is not None})


def verify(
    path: str | os.PathLike[str],
    custom_fields: CustomFields | None = None,
    *,
    num_workers: int = -1,
    on_progress: Progress | None = None,
) -> Verification:
    """Read every region of a file, compare it with its checksum, decode every image file and parse every JSON.

    Entry points are compared with those found again. A file has checksums if it was made by ``gpubeton convert`` or by
    a `DatasetWriter` with ``notes``; ``gpubeton index`` stores those of another file in ``FILE.index``. Without them,
    changed raw pixels and numbers cannot be found. Labels and other numbers in the metadata have one checksum together,
    which is compared when a file is opened.

    Parameters
    ----------
    path : str or path
        The file.
    custom_fields : mapping of str to Field class, optional
        The class of each custom field.
    num_workers : int
        Threads; less than 1 means one for each core.
    on_progress : callable, optional
        Called with the number of finished regions and of all regions.

    Returns
    -------
    Verification
        The faults, and numbers of checked parts.

    Raises
    ------
    FieldTypeError
        If the class of a custom field is missing.
    StorageError
        If the file is changed or replaced while it is read.

    Examples
    --------
    >>> verify("train.beton").bad_samples
    []
    """
    try:
        index, fields = open_single(path, custom_fields)
    except FieldTypeError:
        raise
    except FormatError as error:
        return Verification(os.fspath(path), 0, 0, {}, 0, [Finding(None, None, str(error))])
    findings = [Finding(None, None, file.fault) for file in index.files if file.fault]
    sums = index.checksums if index.checksums.any() else None
    checker = _RegionChecker(index, fields, sums)
    for name, images in zip(index.names, checker.images, strict=True):
        empty = () if images is None else np.flatnonzero(index.regions(name).size == 0).tolist()
        findings += [Finding(sample, name, f"an image of 0 bytes: {EMPTY}") for sample in empty]
    rows, decoded = len(index.allocations), Counter[int | None]()
    threads = worker_count(num_workers)
    mean_size = index.allocations["size"].mean() if rows else 0
    at_once = int(np.clip(_BYTES_AT_ONCE / max(mean_size, 1), *_REGIONS_AT_ONCE))
    compared_entries = 0
    with ThreadPoolExecutor(threads) as pool:
        for number, file in enumerate(index.files):
            begin, end = np.searchsorted(index.allocations["ptr"], [first_offset(number), first_offset(number + 1)])
            with file.open() as source:
                parts = [(start, min(start + at_once, end)) for start in range(begin, end, at_once)]
                results = pool.map(partial(checker.check, source, first_offset(number)), parts)
                for (_, stop), (faults, modes) in zip(parts, results, strict=True):
                    findings += faults
                    decoded += modes
                    if on_progress is not None:
                        on_progress(stop, rows)
                compared_entries += _check_entry_points(index, number, threads, findings)
                file.identity.check(file.path, source.identity())
    findings.sort(key=lambda finding: -1 if finding.sample is None else finding.sample)
    if index.files[0].is_container:  # to name images by the files that they come from
        findings = [
            finding
            if finding.sample is None
            else replace(finding, what=f"{index.origin(finding.sample)}: {finding.what}")
            for finding in findings
        ]
    compared = 0 if sums is None else rows
    files = {codec.suffix: decoded[mode] for mode, codec in CODECS.items()}
    return Verification(os.fspath(path), index.num_samples, rows, files, compared, findings, compared_entries)


def _check_entry_points(index: Index, file: int, threads: int, findings: list[Finding]) -> int:
    """Compare the stored entry points of a file with those found again; return how many there are."""
    stored: dict[str, list[EntryBlock]] = {}
    for read in (read_beside, read_within):
        try:
            blocks_of = read(index, file)
        except StorageError:
            raise  # the file was replaced
        except (EntryPointsError, OSError) as error:
            findings.append(Finding(None, None, str(error)))
            continue
        for name, block in blocks_of.items():
            stored.setdefault(name, []).append(block)
    advice = f"make them again with gpubeton index --overwrite {index.path}"
    damaged, first = {finding.sample for finding in findings}, index.files[file].first_sample
    for name, blocks in stored.items():
        done = 0
        for expected, _, _ in find_all(index, name, file, threads, identity=index.files[file].identity):
            findings += [
                Finding(first + done + image, name, f"its entry points are not those of its bytes; {advice}")
                for block in blocks
                for image in range(len(expected.counts))
                if _bytes_of(block, done + image) != _bytes_of(expected, image) and first + done + image not in damaged
            ]
            done += len(expected.counts)
    return sum(len(block.entries) for blocks in stored.values() for block in blocks)


def _bytes_of(block: EntryBlock, image: int) -> tuple[bytes, bytes]:
    part = block.take(np.array([image]))
    return part.seals.tobytes(), part.entries.tobytes()


class _RegionChecker:
    """Checks regions in the order of the file, so that it is read once and sequentially."""

    def __init__(self, index: Index, fields: dict[str, Field], sums: NDArray[np.uint32] | None) -> None:
        self._index = index
        self._fields = list(fields.values())
        self.images = [field.images(index.column(name)) for name, field in fields.items()]
        self._sums = sums
        # (R,) number of the field of each region, -1 if only a custom field's class knows it
        self._field = np.full(len(index.allocations), -1, np.int64)
        pointers = index.allocations["ptr"]
        for number, name in enumerate(index.names):
            if index.has_regions(name) and len(pointers):
                regions = index.regions(name)
                # An empty region and the next one may begin at the same place: the second is meant.
                rows = np.searchsorted(pointers, regions.offset[regions.size > 0], side="right") - 1
                self._field[rows] = number

    def check(
        self, source: ByteSource, first: np.uint64, part: tuple[int, int]
    ) -> tuple[list[Finding], Counter[int | None]]:
        """Check some regions of a file; return the faults, and how many images of each `ImageMode` were decoded."""
        findings: list[Finding] = []
        modes: Counter[int | None] = Counter()
        rows = self._index.allocations[slice(*part)]
        starts = rows["ptr"] - first
        read = source.read
        if len(rows) and not (source.is_mappable or self._index.files[0].is_container):
            # They are sorted, and follow each other: read at once, since each request to a store takes long.
            begin = int(starts[0])
            whole = source.load(begin, int((starts + rows["size"]).max()) - begin)
            read = lambda start, size: bytes(whole[start - begin :][:size])  # noqa: E731
        columns = rows["sample_id"].tolist(), starts.tolist(), rows["size"].tolist()
        for row, (sample, offset, size) in enumerate(zip(*columns, strict=True), part[0]):
            number = int(self._field[row])
            name = self._index.names[number] if number >= 0 else None
            content = read(offset, size)
            images = self.images[number] if number >= 0 else None
            modes[None if images is None else int(images.mode[sample])] += 1
            try:
                findings += [Finding(sample, name, what) for what in self._faults(row, sample, number, size, content)]
            except Exception as error:  # noqa: BLE001 - a decoder that fails on one value must not end the report
                what = f"{size} bytes that cannot be decoded: {type(error).__name__}: {error}"
                findings.append(Finding(sample, name, what))
        return findings, modes

    def _faults(self, row: int, sample: int, number: int, size: int, content: bytes) -> Iterator[str]:
        if len(content) < size:
            yield f"{len(content)} bytes could be read, expected {size}"
            return
        if self._sums is not None and zlib.crc32(content) ^ int(self._sums[row]) not in (0, DAMAGED):
            yield (
                f"the checksum of its {size} bytes is {zlib.crc32(content):08x}, expected {self._sums[row]:08x}: "
                "they have changed since it was stored"
            )
        if number < 0:
            return
        metadata, images = self._index.column(self._index.names[number])[sample], self.images[number]
        if images is None:
            try:
                self._fields[number].read_value(metadata, content)
            except ValueError as error:
                yield f"{size} bytes that cannot be read: {error}"
        elif (codec := CODECS.get(images.mode[sample])) is not None:
            if self._index.files[0].is_container and not codec.start.match(content):
                codec = None
            yield from _image_faults(codec, content, metadata, images.kind)


def _image_faults(codec: Codec | None, content: bytes, metadata: Any, kind: ImageKind | None) -> Iterator[str]:
    """Decode an image file as a loader does; compare it with its metadata and with the kind of the field."""
    # Without a codec, it is one of the other kinds of files in containers.
    height, width = int(metadata["height"]), int(metadata["width"])
    name = f"a {codec.name} file" if codec is not None else "an image file"
    try:
        size = size_of_file(content) if codec is None else codec.size(content)
        if size != (height, width):  # and a file of another size could take any memory
            yield (
                f"{name} of {size[0]} x {size[1]} pixels (height x width), expected {height} x {width} by the metadata"
            )
            return
        if codec is None:
            rgb_of_file(content)
        else:
            codec.decode(content, kind, size)
    except BadImageError as error:
        yield f"{name} of {len(content)} bytes that cannot be decoded: {error}"
