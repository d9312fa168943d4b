"""Requests to object stores and web servers: connections, credentials, retries, and errors.

The only module that imports obstore, which talks to the stores, at the first request; `object_store` calls it.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from gpubeton._machine import install
from gpubeton.errors import (
    OptionError,
    RemoteChangedError,
    RemoteDeniedError,
    RemoteExistsError,
    RemoteMissingError,
    RemoteSlowDownError,
    RemoteTimeoutError,
    StorageError,
    TruncatedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMES = ("s3", "gs", "az", "https", "http")
"""Schemes of the names that are objects."""

SIGNATURE = re.compile(".*signature|.*token|sig|.*credential|key-pair-id", re.IGNORECASE)
"""Names of the parameters that sign a URL."""

#: In paths. To S3 a plus is a space, unless it is written %2B.
_AS_IT_IS = "!$&'()*+,:;=@[]^|"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 15.0  # seconds before a request is repeated
#: Seconds after which a store that has never answered is given up: its address is probably wrong.
_FIRST_PATIENCE = 20.0
_EXIT_SECONDS = 5.0  # that the end of a program waits for answers at most

_T = TypeVar("_T")


@dataclass(frozen=True)
class RemoteOptions:
    """How files in object stores are reached; the defaults suit a store of the cloud that the process runs in.

    Credentials come from where the store's own tools take them: environment variables (``AWS_ACCESS_KEY_ID``,
    ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_KEY``, ...), then the files of the ``aws`` command where
    boto3 is installed, then the role of the machine, pod or task.

    Parameters
    ----------
    endpoint : str, optional
        Address of a store that is not the cloud's own, such as ``"http://minio:9000"``. By default it is the value of
        ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL`` for ``s3://``, else the cloud's.
    region : str, optional
        Region of an S3 bucket; by default the value of ``AWS_REGION``, else us-east-1.
    account : str, optional
        Storage account for ``az://container/...``; by default the value of ``AZURE_STORAGE_ACCOUNT_NAME``.
    profile : str, optional
        Profile of the ``aws`` command, single sign-on included; needs boto3. By default it is the value of
        ``AWS_PROFILE``, else ``default``, both without effect if the environment has credentials.
    anonymous : bool, default False
        Send requests without credentials, for public buckets.
    requests : int, default 32
        Most requests in flight from a process to one bucket or server, whatever they are for: pages, metadata, the
        filling of the cache. An upload counts as one.
    retry_seconds : float, default 300
        How long one request is repeated while the store is overloaded, silent or out of reach.
    silence_seconds : float, default 10
        How long a connection may give no byte before the request is repeated.

    Raises
    ------
    OptionError
        If a value is out of its range.

    Examples
    --------
    >>> RemoteOptions(endpoint="http://minio:9000", requests=64)
    RemoteOptions(endpoint='http://minio:9000', requests=64)
    """

    endpoint: str | None = None
    region: str | None = None
    account: str | None = None
    profile: str | None = None
    anonymous: bool = False
    requests: int = 32
    retry_seconds: float = 300
    silence_seconds: float = 10

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("endpoint", "region", "account", "profile"):
            value: object = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                raise OptionError(f"RemoteOptions: {name}={value!r}; expected a string that is not empty, or None")
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise OptionError(
                f"RemoteOptions: endpoint={self.endpoint!r}; expected an address such as 'https://minio.example:9000'. "
                "Put http:// or https:// before it."
            )
        requests: object = self.requests
        if not isinstance(requests, int) or not 1 <= requests <= 1024:
            raise OptionError(f"RemoteOptions: requests={requests!r}; expected 1 to 1024")
        for name, least in (("retry_seconds", 0.0), ("silence_seconds", 0.01)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not least <= value < float("inf"):
                raise OptionError(f"RemoteOptions: {name}={value!r}; expected seconds, at least {least:g}")

    def __repr__(self) -> str:
        changed = {name: value for name, value in vars(self).items() if value != getattr(RemoteOptions, name)}
        return f"RemoteOptions({', '.join(f'{name}={value!r}' for name, value in changed.items())})"


class Repeats:
    """Requests of this process that were made again. Safe to use from threads."""

    def __init__(self) -> None:
        self.count = 0
        self.slow_downs = 0  # because the store was overloaded or silent
        self._lock = threading.Lock()

    def add(self, error: Exception) -> None:
        """Count a request that is made again after an error."""
        with self._lock:
            self.count += 1
            self.slow_downs += isinstance(error, RemoteSlowDownError | RemoteTimeoutError)


REPEATS = Repeats()
"""Counts all requests that `request_with_retries` makes again."""


class _Server:
    """A store or web server: lets so many requests be in flight, each a `with` of it. Safe to use from threads."""

    def __init__(self, most: int) -> None:
        self.has_answered = False
        self._most, self._in_flight = most, 0
        self._change = threading.Condition()

    def __enter__(self) -> None:
        with self._change:
            self._change.wait_for(lambda: self._in_flight < self._most or not self._most)
            if not self._most:
                raise StorageError("files of other machines cannot be reached any more: the program ends")
            self._in_flight += 1

    def __exit__(self, *exception: object) -> None:
        with self._change:
            self._in_flight -= 1
            self._change.notify_all() if not self._most else self._change.notify()

    def close(self, seconds: float) -> None:
        """Let no further request pass, and wait until there are none, but not for ever."""
        with self._change:
            self._most = 0
            self._change.notify_all()
            self._change.wait_for(lambda: self._in_flight == 0, seconds)


#: By scheme, bucket or server, endpoint, and number of requests.
_SERVERS: dict[tuple[Any, ...], _Server] = {}


@atexit.register
def _end_requests() -> None:
    """Refuse requests, and wait for the last answers: no thread may return from the library while Python shuts down."""
    if _FORKED.is_set():
        return
    deadline = time.monotonic() + _EXIT_SECONDS
    for server in list(_SERVERS.values()):
        server.close(max(0.0, deadline - time.monotonic()))


def request_with_retries(
    url: str,
    remote: RemoteOptions,
    what: str,
    make: Callable[[Any, Any, str], _T],
    opened: str | None = None,
    is_closed: threading.Event | None = None,
) -> _T:
    """Make a request, again and again while the store is overloaded, silent or out of reach."""
    refuse_after_fork()
    scheme, place, key = split_url(url)
    key_of_server = scheme, place.partition("/")[0], remote.endpoint, remote.requests
    store = _connect(url, remote)
    server = _SERVERS.setdefault(key_of_server, _Server(remote.requests))
    began, pause, refused = 0.0, _FIRST_PAUSE, None
    is_closed = is_closed or threading.Event()
    while not is_closed.is_set():
        with server:
            if is_closed.is_set():
                break
            began = began or time.monotonic()
            _check_redirects(url, remote.silence_seconds)
            try:
                answer = make(_obstore(), store, key)
            except (_obstore().exceptions.BaseError, OSError, NotImplementedError) as error:  # missing, existing
                waited = time.monotonic() - began
                failure = _translate(error, url, remote, what, opened, waited)
                patience = remote.retry_seconds
                if not server.has_answered and isinstance(failure, RemoteTimeoutError):
                    patience = min(patience, _FIRST_PATIENCE)
                if isinstance(failure, RemoteDeniedError) and refused is None:
                    refused, store = store, _connect(url, remote, refused=store)
                    if server.has_answered and scheme not in ("http", "https"):  # the credentials may have expired
                        continue
                if not isinstance(failure, RemoteSlowDownError | RemoteTimeoutError) or waited + pause > patience:
                    raise failure from _cause(url, error)
                REPEATS.add(failure)
            else:
                server.has_answered = True
                return answer
        is_closed.wait(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    raise StorageError(f"{shown(url)}: closed while {what} were requested.")


def _translate(
    error: Exception, url: str, remote: RemoteOptions, what: str, opened: str | None, waited: float
) -> Exception:
    """Translate an error of obstore to one of gpubeton."""
    # obstore has classes for few cases; its text holds the status of the answer.
    url, reason = shown(url), _reason(error)
    # Without the names in it, which may have any word.
    answer = re.sub(r"performing [A-Z]+ \S+|(?<=supported) by .*", "", reason)
    match = re.search(r"status code: (\d+)", answer)
    status = int(match[1]) if match else 0
    where = f"{url}: {what} could not be had"
    if isinstance(error, FileNotFoundError) or status == 404:
        kind = "bucket" if _NO_BUCKET.search(answer) else "object"
        return RemoteMissingError(
            f"{url}: the store has no {kind} of this name ({reason}). Check the bucket and the name, and that the "
            "endpoint and region are those of the bucket."
        )
    if isinstance(error, FileExistsError | _obstore().exceptions.AlreadyExistsError):
        return exists_error(url, reason)
    if status == 416 and opened is None:  # for the first bytes
        return TruncatedError(f"{url}: the object has no bytes; expected a complete file. Upload it again.")
    if status in (412, 416):
        then = f"it was {opened} when it was opened or indexed" if opened else "expected the version that was opened"
        return RemoteChangedError(
            f"{url}: the object has another version now; {then}. It was replaced: open it again, in "
            "training with a new Loader, or make its index again (gpubeton index). To replace a file that is in use, "
            "write it under another name."
        )
    for pattern, advice in _CAUSES.items():
        if match := re.search(pattern, str(error)):
            return StorageError(f"{where}: {advice.format(reason=reason, detail=match[match.lastindex or 0])}")
    # Once a file is open, credentials were found: where nothing answers, their source is out of reach for a while.
    may_be_refused = (400 <= status < 500 and status != 429) or (status == 0 and opened is None)
    if status in (401, 403) or (may_be_refused and (_NO_CREDENTIALS.search(answer) or _ROLE.search(reason))):
        return RemoteDeniedError(
            f"{where}: {_described_credentials(remote)}, and the answer was: {reason}. {_advice_on_credentials(url)}"
        )
    if status in (429, 503):
        return RemoteSlowDownError(
            f"{where}: the store was overloaded for {waited:.0f} s, the last answer was: {reason}. Lower "
            f"RemoteOptions(requests={remote.requests}), spread the files over several prefixes, or allow more "
            f"retry_seconds ({remote.retry_seconds:g} now)."
        )
    if status >= 500 or _NO_ANSWER.search(answer):
        return RemoteTimeoutError(
            f"{where}: no complete answer for {waited:.0f} s, at last: {reason}. Check the address and the network; "
            f"RemoteOptions has retry_seconds={remote.retry_seconds:g} and silence_seconds={remote.silence_seconds:g}."
        )
    return StorageError(f"{where}: {reason}.")


def _reason(error: Exception) -> str:
    """Give the text of an error of obstore's, without its details for debugging, pages of HTML and secrets."""
    text = re.split("\n\nDebug source|:? *<!doctype|:? *<html", str(error), maxsplit=1, flags=re.IGNORECASE)[0].strip()
    text = re.sub(r"https?://\S+", lambda match: shown(match[0]), text)
    if code := re.search("<Code>(.*?)</Code>", text):  # of an answer in XML
        text = f"{re.split('<[?]xml|<Error>', text)[0].strip(' :')}, {code[1]}"
    return text


