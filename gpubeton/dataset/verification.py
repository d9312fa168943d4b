"""Verification: compare every byte of a file with checksums and metadata."""

from __future__ import annotations

import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._cpu.fallback import UndecodableError, decode_rgb, jpeg_size
from gpubeton._machine import count_cores
from gpubeton._writing.find_entry_points import find_blocks
from gpubeton.dataset.contents import decode_png_file
from gpubeton.errors import EntryPointsError, FieldTypeError, FormatError, NotesError, StorageError
from gpubeton.fields.registry import CustomFields, open_single
from gpubeton.format import ImageMode, Index, read_notes
from gpubeton.format.entry_points import read_beside, read_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from gpubeton._bytes.byte_source import ByteSource
    from gpubeton.fields.base import Field
    from gpubeton.format.entry_points import EntryBlock
    from gpubeton.format.field_arguments import ImageKind

#: Regions that a thread takes at a time, least and most, and bytes of them: one request of a remote file.
_REGIONS_AT_ONCE = 64, 4096
_BYTES_AT_ONCE = 4 << 20


@dataclass(frozen=True)
class Finding:
    """A fault of a file.

    Made by `verify`.

    Attributes
    ----------
    sample : int or None
        The sample; None for a fault of the whole file.
    field : str or None
        The field; None for a fault of all fields, or if it is not known.
    what : str
        The fault: found and expected values.
    """

    sample: int | None
    field: str | None
    what: str


@dataclass(frozen=True)
class Verification:
    """The result of a verification.

    Made by `verify`.

    Attributes
    ----------
    path : str
        The file.
    samples, regions : int
        Numbers of both in the file, by its index.
    decoded : int
        JPEG files that were decoded completely.
    decoded_png : int
        PNG files that were decoded completely.
    checksums : int
        Regions that were compared with a recorded checksum; 0 if the file has none.
    findings : list of Finding
        All faults. Empty for a sound file.
    entry_points : int
        Entry points of JPEG files that were compared with those found again.
    """

    path: str
    samples: int
    regions: int
    decoded: int
    checksums: int
    findings: list[Finding] = field(default_factory=list)
    decoded_png: int = 0
    entry_points: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether there are no faults."""
        return not self.findings

    @property
    def bad_samples(self) -> list[int]:
        """Samples with faults, each once, in order."""
        return sorted({finding.sample for finding in self.findings if finding.sample is not None})

    def to_dict(self) -> dict[str, Any]:
        """Convert the result to values that JSON can hold.

        Returns
        -------
        dict
            The attributes.
        """
        return {"sound": self.is_sound, "bad_samples": self.bad_samples, **asdict(self)}


def verify(
    path: str | os.PathLike[str],
    custom_fields: CustomFields | None = None,
    *,
    num_workers: int = -1,
    on_progress: Callable[[int, int], object] | None = None,
) -> Verification:
    """Read every region of a file, compare it with its checksum, decode every JPEG and PNG and parse every JSON.

    Entry points are compared with those found again. A file has checksums if it was made by ``gpubeton convert`` or by
    a `DatasetWriter` with ``notes``; ``gpubeton index`` stores those of another file in ``FILE.index``. Without them,
    changed raw pixels and numbers cannot be found.

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
    OSError
        If the file cannot be read.

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
        return Verification(os.fspath(path), 0, 0, 0, 0, [Finding(None, None, str(error))])
    identity = index.files[0].identity
    findings: list[Finding] = []
    sums: NDArray[np.uint32] | None = None
    try:
        notes = read_notes(index.files[0].path, identity)
        sums = None if notes is None else notes.checksums
    except NotesError as error:
        findings.append(Finding(None, None, str(error)))
    if sums is None and index.checksums.any():
        sums = index.checksums  # of FILE.index
    checker = _RegionChecker(index, fields, sums)
    rows, decoded = len(index.allocations), np.zeros(2, np.int64)
    threads = num_workers if num_workers >= 1 else count_cores()
    with index.files[0].open() as source, ThreadPoolExecutor(threads) as pool:
        mean_size = index.allocations["size"].mean() if rows else 0
        at_once = int(np.clip(_BYTES_AT_ONCE / max(mean_size, 1), *_REGIONS_AT_ONCE))
        starts = range(0, rows, at_once)
        results = pool.map(lambda start: checker.check(source, start, start + at_once), starts)
        for start, (found, *numbers) in zip(starts, results, strict=True):
            findings += found
            decoded += numbers
            if on_progress is not None:
                on_progress(min(start + at_once, rows), rows)
        compared_entries = _check_entry_points(index, threads, findings)
        identity.check(os.fspath(path), source.identity())
    findings.sort(key=lambda finding: -1 if finding.sample is None else finding.sample)
    compared = 0 if sums is None else rows
    jpg, png = decoded.tolist()
    return Verification(os.fspath(path), index.num_samples, rows, jpg, compared, findings, png, compared_entries)


