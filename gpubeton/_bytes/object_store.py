"""ObjectFile: a file in an object store or on a web server, read by ranges of one version of it."""

from __future__ import annotations

import os
import re
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import numpy as np

from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
from gpubeton._bytes.load_pool import LoadPool, has_failed
from gpubeton._bytes.store_client import (
    SIGNATURE,
    RemoteOptions,
    exists_error,
    find_endpoint,
    is_signed,
    refuse_after_fork,
    request_with_retries,
    shown,
    split_url,
)
from gpubeton.errors import OptionError, RemoteChangedError, RemoteMissingError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

FIRST_READ = 256 << 10
"""Bytes of the first request for a file: they hold the header and the fields, and its answer the size and version."""

PART = 8 << 20
"""Longer ranges are read in segments of this size, side by side."""

_T = TypeVar("_T")

#: The last segment may be so long: the images that begin in 8 MiB of a file end soon after, which is worth no request.
_LARGEST_PART = PART * 5 // 4
#: Bytes of announced ranges that are requested before they are read.
_MOST_AHEAD = 16 * PART
#: Parameters of a URL that change with its signature; elsewhere, these names may mean anything.
_WITH_SIGNATURE = re.compile(
    "x-(amz|goog)-.*|expires|policy|awsaccesskeyid|googleaccessid|se|si|sip|sp|spr|sr|srt|ss|st|sv|sk(e|oid|s|t|tid|v)",
    re.IGNORECASE,
)
#: Bytes of opened files that are kept for those who open them again, as the readers of notes do.
_MOST_CACHED_BYTES = 32 << 20


@dataclass(frozen=True)
class ObjectIdentity(SourceIdentity):
    """One version of an object."""

    url: str
    etag: str | None  # the store's name of this version
    modified: float | None = None  # seconds since 1970, from a server that gives no ETag
    remote: RemoteOptions = field(default=RemoteOptions(), compare=False)

    @property
    def cache_key(self) -> str | None:
        # A second change within one second leaves the time alike, and any change may leave a weak ETag alike.
        if not self.etag or self.etag.startswith("W/"):
            return None
        scheme, query = self.url.partition("://")[0], _query_without_signature(self.url)
        endpoint = find_endpoint(scheme, self.remote)
        if scheme == "az":  # containers of other accounts may have the same names
            endpoint += f" {self.remote.account or os.environ.get('AZURE_STORAGE_ACCOUNT_NAME', '')}"
        return f"{endpoint} {shown(self.url)}{query and f'?{query}'} {self.etag} {self.size}"

    def is_same_source(self, other: SourceIdentity) -> bool:
        return isinstance(other, ObjectIdentity) and self.url == other.url

    def check(self, name: str, current: SourceIdentity) -> None:
        if current != self:
            now = current.version if isinstance(current, ObjectIdentity) else "another kind of file"
            raise _changed_error(name, now, self.version)

    @property
    def state(self) -> int:
        """A number that changes with the version."""
        return _number_of(self.etag or str(int(self.modified or 0)))

    @property
    def version(self) -> str:
        """Describe the version."""
        return f"{self.size} bytes, " + (f"ETag {self.etag}" if self.etag else f"modified at {self.modified}")


def _number_of(version: str) -> int:
    """Make 64 bits of the name of a version; lists of Azure have no quotes."""
    return int.from_bytes(blake2b(version.strip('"').encode(), digest_size=8).digest(), "little", signed=True)


def _changed_error(name: str, now: str, before: str) -> RemoteChangedError:
    return RemoteChangedError(
        f"{shown(name)}: the store has {now} now; when it was opened or indexed it was {before}. The object was "
        "replaced: open it again, in training with a new Loader, or make its index again (gpubeton index). To replace "
        "a file that is in use, write it under another name."
    )


def _query_without_signature(url: str) -> str:
    """Give the parameters of a URL, sorted by name, without those of its signature: a new one is for the same file."""
    parameters = [(text.partition("=")[0], text) for text in urlsplit(url).query.split("&")]
    if is_signed(url):
        others = (SIGNATURE, _WITH_SIGNATURE)
        parameters = [(name, text) for name, text in parameters if not any(other.fullmatch(name) for other in others)]
    return "&".join(text for _, text in sorted(parameters, key=itemgetter(0)))


