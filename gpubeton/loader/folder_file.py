"""FolderFile: a folder of images as the bytes of the ``.beton`` file that `gpubeton convert` would make of it.

Nothing is written: a JPEG file that would be stored as it is, is read where it lies. All else is in memory: the header,
the metadata, and images that would be encoded again. Places in the file, and so orders and states, are the same, too.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
from gpubeton._bytes.descriptors import open_regular, read_into
from gpubeton._machine import count_cores
from gpubeton._sources.image_folder import ImageFolder
from gpubeton._writing.file_builder import FileBuilder, RegionSizes, make_descriptors
from gpubeton.errors import SampleError, StorageError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.jpeg import decode_rgb, read_frame
from gpubeton.fields.pixels import file_content
from gpubeton.format.layout import IMAGE_DTYPE, PAGE_SIZE_DEFAULT, ImageMode, metadata_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from gpubeton._bytes.remote_options import RemoteOptions

SCHEME = "folder"

#: Bytes of a JPEG file that are read to find its size: more only if these do not hold it.
_HEAD = 1 << 14
_TAIL = 64
#: Memory for images that are encoded again.
_MOST_BYTES = 1 << 30
#: Bad images that an error names.
_MOST_NAMED = 10


@dataclass(frozen=True)
class FolderIdentity(SourceIdentity):
    """Identity of a folder: of the names, sizes and times of its images. It holds the memory of the file."""

    digest: str
    parts: _Parts = field(compare=False, repr=False)

    def is_same_source(self, other: SourceIdentity) -> bool:
        return isinstance(other, FolderIdentity)

    def check(self, name: str, found: SourceIdentity) -> None:
        if found != self:
            raise StorageError(
                f"{name}: images in it were added, removed or changed since it was opened. Make a new Loader, or "
                "convert the folder: gpubeton convert"
            )


@dataclass(frozen=True)
class _Listing:
    """The images of a folder, as they are now."""

    path: str
    digest: str  # of all below
    images: ImageFolder = field(compare=False)
    states: tuple[tuple[int, int], ...] = field(compare=False)  # size and time of each image

    @classmethod
    def of(cls, path: str) -> _Listing:
        images = ImageFolder(path, flat=True)
        found = [os.stat(each) for each in images.files]  # noqa: PTH116  text, not a Path for each
        states = tuple((each.st_size, each.st_mtime_ns) for each in found)
        digest = blake2b(repr((images.files, images.labels, images.classes, states)).encode("utf-8", "replace"))
        return cls(path, digest.hexdigest(), images, states)


@dataclass(frozen=True)
class _Stored:
    """An image as the file would store it."""

    row: NDArray[Any]  # (1,) IMAGE_DTYPE
    size: int  # bytes of its region
    content: bytes | None  # None if that is its file


class FolderFile(ByteSource):
    """A folder of images, see the module."""

    is_local = True
    is_versioned = True

    def __init__(self, name: str, identity: FolderIdentity) -> None:
        super().__init__(name, identity.size)
        self._identity = identity

    @classmethod
    def open(cls, name: str, size: int, *, is_random: bool) -> FolderFile:  # noqa: ARG003
        listing = _Listing.of(name.removeprefix(f"{SCHEME}://"))
        return cls(name, _living.get(listing.digest) or _lay_out(listing))

    @classmethod
    def open_checked(
        cls,
        name: str,
        identity: SourceIdentity | None,
        *,
        is_random: bool,
        remote: RemoteOptions | None = None,  # noqa: ARG003
    ) -> FolderFile:
        source = cls.open(name, 0, is_random=is_random)
        if identity is not None:
            identity.check(name, source.identity())
        return source

    @classmethod
    def find_identity(cls, name: str) -> SourceIdentity:
        return cls.open(name, 0, is_random=True).identity()

    def identity(self) -> FolderIdentity:
        return self._identity

    def read_into(self, start: int, target: memoryview) -> int:
        return self._identity.parts.read_into(start, target[: max(self.size - start, 0)])

    def close(self) -> None:
        """Do nothing: each file is closed when its bytes are read."""


class _Parts:
    """The parts of the file: bytes in memory, and files; zeros between them."""

    def __init__(self) -> None:
        self._found: list[tuple[int, Any]] = []  # offset, and bytes or the number of an image

    def write(self, offset: int, content: Buffer) -> None:
        """Put bytes at a place."""
        self._found.append((offset, bytes(content)))

    def finish(self, listing: _Listing, images: Sequence[_Stored], offsets: NDArray[np.uint64]) -> FolderIdentity:
        """Put the images at their places; the identity holds these parts."""
        self._listing = listing
        for number, (image, offset) in enumerate(zip(images, offsets.tolist(), strict=True)):
            self._found.append((offset, number if image.content is None else image.content))
        self._found.sort(key=lambda part: part[0])
        self._starts = [start for start, _ in self._found]
        last, content = self._found[-1]
        return FolderIdentity(last + len(content), listing.digest, self)

    def read_into(self, start: int, target: memoryview) -> int:
        """Fill a buffer with the bytes from `start` on."""
        stop = start + len(target)
        target[:] = bytes(len(target))
        first = max(bisect_right(self._starts, start) - 1, 0)
        for place, content in self._found[first : bisect_right(self._starts, stop - 1)]:
            size = self._listing.states[content][0] if isinstance(content, int) else len(content)
            begin, end = max(start, place), min(stop, place + size)
            if begin >= end:
                continue
            part = target[begin - start : end - start]
            if isinstance(content, int):
                self._read_file(content, begin - place, part)
            else:
                part[:] = content[begin - place : end - place]
        return len(target)

    def _read_file(self, number: int, start: int, target: memoryview) -> None:
        path = self._listing.images.files[number]
        with open(path, "rb", buffering=0) as file:
            done = 0
            while done < len(target) and (count := read_into(file.fileno(), target[done:], start + done)):
                done += count
            found = os.fstat(file.fileno())  # after reading: the image may be written meanwhile
        if (found.st_size, found.st_mtime_ns) != self._listing.states[number] or done < len(target):
            raise StorageError(
                f"{path}: this image was changed since the folder was opened. Make a new Loader, or convert the "
                "folder: gpubeton convert"
            )


#: Of the folders that loaders have open, by their digests: a loader opens its file several times.
_living: WeakValueDictionary[str, FolderIdentity] = WeakValueDictionary()


def _lay_out(listing: _Listing) -> FolderIdentity:
    """Lay out the file of a folder."""
    fields: dict[str, Any] = {"image": RGBImageField(write_mode="jpg")}
    images, kept = listing.images, 0
    stored: list[_Stored] = []
    bad: dict[int, str] = {}  # reasons, by the number of the image
    if images.labels is not None:
        fields["label"] = IntField()
    with ThreadPoolExecutor(2 * count_cores(), "gpubeton-folder") as threads:
        for number, each in enumerate(threads.map(partial(_store, fields["image"]), images.files, listing.states)):
            if isinstance(each, str):
                bad[number] = each
                continue
            stored.append(each)
            kept += len(each.content or b"")
            if kept > _MOST_BYTES:
                threads.shutdown(cancel_futures=True)
                raise SampleError(
                    f"{listing.path}: images that are no baseline JPEG files are encoded when the folder is opened, "
                    f"and take more than {_MOST_BYTES >> 30} GiB of memory. Convert the folder: gpubeton convert",
                    number,
                )
    if bad:
        named = list(bad.values())[:_MOST_NAMED]
        more = [f"and {len(bad) - _MOST_NAMED} more"] * (len(bad) > _MOST_NAMED)
        raise SampleError(
            f"{listing.path}: {len(bad)} of {len(stored) + len(bad)} images cannot be read: {'; '.join(named + more)}. "
            "Mend or remove them, or convert the folder without them: gpubeton convert --on-error skip",
            min(bad),
        )
    sizes = np.array([each.size for each in stored], np.int64)
    rows = np.zeros(len(stored), metadata_dtype([each.metadata_type for each in fields.values()]))
    page_size = max(PAGE_SIZE_DEFAULT, 1 << (int(sizes.max()) - 1).bit_length())
    parts = _Parts()
    builder = FileBuilder(parts, make_descriptors(fields), rows.itemsize, page_size, len(rows))
    offsets = builder.place(0, RegionSizes(np.ones(len(sizes), np.int64), sizes)).offset
    rows["f0"] = np.concatenate([each.row for each in stored])
    rows["f0"]["data_ptr"] = offsets
    if images.labels is not None:
        rows["f1"] = images.labels
    builder.finish({"class_names": list(images.classes)} if images.classes else {})
    parts.write(builder.metadata_offset, rows.tobytes())
    return _living.setdefault(listing.digest, parts.finish(listing, stored, offsets))


def _store(images: RGBImageField, path: str, state: tuple[int, int]) -> _Stored | str:
    """Find out how the file would store an image, or why it cannot."""
    size, row = state[0], np.zeros(1, IMAGE_DTYPE)
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD)
            file.seek(max(size - _TAIL, 0))
            frame = read_frame(head + file.read(_TAIL))
        if frame is not None and frame.is_baseline:
            row["mode"], row["height"], row["width"] = ImageMode.JPG, frame.height, frame.width
            return _Stored(row, size, None)
        content = file_content(path)
        assert content is not None
        frame = read_frame(content)
        keeper = _Keeper()
        is_decoded = frame is not None and not frame.is_baseline  # as `convert` does it, strictly
        images.encode(row, decode_rgb(content) if is_decoded else content, keeper)
    except Exception as error:  # noqa: BLE001  decoders raise all kinds
        return f"{path}: {type(error).__name__}: {error}"
    stored = keeper.content.tobytes()
    return _Stored(row, len(stored), None if stored == content else stored)


class _Keeper:
    """Gives memory for a region, and keeps it."""

    sample = 0

    def __call__(self, size: int) -> tuple[int, NDArray[np.uint8]]:
        self.content = np.zeros(size, np.uint8)
        return 0, self.content