def _check_entry_points(index: Index, threads: int, findings: list[Finding]) -> int:
    """Compare stored entry points with those found again; return how many there are."""
    stored: dict[str, list[EntryBlock]] = {}
    for read in (read_beside, read_within):
        try:
            found = read(index)
        except StorageError:
            raise  # the file was replaced
        except (EntryPointsError, OSError) as error:
            findings.append(Finding(None, None, str(error)))
            continue
        for name, block in found.items():
            stored.setdefault(name, []).append(block)
    advice = f"make them again with gpubeton index --overwrite {index.path}"
    damaged = {finding.sample for finding in findings}
    for name, blocks in stored.items():
        done = 0
        for expected in find_blocks(index, name, threads, identity=index.files[0].identity):
            for block in blocks:
                own = block.take(np.arange(done, done + len(expected.counts)))
                samples = [done + image for image in _differences(own, expected)]
                findings += [
                    Finding(sample, name, f"its entry points are not those of its bytes; {advice}")
                    for sample in samples
                    if sample not in damaged
                ]
            done += len(expected.counts)
    return sum(len(block.entries) for blocks in stored.values() for block in blocks)


def _differences(found: EntryBlock, expected: EntryBlock) -> list[int]:
    """List the images whose entry points or seals differ."""
    return [
        image
        for image in range(len(expected.counts))
        if found.seals[image] != expected.seals[image]
        or found.take(np.array([image])).entries.tobytes() != expected.take(np.array([image])).entries.tobytes()
    ]


class _Span:
    """Regions that follow each other in a file, read at once: each request to a store takes long."""

    def __init__(self, source: ByteSource, rows: NDArray[np.void]) -> None:
        # Allocations are checked: they lie in the file, and are sorted.
        self._first = int(rows["ptr"].min(initial=source.size))
        stop = int((rows["ptr"] + rows["size"]).max(initial=self._first))
        self._content = source.load(self._first, stop - self._first)

    def read(self, start: int, size: int) -> bytes:
        """Give one of the regions."""
        return bytes(self._content[start - self._first :][:size])


class _RegionChecker:
    """Checks regions in the order of the file, so that it is read once and sequentially."""

    def __init__(self, index: Index, fields: dict[str, Field], sums: NDArray[np.uint32] | None) -> None:
        self._index = index
        self._fields = list(fields.values())
        self._images = [field.images(index.column(name)) for name, field in fields.items()]
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

    def check(self, source: ByteSource, start: int, stop: int) -> tuple[list[Finding], int, int]:
        """Check some regions; return the faults, and how many JPEG and PNG files were decoded."""
        findings: list[Finding] = []
        jpg = png = 0
        rows = self._index.allocations[start:stop]
        read = source.read if source.is_mappable else _Span(source, rows).read
        for row, (sample, offset, size) in enumerate(rows.tolist(), start):
            number = int(self._field[row])
            name = self._index.names[number] if number >= 0 else None
            content = read(offset, size)
            mode = self._mode(number, sample)
            jpg += mode == ImageMode.JPG
            png += mode == ImageMode.PNG
            try:
                findings += [Finding(sample, name, what) for what in self._faults(row, sample, number, size, content)]
            except Exception as error:  # noqa: BLE001 - a decoder that fails on one value must not end the report
                what = f"{size} bytes that cannot be decoded: {type(error).__name__}: {error}"
                findings.append(Finding(sample, name, what))
        return findings, jpg, png

    def _faults(self, row: int, sample: int, number: int, size: int, content: bytes) -> Iterator[str]:
        if len(content) < size:
            yield f"{len(content)} bytes could be read, expected {size}"
            return
        if self._sums is not None and zlib.crc32(content) != self._sums[row]:
            yield (
                f"the checksum of its {size} bytes is {zlib.crc32(content):08x}, expected {self._sums[row]:08x}: "
                "they have changed since it was stored"
            )
        if number < 0:
            return
        metadata, images = self._index.column(self._index.names[number])[sample], self._images[number]
        match self._mode(number, sample):
            case ImageMode.JPG:
                yield from _image_faults("JPEG", content, metadata, None)
            case ImageMode.PNG:
                yield from _image_faults("PNG", content, metadata, None if images is None else images.kind)
            case None:
                try:
                    self._fields[number].read_value(metadata, content)
                except ValueError as error:
                    yield f"{size} bytes that cannot be read: {error}"

    def _mode(self, number: int, sample: int) -> int | None:
        """Return the `ImageMode` of an image; None for other values."""
        images = self._images[number] if number >= 0 else None
        return None if images is None else int(images.mode[sample])


def _image_faults(name: str, content: bytes, metadata: Any, kind: ImageKind | None) -> Iterator[str]:
    """Decode a JPEG or PNG file; compare it with its metadata and with the kind of the field."""
    expected = int(metadata["height"]), int(metadata["width"])
    try:
        if name == "JPEG":
            size = jpeg_size(content)
            if size == expected:  # a file of another size could take any memory
                decode_rgb(content)
        else:
            pixels = decode_png_file(content)
            height, width, channels = pixels.shape
            size = height, width
            if kind is not None and (channels, pixels.dtype) != (kind.channels, kind.dtype):
                yield (
                    f"a PNG file of {channels} channels of {pixels.dtype}, but the field holds images of kind "
                    f"{kind.name}"
                )
        if size != expected:
            yield (
                f"a {name} file of {size[0]} x {size[1]} pixels (height x width), expected {expected[0]} x "
                f"{expected[1]} by the metadata"
            )
    except (UndecodableError, OSError, ValueError) as error:
        yield f"a {name} file of {len(content)} bytes that cannot be decoded: {error}"