def _cause(url: str, error: Exception) -> Exception | None:
    """Give the error to chain; none for a URL with secrets, because a traceback prints it."""
    return error if shown(url) == url else None


_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_NO_CREDENTIALS = re.compile("ExpiredToken|InvalidToken|[Cc]redential")
#: A request to the service that gives a machine, pod or task its role.
_ROLE = re.compile(
    r"performing [A-Z]+ https?://(169\.254\.|metadata[./]|[^/]+/latest/(api/token|meta-data/)|\[fd00:ec2)"
)
_NO_ANSWER = re.compile("error sending request|body error|timed out|timeout|connect")
#: Causes that have no status: how the text and the details of obstore's error show each, and what to do about it, with
#: the reason and the group of the pattern.
_CAUSES = {
    "InvalidContentType": "the server's first bytes were plain, as those of HTTP are ({reason}); https:// expects TLS. "
    "Try http://, or check the port.",
    # of rustls, with its name of the fault
    r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)": "the certificate of the server was refused "
    "({detail}): it is not signed by an authority that this machine knows, not for this name, or not valid today. "
    "SSL_CERT_FILE names a file with the certificates of another authority, as a company's; else check the address and "
    "the clock.",
    "redirect without LOCATION|PermanentRedirect|AuthorizationHeaderMalformed": "{reason}. The bucket is probably in "
    "another region: set AWS_REGION, or RemoteOptions(region=...), to that of the bucket.",
    "non-partial|Requested .* got|Range request not supported": "the server does not give parts of files as asked "
    "({reason}). It, or a proxy before it, has to support requests for ranges: use another, or download the file.",
}
_CREDENTIALS = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), or RemoteOptions(profile=...) for "
    "those of the files of aws",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


