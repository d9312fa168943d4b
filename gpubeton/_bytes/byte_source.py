"""ByteSource: the bytes of one file, wherever it is; readers and loaders reach every file through it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._bytes.store_client import shown
from gpubeton.errors import FormatError, StorageError, TruncatedError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from gpubeton._bytes.store_client import RemoteOptions


@dataclass(frozen=True)
class SourceIdentity(ABC):
    """Identifies one state of one file, to see that it has not changed since it was checked."""

    size: int  # bytes of the file

    @property
    def cache_key(self) -> str | None:
        """Name this state of this file for a cache, alike in every run; None if a change could leave the name alike."""
        return None

    @property
    def remote(self) -> RemoteOptions | None:
        """How its store is reached; None for a file of this machine."""
        return None

    @abstractmethod
    def is_same_source(self, other: SourceIdentity) -> bool:
        """Whether both are states of one file, which may have been written to in between."""

    @abstractmethod
    def check(self, name: str, current: SourceIdentity) -> None:
        """Raise `StorageError` if `current`, the identity of the file now, is another one."""


class ByteSource(ABC):
    """The bytes of one open file. Safe to use from several threads.

    A kind that holds a descriptor lets it go in `__del__`. Those that wrap another source have none: objects are
    deleted at any time, also while their thread has a lock that `close` of the other takes.
    """

    is_mappable: ClassVar[bool] = False  # whether `map` works
    is_local: ClassVar[bool] = False  # whether its bytes are on this machine, or as near as a disk
    is_versioned: ClassVar[bool] = False  # whether each read checks that the file has not changed
    max_gap: ClassVar[int] = 256 << 10  # bytes that are read through: they cost less than another read or request
    num_readers: int = 8  # reads in flight that keep a source busy: eight do for a solid-state drive

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size  # when the file was checked

    @classmethod
    def open(cls, name: str, size: int, *, is_random: bool) -> Self:  # noqa: ARG003  some kinds find it themselves
        """Open a file that had `size` bytes; with `is_random` it is read in random order."""
        return cls.open_checked(name, None, is_random=is_random)

    @classmethod
    def find_identity(cls, name: str) -> SourceIdentity:
        """Find the identity of a file without opening it."""
        raise TypeError(f"{name}: a {cls.__name__} is asked for its identity when it is open")

    @classmethod
    def open_checked(
        cls,
        name: str,
        identity: SourceIdentity | None,
        *,
        is_random: bool,
        remote: RemoteOptions | None = None,  # noqa: ARG003  for those in object stores
    ) -> Self:
        """Open a file, `StorageError` if it has another identity."""
        current = cls.find_identity(name)  # it raises if opening would block, as with a pipe
        source = cls.open(name, (identity or current).size, is_random=is_random)
        if identity is not None:
            try:
                identity.check(name, source.identity())
            except BaseException:
                source.close()  # not only when the error and its traceback are gone
                raise
        return source

    @classmethod
    def known_identity(cls, *_: Any, **__: Any) -> SourceIdentity | None:
        """Make the identity of a file of known name, size, ETag and store; None if it has to be looked at."""
        return None

    @abstractmethod
    def identity(self) -> SourceIdentity:
        """Find the identity of the file as it is now."""

    @abstractmethod
    def read_into(self, start: int, target: memoryview) -> int:
        """Fill `target` with the bytes from `start` on; return their number, less only where the file ends."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; may be called twice."""

    def interrupt(self) -> None:  # noqa: B027  only some kinds of source wait for another machine
        """End the repetition of requests, with an error; called from any thread."""

    def fill(self, start: int, target: memoryview) -> None:
        """Fill a buffer with the bytes from `start` on, `StorageError` if that fails."""
        where = f"{shown(self.name)}: {len(target)} bytes from {start} on"
        try:
            count = self.read_into(start, target)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(
                f"{where} could not be read: {error}. Check the disk or the network that the file lies on."
            ) from error
        if count < len(target):
            raise StorageError(
                f"{where}: the file ends after {count} of them, but it had {self.size} bytes when it was opened. "
                "It was cut short while it was being read; compare its size with the original."
            )

    def read(self, start: int, size: int) -> bytes:
        """Read a short part; less where the file ends."""
        content = bytearray(size)
        count = self.read_into(start, memoryview(content))
        return bytes(memoryview(content)[:count])

    def load(self, start: int, size: int) -> memoryview:
        """Give a region in memory that stays as long as the view, `StorageError` if it cannot be read completely."""
        content = bytearray(size)
        self.fill(start, memoryview(content))
        return memoryview(content)

    def read_exactly(self, start: int, size: int) -> bytes:
        """Read a region, `StorageError` if it cannot be read completely."""
        return bytes(self.load(start, size))

    def read_array(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Read a long part of the metadata, `FormatError` if there is not as much memory."""
        try:
            content = np.empty(stop - start, np.uint8)
        except (MemoryError, ValueError) as error:  # numpy raises ValueError for sizes beyond any computer
            raise FormatError(
                f"{self.name}: bytes {start} to {stop} are metadata. They take {stop - start} bytes of memory, "
                "which this process cannot get. Either the file is damaged; or write it as several files, and open a "
                "part of them, or use a computer with more memory."
            ) from error
        if self.read_into(start, content.data) < stop - start:
            raise TruncatedError(f"{self.name}: the file became shorter while it was read. Is it still being written?")
        return content

    def check_written(self, start: int, stop: int) -> None:  # noqa: B027  most kinds of source have no holes
        """Refuse metadata that were never written, before memory is allocated for them."""

    def map(self) -> NDArray[np.uint8]:
        """Map the file into memory, read-only, as long as the array or a view of it lives."""
        raise StorageError(f"{self.name}: this kind of file cannot be mapped into memory. Use os_cache=False.")

    def view(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Map a long part of the metadata where that can be done, or read it."""
        return self.map()[start:stop] if self.is_mappable and stop > start else self.read_array(start, stop)

    def reload(self, start: int, size: int) -> bool:
        """Let damaged bytes come anew when they are read next; False if there is no other place that they come from."""
        return False

    def is_cached(self, *positions: int) -> bool:
        """Whether these bytes are in memory already, or `announce` would be in vain. Reads nothing from the disk."""
        return True

    def announce(self, start: int, size: int) -> None:  # noqa: B027  only some kinds of source read ahead
        """Announce that bytes will be read soon."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
