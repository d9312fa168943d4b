"""ObjectFile: a file in an object store or on a web server, read by ranges of one version of it.

The only module that names obstore, the library that talks to the stores; it is imported at the first request.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from gpubeton.errors import (
    OptionError,
    RemoteChangedError,
    RemoteDeniedError,
    RemoteExistsError,
    RemoteMissingError,
    RemoteSlowDownError,
    RemoteTimeoutError,
    StorageError,
)
from gpubeton.files.byte_source import ByteSource, SourceIdentity
from gpubeton.files.remote_options import RemoteOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMES = ("s3", "gs", "az", "https", "http")
"""Schemes of the names that are objects."""

FIRST_READ = 256 << 10
"""Bytes of the first request for a file: they hold the header and the fields, and its answer the size and version."""

PART = 8 << 20
"""Longer ranges are read in parts of this size, side by side."""

#: Bytes of opened files that are kept for those who open them again, as the readers of notes do.
_KEPT_BYTES = 32 << 20
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 15.0  # seconds before a request is repeated
#: Seconds after which a store that has never answered is given up: its address is probably wrong.
_FIRST_PATIENCE = 20.0

_T = TypeVar("_T")


@dataclass(frozen=True)
class ObjectIdentity(SourceIdentity):
    """One version of an object."""

    url: str
    etag: str | None  # the store's name of this version
    modified: float | None = None  # seconds since 1970, from a server that gives no ETag
    remote: RemoteOptions = field(default=RemoteOptions(), compare=False)

    @property
    def cache_key(self) -> str | None:
        if not self.etag:  # a second change within one second leaves the time alike
            return None
        url = self.url.partition("?")[0] if self.url.startswith("http") else self.url  # signatures change
        return f"{self.remote.endpoint or ''} {url} {self.etag} {self.size}"

    def is_same_source(self, other: SourceIdentity) -> bool:
        return isinstance(other, ObjectIdentity) and self.url == other.url

    def check(self, name: str, found: SourceIdentity) -> None:
        if found != self:
            now = found.version if isinstance(found, ObjectIdentity) else "another kind of file"
            raise RemoteChangedError(
                f"{name}: the store has {now} now; when it was opened it was {self.version}. The object was replaced "
                "while it was being read: open it again, in training with a new Loader. To replace a file that is in "
                "use, write it under another name."
            )

    @property
    def version(self) -> str:
        """Describe the version."""
        return f"{self.size} bytes, " + (f"ETag {self.etag}" if self.etag else f"modified at {self.modified}")


@dataclass(frozen=True)
class _Part:
    """A range of an object that was requested."""

    start: int
    stop: int
    content: Future[memoryview]


class _KeptParts:
    """The first bytes of the objects opened last, and what was requested but not used. Safe to use from threads."""

    def __init__(self) -> None:
        self._parts: OrderedDict[ObjectIdentity, list[_Part]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, identity: ObjectIdentity) -> list[_Part]:
        """Give the parts of an object."""
        with self._lock:
            return list(self._parts.get(identity, ()))

    def keep(self, identity: ObjectIdentity, parts: list[_Part]) -> None:
        """Keep parts of an object, and let go those of the objects opened first."""
        with self._lock:
            self._parts[identity] = parts
            self._parts.move_to_end(identity)
            while sum(part.stop - part.start for kept in self._parts.values() for part in kept) > _KEPT_BYTES:
                self._parts.popitem(last=False)


_KEPT = _KeptParts()


class ObjectFile(ByteSource):
    """An object. Every request is for the version that was opened, and raises `RemoteChangedError` if it is gone."""

    is_versioned = True

    def __init__(self, identity: ObjectIdentity) -> None:
        super().__init__(identity.url, identity.size)
        self.num_readers = identity.remote.requests
        self._identity = identity
        self._parts = _KEPT.find(identity)
        self._lock = threading.Lock()
        self._is_closed = threading.Event()

    @classmethod
    def open(cls, name: str, size: int, *, is_random: bool) -> ObjectFile:  # noqa: ARG003  the answer has the size
        return cls.open_checked(name, None, is_random=is_random)

    @classmethod
    def open_checked(
        cls,
        name: str,
        identity: SourceIdentity | None,
        *,
        is_random: bool,  # noqa: ARG003  every order costs the same
        remote: RemoteOptions | None = None,
    ) -> ObjectFile:
        if isinstance(identity, ObjectIdentity):
            return cls(identity)  # each request for bytes is for this version
        found, first = _get(name, remote or RemoteOptions(), 0, FIRST_READ)
        content: Future[memoryview] = Future()
        content.set_result(first)
        _KEPT.keep(found, [_Part(0, len(first), content)])
        return cls(found)

    @classmethod
    def find_identity(cls, name: str) -> ObjectIdentity:
        return head_object(name)

    def identity(self) -> ObjectIdentity:
        return self._identity

    def load(self, start: int, size: int) -> memoryview:
        if start + size > self.size:
            raise StorageError(
                f"{self.name}: {size} bytes from {start} on, but the object ends after {self.size}. "
                "The file is damaged; compare it with the original."
            )
        if 0 < size <= PART and not any(part.start < start + size and start < part.stop for part in self._parts):
            return self._get(start, start + size)  # the store's own buffer, not copied
        content = bytearray(size)
        self.read_into(start, memoryview(content))
        return memoryview(content)

    def read_into(self, start: int, target: memoryview) -> int:
        stop = max(start, min(start + len(target), self.size))
        for part in self._request(start, stop):
            low, high = max(start, part.start), min(stop, part.stop)
            try:
                target[low - start : high - start] = part.content.result()[low - part.start : high - part.start]
            except BaseException:
                self._forget(part)  # whoever reads it again requests it again
                raise
            if start <= part.start and part.stop <= stop:
                self._forget(part)
        return stop - start

    def announce(self, start: int, size: int) -> None:
        self._request(start, min(start + size, self.size))

    def close(self) -> None:
        if not self._is_closed.is_set():
            self._is_closed.set()
            done = [part for part in self._parts if not part.content.cancel() and part.content.done()]
            if done := [part for part in done if part.content.exception() is None]:
                _KEPT.keep(self._identity, done)

    def __del__(self) -> None:
        # Without `close`: objects are deleted at any time, also while this thread has the lock of `_KEPT`.
        self._is_closed.set()

    def _request(self, start: int, stop: int) -> list[_Part]:
        """Give the parts that a range consists of; those that nobody has requested are requested now."""
        found = []
        with self._lock:
            while start < stop:
                part = next((part for part in self._parts if part.start <= start < part.stop), None)
                if part is None:
                    end = min((part.start for part in self._parts if part.start > start), default=stop)
                    end = min(end, stop, start + PART)
                    part = _Part(start, end, _pool(self._identity.remote).submit(self._get, start, end))
                    self._parts.append(part)
                found.append(part)
                start = part.stop
        return found

    def _forget(self, part: _Part) -> None:
        with self._lock:
            if part in self._parts:
                self._parts.remove(part)

    def _get(self, start: int, stop: int) -> memoryview:
        return _get(self.name, self._identity.remote, start, stop, self._identity, self._is_closed)[1]


def head_object(url: str, remote: RemoteOptions | None = None) -> ObjectIdentity:
    """Find the size and version of an object."""
    remote = remote or RemoteOptions()
    found = _ask(url, remote, "its size", lambda store, key: _obstore().head(store, key))
    return _identity(url, remote, found)


def list_objects(prefix: str, remote: RemoteOptions | None = None) -> list[tuple[str, int, str | None]]:
    """List the objects whose names are `prefix`, which ends in "/", and a name without "/": URL, size and ETag."""
    remote = remote or RemoteOptions()
    scheme, place, key = _split(prefix)
    if scheme in ("http", "https"):
        raise OptionError(f"{prefix}: web servers have no standard way to list files. Give a list of the URLs.")
    found = _ask(
        prefix, remote, "a list of objects", lambda store, _: _obstore().list_with_delimiter(store, key.rstrip("/"))
    )
    start = f"{scheme}://{place}/"
    return sorted((start + each["path"], int(each["size"]), each["e_tag"]) for each in found["objects"])


def read_object(url: str, remote: RemoteOptions | None = None) -> bytes:
    """Read a whole object."""
    with ObjectFile.open_checked(url, None, is_random=False, remote=remote) as source:
        return source.read_exactly(0, source.size)


def put_object(
    url: str, content: Path | bytes, remote: RemoteOptions | None = None, *, overwrite: bool = False
) -> ObjectIdentity:
    """Write a file or bytes as one object, which appears when it is complete; `RemoteExistsError` if there is one."""
    remote = remote or RemoteOptions()
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    # Stores refuse to overwrite only what comes in one request.
    mode = "overwrite" if overwrite or size > PART else "create"
    if mode == "overwrite" and not overwrite:
        try:
            found = head_object(url, remote)
        except RemoteMissingError:
            pass
        else:
            raise _exists(url, found.version)

    def put(store: Any, key: str) -> Any:
        return _obstore().put(store, key, content, mode=mode, chunk_size=PART, max_concurrency=min(12, remote.requests))

    found = _ask(url, remote, "to be written", put)
    return ObjectIdentity(size, url, found["e_tag"], remote=remote)


def _exists(url: str, found: str) -> RemoteExistsError:
    return RemoteExistsError(
        f"{url}: the store has an object of this name already ({found}); expected none. Delete it, or overwrite it."
    )


# --- requests ---------------------------------------------------------------------------------------------------------


def _get(
    url: str,
    remote: RemoteOptions,
    start: int,
    stop: int,
    identity: ObjectIdentity | None = None,
    is_closed: threading.Event | None = None,
) -> tuple[ObjectIdentity, memoryview]:
    """Get a range of one version of an object; without an identity, what there is of the range, of any version."""
    wanted: dict[str, Any] = {"range": (start, stop)}
    # A weak ETag matches nothing; the answer is compared below.
    if identity is not None and identity.etag and not identity.etag.startswith("W/"):
        wanted["if_match"] = identity.etag

    def get(store: Any, key: str) -> tuple[Any, Any]:
        result = _obstore().get(store, key, options=wanted)
        return result.meta, result.bytes()

    meta, content = _ask(url, remote, f"bytes {start} to {stop}", get, identity, is_closed)
    found = _identity(url, remote, meta)
    if identity is not None:
        identity.check(url, found)
    expected = min(stop, found.size) - start
    if len(content) != expected:
        raise StorageError(
            f"{url}: the server gave {len(content)} bytes for bytes {start} to {stop}, expected {expected}. "
            "It, or a proxy before it, does not do what HTTP asks of requests for ranges: use another."
        )
    return found, memoryview(content)


def _identity(url: str, remote: RemoteOptions, meta: Any) -> ObjectIdentity:
    modified = None if meta["e_tag"] else meta["last_modified"].timestamp()
    return ObjectIdentity(int(meta["size"]), url, meta["e_tag"], modified, remote)


def _ask(
    url: str,
    remote: RemoteOptions,
    what: str,
    ask: Callable[[Any, str], _T],
    identity: ObjectIdentity | None = None,
    is_closed: threading.Event | None = None,
) -> _T:
    """Make a request, again and again while the store is overloaded, silent or out of reach."""
    refuse_after_fork()
    scheme, place, key = _split(url)
    try:
        store = _store(scheme, place, remote)
    except _obstore().exceptions.BaseError as error:
        reason = str(error).partition("\n\nDebug source")[0]
        raise OptionError(f"{url}: no connection can be made with {remote!r}: {reason}. {_CREDENTIALS}") from error
    began, pause, attempts = time.monotonic(), _FIRST_PAUSE, 0
    while True:
        attempts += 1
        try:
            return ask(store, key)
        except (_obstore().exceptions.BaseError, OSError, NotImplementedError) as error:  # OSError: missing, existing
            waited = time.monotonic() - began
            found = _translate(error, url, remote, what, identity, waited)
            patience = remote.retry_seconds
            if identity is None and isinstance(found, RemoteTimeoutError):
                patience = min(patience, _FIRST_PATIENCE)
            if not isinstance(found, RemoteSlowDownError | RemoteTimeoutError) or waited + pause > patience:
                raise found from error
        if is_closed is None:
            time.sleep(pause)
        elif is_closed.wait(pause):
            raise StorageError(f"{url}: closed while {what} were requested.")
        pause = min(2 * pause, _LONGEST_PAUSE)


def _translate(
    error: Exception, url: str, remote: RemoteOptions, what: str, identity: ObjectIdentity | None, waited: float
) -> Exception:
    """Describe an error of obstore's in the house's words."""
    # obstore has classes for few cases; its text holds the status of the answer, before what it prints for debugging.
    reason = str(error).partition("\n\nDebug source")[0].strip()
    found = re.search(r"status code: (\d+)", reason)
    status = int(found[1]) if found else 0
    where = f"{url}: {what} could not be had"
    if isinstance(error, FileNotFoundError) or status == 404:
        return RemoteMissingError(
            f"{url}: the store has no object of this name ({reason}). Check the bucket and the name, and that the "
            "endpoint and region are those of the bucket."
        )
    if isinstance(error, FileExistsError | _obstore().exceptions.AlreadyExistsError):
        return _exists(url, reason)
    if status == 412 or (status == 416 and identity is not None):
        then = f"it was {identity.version} when it was opened" if identity else "expected the version that was opened"
        return RemoteChangedError(
            f"{url}: the object has another version now; {then}. It was replaced while it was being read: open it "
            "again, in training with a new Loader. To replace a file that is in use, write it under another name."
        )
    # Once a file is open, credentials were found: their source is out of reach for a while.
    if status in (401, 403) or (_NO_CREDENTIALS.search(reason) and (status or identity is None)):
        return RemoteDeniedError(
            f"{where}: {_described_credentials(remote)}, and the answer was: {reason}. {_CREDENTIALS}"
        )
    if status in (429, 503):
        return RemoteSlowDownError(
            f"{where}: the store was overloaded for {waited:.0f} s, the last answer was: {reason}. Lower "
            f"RemoteOptions(requests={remote.requests}), spread the files over several prefixes, or allow more "
            f"retry_seconds ({remote.retry_seconds:g} now)."
        )
    if status >= 500 or _NO_ANSWER.search(reason):
        return RemoteTimeoutError(
            f"{where}: no complete answer for {waited:.0f} s, at last: {reason}. Check the address and the network; "
            f"RemoteOptions has retry_seconds={remote.retry_seconds:g} and silence_seconds={remote.silence_seconds:g}."
        )
    if isinstance(error, NotImplementedError) or _NO_RANGES.search(reason):
        return StorageError(
            f"{where}: the server does not give parts of files as asked ({reason}). It, or a proxy before it, has to "
            "support requests for ranges: use another, or download the file."
        )
    return StorageError(f"{where}: {reason}.")


_NO_CREDENTIALS = re.compile("ExpiredToken|InvalidToken|/latest/api/token|169\\.254\\.|metadata|[Cc]redential")
_NO_ANSWER = re.compile("error sending request|body error|timed out|timeout|connect")
_NO_RANGES = re.compile("non-partial|Requested .* got|Range request not supported")
_CREDENTIALS = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), GOOGLE_APPLICATION_CREDENTIALS, or "
    "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY; RemoteOptions(profile=...) takes them from the files of "
    "aws, RemoteOptions(anonymous=True) is for public buckets."
)


def _described_credentials(remote: RemoteOptions) -> str:
    if remote.anonymous:
        return "the request had no credentials (anonymous=True)"
    if remote.profile:
        return f"the credentials were those of the profile {remote.profile!r}"
    return "the credentials were those of the environment or of this machine's role"


# --- stores -----------------------------------------------------------------------------------------------------------


def _split(url: str) -> tuple[str, str, str]:
    """Split the URL of an object into the scheme, the bucket or server, and the name of the object there."""
    scheme, _, rest = url.partition("://")
    place, _, key = rest.partition("/")
    if scheme in ("http", "https"):
        parts = urlsplit(url)
        # The query, which may hold a signature, belongs to each request.
        place, key = parts.netloc + "/" + (f"?{parts.query}" if parts.query else ""), unquote(parts.path[1:])
    # obstore would ask for another object: it leaves out these parts of a name.
    is_odd = any(part in ("", ".", "..") for part in key.removesuffix("/").split("/")) and key != ""
    if place[:1] in ("", "/") or scheme not in SCHEMES or is_odd:
        raise OptionError(
            f"{url!r} is no address of a file; expected {', '.join(f'{each}://...' for each in SCHEMES)}, and after it "
            "the bucket and the name, as in s3://bucket/train.beton, without //, /./ and /../ in it."
        )
    return scheme, place, key


@lru_cache(maxsize=64)
def _store(scheme: str, place: str, remote: RemoteOptions) -> Any:
    """Make the connection to a bucket or server."""
    store = _obstore().store
    endpoint = remote.endpoint or (os.environ.get("AWS_ENDPOINT_URL", "") if scheme == "s3" else "")
    seconds = timedelta(seconds=remote.silence_seconds)
    settings: dict[str, Any] = {
        "client_options": {
            "allow_http": scheme == "http" or endpoint.startswith("http://"),
            "connect_timeout": seconds,
            "read_timeout": seconds,
            "timeout": timedelta(seconds=6 * remote.silence_seconds),
            "pool_idle_timeout": timedelta(seconds=30),
        },
        # A request is repeated by `_ask`, which can be interrupted; only the rest of an answer is asked for in here.
        "retry_config": {
            "max_retries": 2,
            "retry_timeout": min(seconds, timedelta(seconds=remote.retry_seconds)),
            "backoff": {
                "init_backoff": timedelta(seconds=_FIRST_PAUSE),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
    }
    if scheme in ("http", "https"):
        return store.HTTPStore(f"{scheme}://{place}", **settings)
    if remote.anonymous:
        settings["skip_signature"] = True
    if scheme == "gs":
        # obstore takes this address under no keyword.
        config = {"base_url": remote.endpoint} if remote.endpoint else {}
        return store.GCSStore(place, config=config, **settings)
    if endpoint:
        settings["endpoint"] = endpoint
    if scheme == "az":
        if remote.account:
            settings["account_name"] = remote.account
        return store.AzureStore(place, **settings)
    if remote.region:
        settings["region"] = remote.region
    if remote.profile:
        settings["credential_provider"] = _profile(remote.profile)
    return store.S3Store(place, **settings)


def _profile(name: str) -> Any:
    """Take credentials from the files of the `aws` command."""
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise OptionError(f"profile={name!r} needs boto3, which reads the files of aws: pip install boto3") from error
    return Boto3CredentialProvider(boto3.Session(profile_name=name))


@lru_cache(maxsize=8)
def _pool(remote: RemoteOptions) -> ThreadPoolExecutor:
    """Threads that wait for parts of long ranges."""
    return ThreadPoolExecutor(remote.requests, "gpubeton-remote")


@cache
def _obstore() -> Any:
    """Import obstore when it is needed first."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise OptionError(
            "files in object stores and on web servers need obstore, which is not installed: "
            "pip install 'gpubeton[remote]'"
        ) from error
    os.register_at_fork(after_in_child=_FORKED.set)
    return obstore


_FORKED = threading.Event()


def refuse_after_fork() -> None:
    """Raise `StorageError` in a process that was forked after obstore was imported: its threads are not there."""
    if _FORKED.is_set():
        raise StorageError(
            "this process was forked from one that has read from an object store, and the library that does it does "
            "not work after a fork. Start processes by multiprocessing.get_context('forkserver') or 'spawn', or start "
            "them before the first file is opened."
        )
