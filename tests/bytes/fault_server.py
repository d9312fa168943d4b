"""A web server on the loopback interface that answers each request right, or with the fault that a test asks for."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


@dataclass(frozen=True)
class Fault:
    """The fault of one answer; the default is none."""

    status: int = 0  # answer with this status and no content
    code: str = ""  # S3's name of the error
    late: float = 0  # seconds before the first byte
    cut: int | None = None  # bytes of the content after which nothing comes
    stall: float = 0  # seconds of silence then
    drip: float = 0  # seconds between the pieces of the content, of which there are 24
    gate: threading.Event | None = None  # but for 1000 bytes, the content comes when it is set
    is_reset: bool = False  # end the connection by a reset, not as usual
    flip: int | None = None  # position in the object of a byte one of whose bits is wrong
    is_whole: bool = False  # the whole object, not the range
    short: int = 0  # bytes less, and the headers match them
    replace: bytes | None = None  # the object is replaced before the answer
    ignores_match: bool = False  # answer for any version
    headers: dict[str, str] = field(default_factory=dict)  # more headers, or others; without those whose value is ""


@dataclass(frozen=True)
class Request:
    """A request that came."""

    method: str
    path: str
    start: int | None  # first byte of the range
    stop: int | None
    headers: dict[str, str]


class FaultServer:
    """Objects by their path without the first slash, faults for the next requests, and the requests that came."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults: deque[Fault | None] = deque()  # of the next requests, None for one without
        self.always: Fault | None = None  # of every request after them
        self.requests: list[Request] = []
        self.latency = 0.0  # seconds before each answer
        self.most_at_once = 0  # requests that waited for their answers at one time
        self.answers = 0  # that were begun
        self.round_trips = 0  # longest chain of requests each of which came after the answer to the one before
        self._at_once = 0
        self._answered = 0  # longest chain that has its last answer
        self._etags: dict[int, tuple[bytes, str]] = {}
        self._lock = threading.Lock()
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        """Where it listens: the endpoint of a store."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def url(self, path: str) -> str:
        """The address of an object."""
        return f"{self.address}/{path}"

    def gets(self) -> list[Request]:
        """The requests for bytes."""
        return [request for request in self.requests if request.method == "GET"]

    def forget(self) -> None:
        """Forget the requests that came."""
        self.requests.clear()

    def enter(self, request: Request) -> Fault:
        """Note a request, and give its fault when its answer may begin: then the next one may come."""
        with self._lock:
            self.requests.append(request)
            fault = (self.faults.popleft() if self.faults else self.always) or Fault()
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            place = self._answered + 1
            self.round_trips = max(self.round_trips, place)
        time.sleep(self.latency + fault.late)
        with self._lock:
            self._at_once -= 1
            self.answers += 1
            self._answered = max(self._answered, place)
        return fault

    def etag(self, content: bytes) -> str:
        """Compute the ETag of an object, once: of a large one that takes longer than the answer."""
        if id(content) not in self._etags:
            self._etags[id(content)] = content, f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
        return self._etags[id(content)][1]

    def close(self) -> None:
        """End the server; connections that are open break off."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> FaultServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 100

    def __init__(self, faults: FaultServer) -> None:
        self.faults = faults
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, *arguments: object) -> None:
        pass  # a client has given up; this would print into whichever test runs then


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        name = unquote(self.path.partition("?")[0][1:])
        result = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, stop = (int(result[1]), int(result[2]) + 1) if result else (None, None)
        request = Request(self.command, self.path, start, stop, dict(self.headers))
        fault = self.server.faults.enter(request)
        if fault.replace is not None:
            self.server.faults.objects[name] = fault.replace
        self.answer(self.server.faults.objects.get(name), request, fault)

    def do_HEAD(self) -> None:
        self.do_GET()

    def answer(self, content: bytes | None, request: Request, fault: Fault) -> None:
        status = fault.status or (404 if content is None else 0)
        if content is not None and not status and not fault.ignores_match:
            expected = self.headers.get("If-Match")
            status = 412 if expected is not None and expected != self.server.faults.etag(content) else 0
        if status or content is None:
            code = fault.code or {404: "NoSuchKey", 412: "PreconditionFailed", 503: "SlowDown"}.get(status, "Error")
            self.send(status, {**fault.headers}, f"<Error><Code>{code}</Code></Error>".encode(), fault)
            return
        etag = self.server.faults.etag(content)
        headers = {"ETag": etag, "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT", **fault.headers}
        start, stop = 0, len(content)
        if fault.flip is not None:
            damaged = bytearray(content)
            damaged[fault.flip] ^= 0x10
            content = bytes(damaged)
        if request.start is None or fault.is_whole:
            self.send(200, headers, content, fault)
            return
        start, stop = request.start, min(request.stop or stop, stop) - fault.short
        if start >= len(content):
            self.send(416, {"Content-Range": f"bytes */{len(content)}"}, b"", fault)
            return
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        self.send(206, headers, content[start:stop], fault)

    def send(self, status: int, headers: dict[str, str], content: bytes, fault: Fault) -> None:
        if fault.cut == -1:  # not even a header
            self.break_off(fault)
            return
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with suppress(OSError):  # the client may have given up
            if fault.drip:
                size = -(-len(content) // 24)
                for at in range(0, len(content), size):
                    self.wfile.write(content[at : at + size])
                    time.sleep(fault.drip)
                return
            if fault.gate is not None:
                self.wfile.write(content[:1000])
                fault.gate.wait()
                content = content[1000:]
            self.wfile.write(content if fault.cut is None else content[: fault.cut])
            if fault.cut is not None:
                time.sleep(fault.stall)
                self.break_off(fault)

    def break_off(self, fault: Fault) -> None:
        if fault.is_reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())  # closing the object would end the connection as usual first
        else:
            self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        pass
