"""Long ranges of files of web servers: received straight into memory that is used again."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
import weakref
from urllib.parse import unquote

import numpy as np
import pytest

from gpubeton.files import staging, web_requests
from gpubeton.files.long_answers import LONG
from gpubeton.files.object_store import head_object
from gpubeton.files.open_files import open_bytes
from gpubeton.files.remote_options import RemoteOptions
from gpubeton.files.staging import page_memory
from tests.files.fault_server import Fault, FaultServer, etag

CONTENT = os.urandom(3 * LONG)


@pytest.fixture
def source(fault_server):
    """A file of a server, the start of which is there."""
    fault_server.objects["x"] = CONTENT
    source = open_bytes(fault_server.url("x"))
    fault_server.forget()
    return source


def clients(server):
    """Who made the requests: gpubeton itself, or the library."""
    return [request.headers.get("user-agent") == "gpubeton" for request in server.requests]


def address(content):
    return np.frombuffer(content, np.uint8).ctypes.data


def test_memory_is_used_again_when_nothing_holds_it_and_not_before(source):
    first, second = source.load(LONG, LONG), source.load(2 * LONG, LONG)
    held = first[10:20]
    places = {address(first), address(second)}
    del first
    third = source.load(LONG, LONG)
    assert address(third) not in places
    assert bytes(held) == CONTENT[LONG + 10 : LONG + 20]
    place = address(second)
    del second
    fourth = source.load(2 * LONG, LONG)
    assert address(fourth) == place
    assert [bytes(third), bytes(fourth)] == [CONTENT[LONG : 2 * LONG], CONTENT[2 * LONG :]]


def test_memory_goes_with_the_last_page(source, monkeypatch):
    monkeypatch.setattr(staging, "_SHARED", weakref.WeakValueDictionary())
    first, second = source.load(LONG, LONG), source.load(2 * LONG, LONG)
    memory = weakref.ref(page_memory())
    del first
    assert memory() is not None
    del second
    assert memory() is None


def test_memory_goes_though_the_start_of_a_closed_file_is_kept(source, monkeypatch):
    monkeypatch.setattr(staging, "_SHARED", weakref.WeakValueDictionary())
    source.announce(LONG, LONG)
    assert source.read(LONG, 10) == CONTENT[LONG : LONG + 10]
    memory = weakref.ref(page_memory())
    assert memory() is not None
    source.close()
    assert memory() is None
    assert open_bytes(source.name).read(LONG, 10) == CONTENT[LONG : LONG + 10]


@pytest.mark.parametrize("query", ["", "?sig=a%2Fb+c&x=y%20z", "?x=é y"])
@pytest.mark.parametrize(
    "name", ["a+b", "a%2Bb", "a b", "a%b", "a;b=c,d", "ü/'(a)'", "a@b:c&d!e*f", 'a[b]|c\\d"e^f', "a%23%3F", "a%2Fb%20c"]
)
def test_a_name_is_asked_for_as_by_the_library(fault_server, name, query):
    fault_server.objects[unquote(name)] = CONTENT
    source = open_bytes(fault_server.url(name) + query)
    assert bytes(source.load(LONG, LONG)) == CONTENT[LONG : 2 * LONG]
    assert head_object(source.name).size == len(CONTENT)
    (path,) = {request.path for request in fault_server.requests}
    assert ("%2F" in path.partition("?")[0]) == ("%2F" in name)


def test_a_connection_may_be_silent_for_ages(fault_server):
    fault_server.objects["x"] = CONTENT
    source = open_bytes(fault_server.url("x"), remote=RemoteOptions(silence_seconds=1e10))
    assert bytes(source.load(LONG, LONG)) == CONTENT[LONG : 2 * LONG]


def test_connections_are_used_again_and_others_replace_those_that_were_closed(fault_server, source):
    fault_server.faults.extend([None, Fault(cut=-1), None, Fault(headers={"Connection": "close"})])
    for _ in range(5):
        assert bytes(source.load(LONG, LONG)) == CONTENT[LONG : 2 * LONG]
    assert clients(fault_server) == [True] * 6


@pytest.mark.parametrize(
    "fault",
    [
        Fault(403),
        Fault(is_whole=True),
        Fault(headers={"Content-Encoding": "br"}),
        Fault(short=1),
    ],
    ids=["refused", "range ignored", "encoded", "shorter"],
)
def test_a_server_that_answers_otherwise_is_asked_by_the_library_from_then_on(fault_server, source, fault):
    fault_server.faults.append(fault)
    for _ in range(2):
        assert bytes(source.load(LONG, LONG)) == CONTENT[LONG : 2 * LONG]
    assert clients(fault_server) == [True, False, False]


def test_an_overloaded_server_is_not_taken_for_an_unusual_one(fault_server, source):
    fault_server.faults.append(Fault(503))
    for _ in range(2):
        assert bytes(source.load(LONG, LONG)) == CONTENT[LONG : 2 * LONG]
    assert clients(fault_server) == [True, False, True]


@pytest.mark.parametrize("proxy", ["http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize(("direct", "is_direct"), [("127.0.0.2", False), ("example.com,127.0.0.1", True)])
def test_where_there_is_a_proxy_the_library_asks_unless_the_server_needs_none(
    fault_server, monkeypatch, proxy, direct, is_direct
):
    monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", direct)  # servers that are asked without it
    fault_server.objects["x"] = CONTENT
    found = web_requests.receive_range(fault_server.url("x"), 0, LONG, etag(CONTENT), len(CONTENT), 60)
    assert found == (CONTENT[:LONG] if is_direct else b"")
    assert len(fault_server.requests) == is_direct
    if is_direct:
        assert open_bytes(fault_server.url("x")).read(0, 10) == CONTENT[:10]  # the library does so too


def test_a_silent_connection_is_given_up_though_others_wait(fault_server, source):
    place = (fault_server.url("x"), 0, LONG, etag(CONTENT), len(CONTENT), 5)
    contents = []
    fault_server.latency = 0.2  # so that they come together
    threads = [threading.Thread(target=lambda: contents.append(web_requests.receive_range(*place))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bytes(content) for content in contents] == [CONTENT[:LONG]] * 3
    fault_server.forget()
    fault_server.always = Fault(late=100)
    assert not web_requests.receive_range(*place)
    assert len(fault_server.requests) == 1


@pytest.mark.skipif(shutil.which("openssl") is None, reason="it makes the certificate")
def test_encrypted_answers_come_where_the_certificate_is_known(tmp_path, monkeypatch):
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "certificate.pem"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    with FaultServer() as server:
        server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
        server.objects["x"] = CONTENT
        place = (server.url("x").replace("http:", "https:"), LONG, 2 * LONG, etag(CONTENT), len(CONTENT))
        assert not web_requests.receive_range(*place, 30)
        assert not server.requests
        web_requests._tls.cache_clear()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        assert bytes(web_requests.receive_range(*place, 60)) == CONTENT[LONG : 2 * LONG]
    web_requests._tls.cache_clear()


def test_when_a_program_ends_it_does_not_wait_for_a_silent_server(fault_server):
    code = """
