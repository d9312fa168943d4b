"""FileList: many files of this machine or of a store, and ListedFiles: their bytes as those of one file."""

from __future__ import annotations

import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import PurePath
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
from gpubeton._bytes.local_file import open_descriptor, read_into
from gpubeton._bytes.object_store import ObjectIdentity, head_object, list_tree, read_listed
from gpubeton._bytes.store_client import RemoteOptions
from gpubeton.errors import FormatError, OptionError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from typing_extensions import Buffer

SCHEME = "files"
"""Scheme of the name of such a source, ``files://ROOT``."""

#: Each file begins at a multiple of it; between them are zeros.
_ALIGNMENT = 16
#: Files that a thread looks at in one go at most, and the threads: a network's file system answers many at a time.
_AT_ONCE, _NUM_THREADS = 1000, 16
_HEADER = np.dtype([("files", "<u8"), ("name_bytes", "<u8"), ("root_bytes", "<u8")])
_FILE_BYTES = 8 + 8 + 4  # of each file, without its name
_MOST_BYTES = 1 << 62
_DOT, _SLASH = b"./"
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would wait for a process that writes to it


@dataclass(frozen=True, eq=False)
class FileList:
    """Files or objects as they were when they were listed; a name is a path from the root on, or absolute."""

    root: str
    names: NDArray[np.uint8]  # one after the other
    stops: NDArray[np.uint32]  # (N,) end of each name
    sizes: NDArray[np.int64]  # (N,) bytes; 0 of one that was missing, or no regular file
    times: NDArray[np.int64]  # (N,) of the last change, nanoseconds since 1970; of objects `ObjectIdentity.state`
    remote: RemoteOptions | None = None  # None for files of this machine

    @classmethod
    def of(
        cls,
        root: str,
        names: Sequence[str],
        remote: RemoteOptions | None = None,
        states: NDArray[np.int64] | None = None,  # (N, 2) sizes and times, if they are known
    ) -> FileList:
        """List files as they are now."""
        remote = remote or RemoteOptions() if "://" in root else None
        if states is None:
            num_threads = _NUM_THREADS if remote is None else remote.requests
            with ThreadPoolExecutor(num_threads, "gpubeton-list") as threads:
                known = {"": [0, 0]}
                if remote is not None and len(names) > 10:
                    # Azure lists all objects before a part, too.
                    order, count = sorted(names), len(names) if root.startswith("az:") else _AT_ONCE
                    runs = [order[start : start + count] for start in range(0, len(names), count)]
                    with suppress(OptionError, StorageError):  # single objects will show whether more fails than lists
                        for listed, listed_states in threads.map(partial(list_tree, path_of(root, ""), remote), runs):
                            known.update(zip(listed, listed_states.tolist(), strict=True))
                count = max(1, min(_AT_ONCE, len(names) // (4 * num_threads)))
                parts = [names[start : start + count] for start in range(0, len(names), count)]
                parts_states = threads.map(partial(_states, root, remote, known), parts)
                states = np.concatenate([np.zeros((0, 2), np.int64), *parts_states])
        encoded = [os.fsencode(name) for name in names]
        stops = np.cumsum([len(name) for name in encoded], dtype=np.int64)
        if len(names) and stops[-1] >= 1 << 32:
            raise OptionError(f"{root}: the names of its files have {stops[-1]} bytes; expected less than 4 GiB")
        text = np.frombuffer(b"".join(encoded), np.uint8)
        return cls(root, text, stops.astype(np.uint32), states[:, 0].copy(), states[:, 1].copy(), remote)

    @classmethod
    def from_bytes(cls, content: Buffer) -> FileList:
        """Take a list from the bytes of `to_bytes`, without a copy; `FormatError` if they are none."""
        data = np.frombuffer(memoryview(content), np.uint8)
        if len(data) < _HEADER.itemsize:
            raise FormatError(f"a list of files of {len(data)} bytes; expected at least {_HEADER.itemsize}")
        files, name_bytes, root_bytes = data[: _HEADER.itemsize].view(_HEADER)[0].item()
        size = _HEADER.itemsize + files * _FILE_BYTES + name_bytes + root_bytes
        if len(data) != size:
            raise FormatError(f"a list of {files} files has {len(data)} bytes; expected {size}. It is damaged.")
        bounds = np.cumsum([_HEADER.itemsize, 8 * files, 8 * files, 4 * files, root_bytes, name_bytes]).tolist()
        sizes, times, stops, root, names = (data[start:stop] for start, stop in itertools.pairwise(bounds))
        listed = cls(os.fsdecode(root.tobytes()), names, stops.view("<u4"), sizes.view("<i8"), times.view("<i8"))
        ends = np.concatenate([[0], listed.stops.astype(np.int64)])
        if (np.diff(ends) < 0).any() or ends[-1] != name_bytes:
            raise FormatError(f"a list of {files} files: the ends of their names are not in order. It is damaged.")
        if (listed.sizes < 0).any() or listed.sizes.sum(dtype=np.float64) + files * _ALIGNMENT >= _MOST_BYTES:
            raise FormatError(f"a list of {files} files: a size is negative or beyond any disk. It is damaged.")
        return listed

    def to_bytes(self) -> bytes:
        """Give the list as bytes."""
        root = os.fsencode(self.root)
        header = np.array([(len(self.sizes), len(self.names), len(root))], _HEADER)
        columns = self.sizes.astype("<i8"), self.times.astype("<i8"), self.stops.astype("<u4")
        return b"".join([header.tobytes(), *(column.tobytes() for column in columns), root, self.names.tobytes()])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each file begins, (N,)."""
        stops = np.cumsum(-(-self.sizes // _ALIGNMENT) * _ALIGNMENT)
        return np.concatenate([[0], stops[:-1]]).astype(np.int64)[: len(stops)]

    @property
    def size(self) -> int:
        """Bytes of all files and of the zeros between them."""
        return int(self.starts[-1] + self.sizes[-1]) if len(self.sizes) else 0

    @property
    def outside(self) -> list[str]:
        """Names of files that may lie outside the root: absolute ones, and those with ``..``."""
        dots = np.flatnonzero((self.names[:-1] == _DOT) & (self.names[1:] == _DOT))
        slashes = np.flatnonzero(self.names == _SLASH)
        slashes = slashes[np.isin(slashes, np.concatenate([[0], self.stops]))]
        numbers = np.unique(np.searchsorted(self.stops, np.concatenate([dots, slashes]), "right")).tolist()
        if os.name == "nt":  # names may begin with a drive
            numbers = list(range(len(self.sizes)))
        paths = [PurePath(self._name(number)) for number in numbers]
        return [str(path) for path in paths if path.anchor or path.drive or ".." in path.parts]

    def path(self, number: int) -> str:
        """Give the path of a file."""
        return path_of(self.root, self._name(number))

    def path_at(self, position: int, number: int) -> str:
        """Give the path of the file at a position: of file `number` if it begins there."""
        # An empty file has the place of the one after it.
        if not (number < len(self.starts) and self.starts[number] == position):
            number = int(np.searchsorted(self.starts, position, "right")) - 1
        return self.path(number)

    def _name(self, number: int) -> str:
        start = int(self.stops[number - 1]) if number else 0
        return os.fsdecode(self.names[start : int(self.stops[number])].tobytes())

    def read(self, number: int) -> bytes:
        """Read a file; `StorageError` if it is not the one that was listed."""
        content = bytearray(int(self.sizes[number]))
        self.read_into(number, 0, memoryview(content))
        return bytes(content)

    def read_into(self, number: int, start: int, target: memoryview, is_closed: threading.Event | None = None) -> None:
        """Fill a buffer from a file on from `start`; `StorageError` if it is not the one that was listed."""
        path, state = self.path(number), (int(self.sizes[number]), int(self.times[number]))
        if self.remote is not None:
            if target:
                target[:] = read_listed(path, start, start + len(target), state, self.remote, is_closed)
            return
        try:
            descriptor = open_descriptor(path, os.O_RDONLY | _NONBLOCK)
            try:
                done = 0
                while done < len(target) and (count := read_into(descriptor, target[done:], start + done)):
                    done += count
                status = os.fstat(descriptor)  # after reading: it may be written meanwhile
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise StorageError(
                f"{path}: {reason}, but it was a file of {state[0]} bytes when it was listed. {_ADVICE}"
            ) from error
        if (status.st_size, status.st_mtime_ns) != state or done < len(target):
            raise StorageError(
                f"{path}: {status.st_size} bytes, changed at {status.st_mtime_ns / 1e9:.3f} s since 1970; when it was "
                f"listed it had {state[0]}, changed at {state[1] / 1e9:.3f}. {_ADVICE}"
            )


_ADVICE = "List the files again: make a new Loader, or a new index (gpubeton index)."


def path_of(root: str, name: str) -> str:
    """Give the path or the URL of a file; a URL lies below the root, whatever the name is."""
    return f"{root.rstrip('/')}/{name}" if "://" in root else os.path.join(root, name)  # noqa: PTH118  a text


def _states(
    root: str, remote: RemoteOptions | None, known: dict[str, list[int]], names: Sequence[str]
) -> NDArray[np.int64]:
    """Find the size and the time of the last change of files, (N, 2)."""
    return np.array([known.get(name) or _state(path_of(root, name), remote) for name in names], np.int64)


def _state(path: str, remote: RemoteOptions | None) -> tuple[int, int]:
    try:
        if remote is not None:
            identity = head_object(path, remote)
            return identity.size, identity.state
        status = os.stat(path)  # noqa: PTH116  text, not a Path for each
    except (OSError, ValueError) as error:  # a name with a zero byte
        if remote is None or isinstance(error, FileNotFoundError):
            return 0, 0
        raise
    return (status.st_size, status.st_mtime_ns) if S_ISREG(status.st_mode) else (0, 0)


@dataclass(frozen=True)
class FileListIdentity(SourceIdentity):
    """Identity of listed files: of their names, sizes and times. It holds the list, without which none can be read."""

    digest: str
    files: FileList = field(compare=False, repr=False)

    @classmethod
    def of(cls, files: FileList) -> FileListIdentity:
        """Identify the files of a list."""
        return cls(files.size, blake2b(files.to_bytes(), digest_size=16).hexdigest(), files)

    @property
    def name(self) -> str:
        """The name of their source."""
        return f"{SCHEME}://{self.files.root}"

    @property
    def remote(self) -> RemoteOptions | None:
        return self.files.remote

    @property
    def cache_key(self) -> str | None:
        if self.remote is None or self.files.root.startswith("http"):  # the ETag of a web server may be a weak one
            return None
        return ObjectIdentity(self.size, self.files.root, self.digest, remote=self.remote).cache_key

    def is_same_source(self, other: SourceIdentity) -> bool:
        return isinstance(other, FileListIdentity) and self.name == other.name

    def check(self, name: str, current: SourceIdentity) -> None:
        if current != self:
            raise StorageError(f"{name}: files of it were added, removed or changed since they were listed. {_ADVICE}")


class ListedFiles(ByteSource):
    """The bytes of listed files, one after the other. Each read compares its files with the list."""

    is_local = True
    is_versioned = True
    max_gap = -1

    def __init__(self, identity: FileListIdentity) -> None:
        super().__init__(identity.name, identity.size)
        self._identity, self._is_closed = identity, threading.Event()
        if identity.remote is not None:
            self.num_readers = identity.remote.requests

    @classmethod
    def open_checked(cls, name: str, identity: SourceIdentity | None, **_: Any) -> ListedFiles:
        return cls(identity if isinstance(identity, FileListIdentity) else cls.find_identity(name))

    @classmethod
    def find_identity(cls, name: str) -> FileListIdentity:
        raise StorageError(f"{name}: such files can be opened only by the list of them. {_ADVICE}")

    def identity(self) -> FileListIdentity:
        return self._identity

    def read_into(self, start: int, target: memoryview) -> int:
        files, stop = self._identity.files, min(start + len(target), self.size)
        if stop <= start:
            return 0
        done = start  # everything before it is filled
        first = int(np.searchsorted(files.starts, start, "right")) - 1
        for number in range(first, int(np.searchsorted(files.starts, stop, "left"))):
            begin = int(files.starts[number])
            low, high = max(start, begin), min(stop, begin + int(files.sizes[number]))
            if low < high:
                target[done - start : low - start] = bytes(low - done)
                files.read_into(number, low - begin, target[low - start : high - start], self._is_closed)
                done = high
        target[done - start : stop - start] = bytes(stop - done)
        return stop - start

    def reload(self, start: int, size: int) -> bool:
        return self._identity.remote is not None  # each request brings new bytes

    def interrupt(self) -> None:
        self._is_closed.set()

    def close(self) -> None:
        """Do nothing: each file is closed when its bytes are read."""


class ListedObjects(ListedFiles):
    """The bytes of listed objects of a store, each of which takes a request."""

    is_local = False
