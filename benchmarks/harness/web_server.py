"""A web server on this machine in separate processes, nginx, that counts requests and bytes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

__all__ = ["Traffic", "WebServer", "serving"]

_CONFIG = """
worker_processes 1;
pid {place}/nginx.pid;
error_log {place}/error.log;
daemon off;
master_process off;
events {{ worker_connections 1024; }}
http {{
    log_format sizes '$body_bytes_sent';
    access_log {place}/access.log sizes;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000;
    server {{
        listen 127.0.0.1:{http};
        root {root};
        location = /counted {{ access_log off; return 204; }}
    }}
    server {{
        listen 127.0.0.1:{https} ssl;
        root {root};
        ssl_certificate {place}/certificate.pem;
        ssl_certificate_key {place}/key.pem;
    }}
}}
"""


@dataclass(frozen=True)
class Traffic:
    """Answers of a server."""

    requests: int = 0
    sent_bytes: int = 0  # without headers

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.requests - other.requests, self.sent_bytes - other.sent_bytes)


@dataclass(frozen=True)
class WebServer:
    """A running server."""

    place: Path  # its settings and logs
    http: str  # addresses
    https: str
    process: int  # its number

    @property
    def certificate(self) -> Path:
        """What a client of `https` has to trust: the environment variable SSL_CERT_FILE names it."""
        return self.place / "certificate.pem"

    def cpu_seconds(self) -> float:
        """Read the processor time that it has taken."""
        ticks = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def traffic(self) -> Traffic:
        """Count the answers until now."""
        # The one process of the server writes the line of an answer before it begins the next.
        urlopen(f"{self.http}/counted").close()
        sizes = (self.place / "access.log").read_text().split()
        return Traffic(len(sizes), sum(map(int, sizes)))


@contextmanager
def serving(root: Path, place: Path) -> Iterator[WebServer]:
    """Serve the files of a folder; `place` is a folder for settings and logs."""
    if shutil.which("nginx") is None or shutil.which("openssl") is None:
        raise RuntimeError("the server is nginx, its certificate made by openssl: apt-get install nginx openssl")
    place.mkdir(parents=True, exist_ok=True)
    (place / "access.log").write_text("")
    _make_certificate(place)
    ports = _free_ports(2)
    config = place / "nginx.conf"
    config.write_text(_CONFIG.format(place=place, root=root, http=ports[0], https=ports[1]))
    process = subprocess.Popen(["nginx", "-c", config, "-p", place, "-e", place / "error.log"])
    try:
        _wait_for(ports[1])
        http, https = (f"{kind}://127.0.0.1:{port}" for kind, port in zip(("http", "https"), ports, strict=True))
        yield WebServer(place, http, https, process.pid)
    finally:
        process.terminate()
        process.wait()


def _make_certificate(place: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    command += ["-keyout", str(place / "key.pem"), "-out", str(place / "certificate.pem")]
    subprocess.run(command, check=True, capture_output=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for open_socket in sockets:
        open_socket.bind(("127.0.0.1", 0))
    ports = [int(open_socket.getsockname()[1]) for open_socket in sockets]
    for open_socket in sockets:
        open_socket.close()
    return ports


def _wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nginx does not answer on port {port}")