import atexit, sys, threading
def last():
    thread.join(90)
    print(thread.is_alive(), errors)
atexit.register(last)
from gpubeton.errors import StorageError
from gpubeton.files.open_files import open_bytes
from gpubeton.files.remote_options import RemoteOptions
source = open_bytes(sys.argv[1], remote=RemoteOptions(silence_seconds=100))
errors = []
def load():
    try:
        source.load(1 << 20, 1 << 20)
    except StorageError as error:
        errors.append("the program ends" in str(error))
thread = threading.Thread(target=load, daemon=True)
thread.start()
input()
"""
    fault_server.objects["x"] = CONTENT
    fault_server.faults.extend([None, Fault(cut=1000, stall=100)])
    run = [sys.executable, "-W", "error", "-c", code, fault_server.url("x")]
    process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while fault_server.answers < 2:
        time.sleep(0.01)
    assert process.communicate(b"\n") == (b"False [True]\n", b"")
    assert clients(fault_server) == [False, True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_the_end_of_a_forked_process_leaves_the_connections_of_the_other_alone(fault_server):
    code = """
import os, sys, threading
from gpubeton.files.open_files import open_bytes
source = open_bytes(sys.argv[1])
thread = threading.Thread(target=source.load, args=(1 << 20, 1 << 20))
thread.start()
input()
if os.fork() == 0:
    sys.exit()
os.wait()
print(thread.is_alive(), flush=True)
thread.join()
"""
    gate = threading.Event()
    fault_server.objects["x"] = CONTENT
    fault_server.faults.extend([None, Fault(gate=gate)])
    run = [sys.executable, "-W", "ignore", "-c", code, fault_server.url("x")]
    process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while fault_server.answers < 2:
        time.sleep(0.01)
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"True\n"
    gate.set()
    assert process.communicate() == (b"", b"")
    assert clients(fault_server) == [False, True]