def _advice_on_credentials(url: str) -> str:
    """Tell where the credentials of a kind of store come from."""
    scheme = url.partition(":")[0]
    if scheme not in _CREDENTIALS:
        return "Check that the address is right, and that its signature is valid until the end of the training."
    return f"{_CREDENTIALS[scheme]}; RemoteOptions(anonymous=True) is for public buckets."


def _described_credentials(remote: RemoteOptions) -> str:
    if remote.anonymous:
        return "the request had no credentials (anonymous=True)"
    if remote.profile:
        return f"the credentials were those of the profile {remote.profile!r}"
    return "the credentials were those of the environment, the files of aws or this machine's role"


# --- stores -----------------------------------------------------------------------------------------------------------


def shown(url: str) -> str:
    """Give the part of a URL that may be shown: without a query, which may be a signature, and without a password."""
    if not url.startswith(("http://", "https://")):
        return url
    return re.sub("://[^/?#]*@", "://", url.partition("?")[0])


def is_signed(url: str) -> bool:
    """Whether whoever has a URL may read the file."""
    return any(SIGNATURE.fullmatch(text.partition("=")[0]) for text in urlsplit(url).query.split("&"))


def _check_redirects(url: str, seconds: float) -> None:
    """Refuse a signed URL that is redirected to another host: the library would name it there, in `Referer`."""
    if url.startswith(("http://", "https://")) and is_signed(url):
        try:
            _follow(url, seconds)
        except StorageError:
            raise
        except (OSError, HTTPException):  # the request after this one describes it
            pass