@dataclass(frozen=True)
class _Segment:
    """A range of an object that was requested."""

    start: int
    stop: int
    content: Future[memoryview]

    @classmethod
    def of_bytes(cls, start: int, content: memoryview | bytes) -> _Segment:
        """Make a segment of bytes that are in memory."""
        done: Future[memoryview] = Future()
        done.set_result(memoryview(content))
        return cls(start, start + len(content), done)


#: First bytes of the objects opened last, and segments that were requested and not used.
_CACHED: OrderedDict[ObjectIdentity, list[_Segment]] = OrderedDict()
_CACHE_LOCK = threading.Lock()


def _keep(identity: ObjectIdentity, segments: list[_Segment]) -> None:
    """Keep segments of an object for the next one that opens it, and let go those of the objects opened first."""
    with _CACHE_LOCK:
        _CACHED[identity] = segments
        _CACHED.move_to_end(identity)
        while sum(part.stop - part.start for parts in _CACHED.values() for part in parts) > _MOST_CACHED_BYTES:
            _CACHED.popitem(last=False)


class ObjectFile(ByteSource):
    """An object. Every request is for the version that was opened, and raises `RemoteChangedError` if it is gone."""

    is_versioned = True

    def __init__(self, identity: ObjectIdentity) -> None:
        super().__init__(identity.url, identity.size)
        self.num_readers = identity.remote.requests
        self._identity = identity
        with _CACHE_LOCK:
            self._segments = list(_CACHED.get(identity, ()))
        self._announced: list[range] = []
        self._lock = threading.Lock()
        self._is_closed = threading.Event()

    @classmethod
    def open_checked(
        cls, name: str, identity: SourceIdentity | None, *, remote: RemoteOptions | None = None, **_: Any
    ) -> ObjectFile:
        if isinstance(identity, ObjectIdentity):
            return cls(identity)  # each request for bytes is for this version
        identity, first = _get(name, remote or RemoteOptions(), 0, FIRST_READ)
        _keep(identity, [_Segment.of_bytes(0, first)])
        return cls(identity)

    @classmethod
    def find_identity(cls, name: str) -> ObjectIdentity:
        return head_object(name)

    @classmethod
    def known_identity(cls, name: str, size: int, etag: str, remote: RemoteOptions | None) -> ObjectIdentity:
        return ObjectIdentity(size, name, etag, remote=remote or RemoteOptions())

    def identity(self) -> ObjectIdentity:
        return self._identity

    def load(self, start: int, size: int) -> memoryview:
        if start + size > self.size:
            raise StorageError(
                f"{shown(self.name)}: {size} bytes from {start} on, but the object ends after {self.size}. "
                "The file is damaged; compare it with the original."
            )
        if 0 < size <= _LARGEST_PART and not any(
            segment.start < start + size and start < segment.stop for segment in self._segments
        ):
            return self._get(start, start + size)  # the store's own buffer, not copied
        content = bytearray(size)
        self.read_into(start, memoryview(content))
        return memoryview(content)

    def read_into(self, start: int, target: memoryview) -> int:
        stop = max(start, min(start + len(target), self.size))
        for announced in self._announced:
            if start in announced:  # in whole segments, counted from its start
                count = -(-(start - announced.start) // PART) + _MOST_AHEAD // PART
                self._request(start, min(announced.stop, announced.start + count * PART))
        for segment in self._request(start, stop):
            low, high = max(start, segment.start), min(stop, segment.stop)
            target[low - start : high - start] = _result(segment.content)[low - segment.start : high - segment.start]
            with self._lock:
                if start <= segment.start and segment.stop <= stop and segment in self._segments:
                    self._segments.remove(segment)
        return stop - start

    def reload(self, start: int, size: int) -> bool:
        return True  # each request brings new bytes

    def announce(self, start: int, size: int) -> None:
        announced = range(start, min(start + size, self.size))
        self._announced.append(announced)
        self._request(start, min(announced.stop, start + _MOST_AHEAD))

    def interrupt(self) -> None:
        self._is_closed.set()
        for segment in self._segments:
            segment.content.cancel()

    def close(self) -> None:
        self.interrupt()
        loads = [(part.start, part.content) for part in self._segments]
        if done := [(start, load) for start, load in loads if load.done() and not has_failed(load)]:
            # Copied: the blocks of pages keep all memory for pages.
            self._segments = [_Segment.of_bytes(start, bytes(load.result())) for start, load in done]
            _keep(self._identity, self._segments)

    def __del__(self) -> None:
        # Without `close`: objects are deleted at any time, also while this thread has `_CACHE_LOCK`.
        self._is_closed.set()

    def _request(self, start: int, stop: int) -> list[_Segment]:
        """Give the segments that a range consists of; those that were not requested are requested now."""
        refuse_after_fork()  # the threads of the pool, and who has the lock, may be in the other process
        segments = []
        with self._lock:
            self._segments = [segment for segment in self._segments if not has_failed(segment.content)]
            while start < stop:
                segment = next((segment for segment in self._segments if segment.start <= start < segment.stop), None)
                if segment is None:
                    end = min((segment.start for segment in self._segments if segment.start > start), default=stop)
                    end = min(end, stop)
                    if end - start > _LARGEST_PART:
                        end = start + PART
                    load = partial(self._get, start, end)
                    segment = _Segment(start, end, _waiters(self._identity.remote).enqueue(load))
                    self._segments.append(segment)
                segments.append(segment)
                start = segment.stop
        return segments

    def _get(self, start: int, stop: int) -> memoryview:
        return _get(self.name, self._identity.remote, start, stop, self._identity, self._is_closed)[1]


def head_object(url: str, remote: RemoteOptions | None = None) -> ObjectIdentity:
    """Find the size and version of an object."""
    remote = remote or RemoteOptions()
    return _identity(
        url, remote, request_with_retries(url, remote, "its size", lambda obstore, store, key: obstore.head(store, key))
    )


def list_objects(prefix: str, remote: RemoteOptions | None = None) -> list[tuple[str, int, str | None]]:
    """List the objects of a folder, `prefix`, which ends in "/": URL, size and ETag."""
    start, key = _split_folder(prefix)

    def find(obstore: Any, store: Any, _: str) -> list[Any]:
        return list(obstore.list_with_delimiter(store, key.rstrip("/"))["objects"])

    objects = request_with_retries(prefix, remote or RemoteOptions(), "a list of objects", find)
    return sorted((start + item["path"], int(item["size"]), item["e_tag"]) for item in objects)


def list_tree(
    folder: str, remote: RemoteOptions | None = None, sought: Sequence[str] = ()
) -> tuple[list[str], NDArray[np.int64]]:
    """List the objects of a folder and of all folders in it: names from there on, and sizes and states, (N, 2)."""
    # Of `sought`, sorted names, from the first to the last, while at least one in a hundred objects is sought.
    names, states = list[str](), array("q")
    _, key = _split_folder(folder)

    def find(obstore: Any, store: Any, _: str) -> None:
        last = names[-1] if names else sought[0][:-1] if sought else ""  # a request that is repeated goes on
        for objects in obstore.list(store, key.rstrip("/"), offset=(last and key + last) or None, chunk_size=1000):
            for item in objects:
                version = item["e_tag"] or str(int(item["last_modified"].timestamp()))
                states.extend((int(item["size"]), _number_of(version)))
            names.extend(item["path"].removeprefix(key) for item in objects)
            passed = bisect_right(sought, names[-1]) if names else 0
            if sought and (passed == len(sought) or 100 * passed < len(names)):
                break

    request_with_retries(folder, remote or RemoteOptions(), "a list of objects", find)
    return names, np.array(states, np.int64).reshape(-1, 2)


def _split_folder(url: str) -> tuple[str, str]:
    """Split the URL of a folder into that of its bucket, and the beginning of the names in it."""
    scheme, place, key = split_url(url)
    if scheme in ("http", "https"):
        raise OptionError(
            f"{shown(url)}: web servers have no standard way to list files. Give the URL of each file, a Loader a "
            "list of them; it opens a folder without a list if index.json is there (`gpubeton index FOLDER`)."
        )
    return f"{scheme}://{place}/", key


def put_object(
    url: str, content: Path | bytes, remote: RemoteOptions | None = None, *, overwrite: bool = False
) -> ObjectIdentity:
    """Write a file or bytes as one object, which appears when it is complete; `RemoteExistsError` if there is one."""
    remote = remote or RemoteOptions()
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    # Stores refuse to overwrite only what comes in one request.
    mode = "overwrite" if overwrite or size > PART else "create"
    if mode == "overwrite" and not overwrite:
        with suppress(RemoteMissingError):
            raise exists_error(url, head_object(url, remote).version)

    def put(obstore: Any, store: Any, key: str) -> Any:
        return obstore.put(store, key, content, mode=mode, chunk_size=PART, max_concurrency=min(12, remote.requests))

    answer = request_with_retries(url, remote, "to be written", put)
    return ObjectIdentity(size, url, answer["e_tag"], remote=remote)


# --- requests ---------------------------------------------------------------------------------------------------------


def read_listed(
    url: str, start: int, stop: int, state: tuple[int, int], remote: RemoteOptions, is_closed: threading.Event | None
) -> memoryview:
    """Get a range of an object, `RemoteChangedError` if it has not the size and the state that were listed."""
    before = f"{state[0]} bytes in another version"
    answered, content = _get(url, remote, start, stop, is_closed=is_closed, opened=before)
    if (answered.size, answered.state) != state:
        raise _changed_error(url, answered.version, before)
    return content


def _get(
    url: str,
    remote: RemoteOptions,
    start: int,
    stop: int,
    identity: ObjectIdentity | None = None,
    is_closed: threading.Event | None = None,
    opened: str | None = None,
) -> tuple[ObjectIdentity, memoryview]:
    """Get a range of one version of an object; without an identity, the part of it that exists, of any version."""
    options: dict[str, Any] = {"range": (start, stop)}
    # A weak ETag matches nothing; the answer is compared below.
    if identity is not None and identity.etag and not identity.etag.startswith("W/"):
        options["if_match"] = identity.etag

    def get(obstore: Any, store: Any, key: str) -> tuple[Any, memoryview]:
        answer = obstore.get(store, key, options=options)
        return _identity(url, remote, answer.meta), memoryview(answer.bytes())

    what, opened = f"bytes {start} to {stop}", identity.version if identity else opened
    request = partial(request_with_retries, url, remote, what, get, opened, is_closed)
    if threading.current_thread() is threading.main_thread():  # in the library, Ctrl-C would wait for the answer
        refuse_after_fork()  # the threads are in the other process
        answered, content = _result(_waiters(remote).enqueue(request))
    else:
        answered, content = request()
    if identity is not None:
        identity.check(url, answered)
    expected = min(stop, answered.size) - start
    if len(content) != expected:
        raise StorageError(
            f"{shown(url)}: the server gave {len(content)} bytes for bytes {start} to {stop}, expected {expected}. "
            "It, or a proxy before it, does not do what HTTP asks of requests for ranges: use another."
        )
    return answered, content


def _result(request: Future[_T]) -> _T:
    """Wait for a request."""
    # Not for ever: Python does not wake the main thread for a Ctrl-C that arrives just before it begins to wait.
    while not wait((request,), timeout=1).done:
        pass
    return request.result()


def _identity(url: str, remote: RemoteOptions, meta: Any) -> ObjectIdentity:
    modified = None if meta["e_tag"] else meta["last_modified"].timestamp()
    if modified == 0:
        raise StorageError(
            f"{shown(url)}: the server gives neither an ETag nor Last-Modified, so that it would not be noticed if the "
            "file were replaced while it is read. Use a server that gives one of them, or download the file."
        )
    return ObjectIdentity(int(meta["size"]), url, meta["e_tag"], modified, remote)


@lru_cache(maxsize=8)
def _waiters(remote: RemoteOptions) -> LoadPool:
    """Give the threads that wait for answers to a program: as many as requests may be in flight."""
    return LoadPool("object stores", remote.requests, adapts=False, name="gpubeton-remote")
