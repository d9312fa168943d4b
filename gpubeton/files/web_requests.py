"""Get long ranges of files of web servers straight into memory that is used again, at half of obstore's price.

A page that comes into memory new to the process costs more for this memory than for its bytes. This is for answers that
every server gives alike. All others, and connections that break, are left to obstore, which repeats and explains.
"""

from __future__ import annotations

import atexit
import socket
import ssl
import threading
import time
from collections import deque
from contextlib import suppress
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet, finalize

import numpy as np

from gpubeton.errors import StorageError
from gpubeton.files.staging import page_memory
from gpubeton.files.store_client import refuse_after_fork, request_target

_IDLE_SECONDS = 30  # after which a connection is not used again
_PAUSE = 0.1  # seconds after the answer of a server that is overloaded
_NOTHING = memoryview(b"")
_IS_OVER = threading.Event()


class _Server:
    """A web server, and connections to it that wait for their next request."""

    def __init__(self, scheme: str, place: str, silence_seconds: float) -> None:
        self._scheme, self._place = scheme, place
        self._seconds = min(silence_seconds, 1e9)  # more is too much for sockets
        self._idle: deque[tuple[HTTPConnection, float]] = deque()  # newest last, and since when
        self._all: WeakSet[HTTPConnection] = WeakSet()
        # obstore knows passwords in addresses, and proxies.
        self.is_usual = "@" not in place and (not {scheme, "all"} & getproxies().keys() or bool(proxy_bypass(place)))

    def take(self) -> tuple[HTTPConnection, bool]:
        """Give a connection, and whether it is new."""
        while self._idle:
            connection, since = self._idle.pop()
            if time.monotonic() - since < _IDLE_SECONDS:
                return connection, False
            connection.close()
        if self._scheme == "http":
            new = HTTPConnection(self._place, timeout=self._seconds)
        else:
            new = HTTPSConnection(self._place, timeout=self._seconds, context=_tls())
        self._all.add(new)
        return new, True

    def give_back(self, connection: HTTPConnection) -> None:
        """Keep a connection for the next request."""
        self._idle.append((connection, time.monotonic()))

    def end(self) -> None:
        """Close connections, and end the waiting for answers."""
        for connection, _ in self._idle:
            connection.close()
        for connection in list(self._all):
            if isinstance(connection.sock, socket.socket):
                with suppress(OSError):
                    # Not the method of encrypted ones, which may be in use.
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


_SERVERS: dict[tuple[str, str, float], _Server] = {}


@cache
def _tls() -> ssl.SSLContext:
    """Make the settings of encrypted connections, which takes long: all certificates are read."""
    return ssl.create_default_context()


def receive_range(url: str, start: int, stop: int, etag: str, size: int, silence_seconds: float) -> memoryview:
    """Get a range of one version of a file of `size` bytes, or its first bytes; none if anything is unusual."""
    parts = urlsplit(url)
    place = parts.scheme, parts.netloc, silence_seconds
    server = _SERVERS.get(place) or _SERVERS.setdefault(place, _Server(*place))
    target = request_target(url)
    wanted = {"range": f"bytes={start}-{stop - 1}", "if-match": etag, "user-agent": "gpubeton"}
    expected = [206, stop - start, f"bytes {start}-{stop - 1}/{size}", etag, None]
    content, is_new = _NOTHING, False
    while server.is_usual and not is_new and not _IS_OVER.is_set():
        connection, is_new = server.take()
        try:
            connection.request("GET", target, headers=wanted)
            stream = connection.sock  # the connection lets it go when the server announces its end
            answer = connection.getresponse()
        except (OSError, HTTPException, ValueError) as error:
            connection.close()
            server.is_usual &= not isinstance(error, ssl.SSLCertVerificationError)  # obstore may know the certificate
            if isinstance(error, TimeoutError):
                break
            continue  # the server may have closed connections that waited
        facts = [answer.getheader(name) for name in ("content-range", "etag", "content-encoding")]
        if [answer.status, answer.length, *facts] == expected:
            content = _receive(answer, stream, stop - start)
        elif answer.status == 429 or answer.status >= 500:
            time.sleep(_PAUSE)
        else:
            server.is_usual &= answer.status in (404, 412)  # no such file, another version
        will_close = answer.will_close or len(content) < stop - start
        answer.close()
        if will_close:
            connection.close()
        else:
            server.give_back(connection)
        break
    if _IS_OVER.is_set() and len(content) < stop - start:
        raise StorageError("the program ends before the rest of an answer of the server came.")
    return content


def _receive(answer: HTTPResponse, stream: socket.socket, size: int) -> memoryview:
    """Receive the content of an answer, or the part of it that comes."""
    memory = page_memory()
    block = memory.take(size)
    array = np.frombuffer(block, np.uint8)
    # The block is free again with the last view of the array. Until then it keeps the memory, with all that is free.
    finalize(array, memory.give_back, block).atexit = False
    content, count = array.data[:size], 0
    with suppress(OSError, ValueError):  # silent, broken, or closed by `_end`
        count = answer.fp.readinto1(content)  # bytes that came with the head
        while count < size and (more := stream.recv_into(content[count:])):
            count += more
    return content[:count]


@atexit.register
def _end() -> None:
    """End the waiting for answers."""
    _IS_OVER.set()
    with suppress(StorageError):
        refuse_after_fork()  # the other process has the same connections
        for server in list(_SERVERS.values()):
            server.end()