@lru_cache(maxsize=4096)
def _follow(url: str, seconds: float) -> None:
    """Ask for the first byte of a file, and raise `StorageError` if another host has it."""
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class _OneHost(HTTPRedirectHandler):
        def redirect_request(self, req: Request, fp: Any, *arguments: Any) -> Request | None:
            host = urlsplit(arguments[-1]).netloc
            if host != req.host:
                fp.close()
                raise StorageError(
                    f"{shown(url)}: the server redirects this signed URL to {host}, which would learn the signature. "
                    "Give the address of the file on that host, signed for it if it has to be."
                )
            return super().redirect_request(req, fp, *arguments)

    parts = urlsplit(url)
    names = (quote(unquote(name), safe=_AS_IT_IS) for name in parts.path.split("/"))  # an encoded slash stays one
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{'/'.join(names)}?{parts.query}"
    request = Request(address, headers={"Range": "bytes=0-0", "User-Agent": "gpubeton"})
    try:
        build_opener(_OneHost).open(request, timeout=min(seconds, 1e9)).close()
    except HTTPError as error:  # of the file itself
        error.close()


def split_url(url: str) -> tuple[str, str, str]:
    """Split the URL of an object into the scheme, the bucket or server's address, and the name of the object there."""
    scheme, _, rest = url.partition("://")
    place, slash, key = rest.partition("/")
    if scheme in ("http", "https"):
        parts = urlsplit(url)
        # In a name, the library would make a slash of an encoded one; in the address of the server it leaves it alone.
        address, key = ("/", unquote(parts.path[1:])) if "%2f" not in parts.path.lower() else (parts.path, "")
        # The query, which may hold a signature, belongs to each request.
        place = parts.netloc + address + (f"?{parts.query}" if parts.query else "")
    # obstore would ask for another object: it leaves out these parts of a name.
    is_odd = any(part in ("", ".", "..") for part in key.removesuffix("/").split("/")) and key != ""
    if place[:1] in ("", "/") or scheme not in SCHEMES or is_odd or not slash:
        raise OptionError(
            f"{shown(url)!r} is no address of a file; expected {', '.join(f'{name}://...' for name in SCHEMES)}, and "
            "after it the bucket and the name, as in s3://bucket/train.beton, without //, /./ and /../ in it. "
            "That of a folder ends in a slash: s3://bucket/folder/."
        )
    return scheme, place, key


def find_endpoint(scheme: str, remote: RemoteOptions) -> str:
    """Give the address of a store that is not the cloud's own, "" for the cloud's."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") if scheme == "s3" and not remote.endpoint else ():
        if address := os.environ.get(name):
            if not address.startswith(("http://", "https://")):
                raise OptionError(f"{name} is {address!r}; expected an address such as 'http://{address}'")
            return address
    return remote.endpoint or ""


def _connect(url: str, remote: RemoteOptions, refused: Any = None) -> Any:
    """Give the connection to a bucket or server; another one than `refused`, with credentials written meanwhile."""
    scheme, place, _ = split_url(url)
    environment = tuple(item for item in os.environ.items() if item[0].startswith(("AWS_", "GOOGLE_", "AZURE_")))
    arguments = scheme, place, remote, environment
    try:
        if (store := _store(*arguments)) is refused:  # and no other thread has made another one
            _store.cache_clear()
            store = _store(*arguments)
    except _obstore().exceptions.BaseError as error:
        text = f"{shown(url)}: no connection can be made with {remote!r}: {_reason(error)}. {_CREDENTIALS}"
        raise OptionError(text) from _cause(url, error)
    return store


@lru_cache(maxsize=64)
def _store(
    scheme: str,
    place: str,
    remote: RemoteOptions,
    environment: tuple[tuple[str, str], ...],  # noqa: ARG001  when it changes, another connection is made
) -> Any:
    """Make the connection to a bucket or server."""
    store = _obstore().store
    endpoint = find_endpoint(scheme, remote)
    seconds = timedelta(seconds=remote.silence_seconds)
    settings: dict[str, Any] = {
        "client_options": {
            "allow_http": scheme == "http" or endpoint.startswith("http://"),
            "connect_timeout": seconds,
            "read_timeout": seconds,
            "timeout": timedelta(days=1),  # of a whole answer: on a slow link it takes long, but is not silent
            "pool_idle_timeout": timedelta(seconds=30),
        },
        # `request_with_retries` repeats requests, and can be interrupted; here only the rest of an answer is.
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
    if scheme == "az":
        if endpoint:
            settings["endpoint"] = endpoint
        if remote.account:
            settings["account_name"] = remote.account
        return store.AzureStore(place, **settings)
    if endpoint:
        # By this name: obstore prefers AWS_ENDPOINT_URL_S3 to the argument `endpoint`.
        settings["config"] = {"aws_endpoint_url_s3": endpoint}
    if remote.region:
        settings["region"] = remote.region
    if not remote.anonymous and (provider := _files_of_aws(remote.profile)):
        settings["credential_provider"] = provider
    return store.S3Store(place, **settings)


def _files_of_aws(profile: str | None) -> Any:
    """Take credentials from the files of the `aws` command; None where they do not count."""
    variables = {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"}
    file = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    if profile is None and (variables & os.environ.keys() or not ("AWS_PROFILE" in os.environ or file.is_file())):
        return None
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        if profile is None:
            return None
        raise OptionError(
            f"profile={profile!r} needs boto3, which reads the files of aws: pip install boto3"
        ) from error
    try:
        session = boto3.Session(profile_name=profile)
        return Boto3CredentialProvider(session) if profile or session.get_credentials() else None
    except (BotoCoreError, ValueError) as error:
        name = profile or os.environ.get("AWS_PROFILE", "default")
        raise OptionError(
            f"the profile {name!r} of aws gives no credentials: {error}. {_advice_on_credentials('s3')}"
        ) from error


@cache
def _obstore() -> Any:
    """Import obstore when it is needed first."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise OptionError(
            "files in object stores and on web servers need obstore, which is not installed: " + install("remote")
        ) from error
    if hasattr(os, "register_at_fork"):
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


def exists_error(url: str, version: str) -> RemoteExistsError:
    """Describe an object that would be overwritten."""
    return RemoteExistsError(
        f"{shown(url)}: the store has an object of this name already ({version}); expected none. Delete it, or "
        "overwrite it."
    )
