"""Faults of servers and networks: bytes are right, or an error names the fault. Never other bytes, never a hang."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from gpubeton._bytes import RemoteOptions, list_shards, open_bytes
from gpubeton._bytes.node_cache import NodeCache
from gpubeton._bytes.object_store import PART, head_object
from gpubeton._bytes.open_files import CacheFiller, OpenSources
from gpubeton.errors import (
    RemoteChangedError,
    RemoteDeniedError,
    RemoteMissingError,
    RemoteSlowDownError,
    RemoteTimeoutError,
    StorageError,
)
from tests.bytes.fault_server import Fault
from tests.objects import read_object
from tests.waiting import wait_until

CONTENT = random.Random(0).randbytes(1 << 20)
OTHER = random.Random(1).randbytes(1 << 20)
START, SIZE = 300_000, 500_000
SILENT = 0.5  # seconds until a silent connection is given up, where that is tested


@pytest.fixture(params=["http", "s3"])
def store(request, fault_server):
    """A server, the address of an object on it, and how it is reached, as a web server or as S3."""
    fault_server.objects["bucket/train.beton"] = CONTENT
    is_s3 = request.param == "s3"
    options = RemoteOptions(
        endpoint=fault_server.address if is_s3 else None, anonymous=True, retry_seconds=1.5, silence_seconds=60
    )
    return fault_server, "s3://bucket/train.beton" if is_s3 else fault_server.url("bucket/train.beton"), options


def opened(store, faults=(), **options):
    server, url, before = store
    if any(fault.late or fault.stall or fault.drip for fault in faults):
        options["silence_seconds"] = SILENT
    source = open_bytes(url, remote=replace(before, **options))
    server.forget()
    return source


GOOD_IN_THE_END = {
    "nothing": [],
    "slow down twice": [Fault(503), Fault(503)],
    "slow down five times": [Fault(503)] * 5,
    "too many requests": [Fault(429)],
    "error of the server": [Fault(500), Fault(502), Fault(504)],
    "reset before the answer": [Fault(cut=-1, is_reset=True)],
    "end before the answer": [Fault(cut=-1)],
    "body cut": [Fault(cut=1000)],
    "body reset": [Fault(cut=1000, is_reset=True)],
    "body cut thrice": [Fault(cut=1000), Fault(cut=70_000), Fault(cut=0)],
    "first byte late": [Fault(late=SILENT / 2)],
    "first byte too late": [Fault(late=2 * SILENT)],
    "silence within the body": [Fault(cut=1000, stall=2 * SILENT)],
    "slow, but never silent for long": [Fault(drip=SILENT / 3)],
}


@pytest.mark.parametrize("faults", GOOD_IN_THE_END.values(), ids=GOOD_IN_THE_END)
def test_faults_that_pass_leave_the_bytes_right(store, faults):
    source = opened(store, faults, retry_seconds=60)
    store[0].faults.extend(faults)
    assert bytes(source.load(START, SIZE)) == CONTENT[START : START + SIZE]
    assert len(store[0].requests) > len(faults) or any(fault.late == SILENT / 2 or fault.drip for fault in faults)


@pytest.mark.parametrize("name", ["metadata/train.beton", "my-credentials/timeout connect.beton"])
def test_words_in_a_name_do_not_change_the_kind_of_an_error(fault_server, name):
    fault_server.objects[f"bucket/{name}"] = CONTENT
    options = RemoteOptions(endpoint=fault_server.address, anonymous=True, retry_seconds=60)
    for url in (f"s3://bucket/{name}", fault_server.url(f"bucket/{name}")):
        fault_server.faults.extend([Fault(503), Fault(429), Fault(500), Fault(cut=-1)])
        source = open_bytes(url, remote=options)
        fault_server.faults.extend([Fault(503), Fault(429), Fault(500), Fault(cut=-1)])
        assert bytes(source.load(START, SIZE)) == CONTENT[START : START + SIZE]
        for fault, fact in ((Fault(400), "400"), (Fault(is_whole=True), "ranges")):
            fault_server.faults.append(fault)
            with pytest.raises(StorageError, match=fact) as raised:
                read_object(url, options)
            assert type(raised.value) is StorageError


def test_a_wrapped_source_may_be_deleted_whenever_garbage_is_collected(fault_server, tmp_path):
    fault_server.objects["x"] = CONTENT
    cache, before = NodeCache(tmp_path, 1 << 30), gc.get_threshold()
    gc.collect()
    gc.freeze()  # what other tests left: each of the collections would go through it
    try:
        for count in range(
            1, 60
        ):  # objects that are allocated, while another source closes, before garbage is collected
            source, other = (open_bytes(fault_server.url("x")) for _ in range(2))
            cached = cache.open(source, source.identity())
            alive = weakref.ref(cached)
            gc.collect()
            garbage = [cached]
            garbage.append(garbage)
            del source, cached, garbage
            gc.set_threshold(count)
            other.close()
            gc.set_threshold(*before)
            gc.collect()
            assert alive() is None
    finally:
        gc.set_threshold(*before)


def test_a_file_that_is_open_is_refused_after_a_fork(fault_server):
    code = """
import os, sys
from gpubeton.errors import StorageError
from gpubeton._bytes import open_bytes
source = open_bytes(sys.argv[1])
source.read(500_000, 10)  # a thread of the pool waits for more
if os.fork() == 0:
    for use in (source.read, source.load, source.announce):
        try:
            use(600_000, 10)
        except StorageError as error:
            assert "forked" in str(error)
        else:
            os._exit(1)
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    fault_server.objects["x"] = CONTENT
    process = subprocess.Popen([sys.executable, "-c", code, fault_server.url("x")], start_new_session=True)
    try:
        assert process.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_only_the_rest_of_a_cut_answer_is_asked_for(store):
    source = opened(store)
    store[0].faults.append(Fault(cut=1000))
    source.load(START, SIZE)
    assert [(request.start, request.stop) for request in store[0].requests] == [
        (START, START + SIZE),
        (START + 1000, START + SIZE),
    ]


ERRORS = {
    "slow down for ever": (Fault(503), RemoteSlowDownError, "requests=32"),
    "too many requests for ever": (Fault(429), RemoteSlowDownError, "requests=32"),
    "errors of the server for ever": (Fault(500), RemoteTimeoutError, "500"),
    "reset for ever": (Fault(cut=-1, is_reset=True), RemoteTimeoutError, "retry_seconds"),
    "body cut for ever": (Fault(cut=10), RemoteTimeoutError, "retry_seconds"),
    "silence for ever": (Fault(late=100), RemoteTimeoutError, "silence_seconds"),
    "silence within each body": (Fault(cut=10, stall=100), RemoteTimeoutError, "silence_seconds"),
    "forbidden": (Fault(403, "AccessDenied"), RemoteDeniedError, "AccessDenied"),
    "unknown": (Fault(401), RemoteDeniedError, "anonymous=True"),
    "expired credentials": (Fault(400, "ExpiredToken"), RemoteDeniedError, "ExpiredToken"),
    "gone": (Fault(404), RemoteMissingError, "no object of this name .*NoSuchKey"),
    "no bucket": (Fault(404, "NoSuchBucket"), RemoteMissingError, "no bucket of this name"),
    "replaced": (Fault(replace=OTHER), RemoteChangedError, "ETag"),
    "replaced, and If-Match ignored": (Fault(replace=OTHER, ignores_match=True), RemoteChangedError, "ETag"),
    "replaced by a shorter one": (Fault(replace=OTHER[:100], ignores_match=True), RemoteChangedError, "ETag"),
    "range ignored": (Fault(is_whole=True), StorageError, "ranges"),
    "shorter range": (Fault(short=10), StorageError, "ranges"),
    "bad request": (Fault(400), StorageError, "400"),
}


@pytest.mark.parametrize(("fault", "error", "fact"), ERRORS.values(), ids=ERRORS)
def test_faults_that_stay_are_errors_that_name_the_object(store, fault, error, fact):
    source = opened(store, [fault])
    store[0].always = fault
    with pytest.raises(error, match=fact) as raised:
        source.load(START, SIZE)
    assert store[1] in str(raised.value)
    if error is RemoteDeniedError:
        assert ("AWS_ACCESS_KEY_ID" in str(raised.value)) == store[1].startswith("s3")
    assert len(store[0].requests) < 60


def test_an_answer_that_is_cut_and_then_of_another_version_is_refused(store):
    source = opened(store)
    store[0].faults.extend([Fault(cut=1000), Fault(replace=OTHER)])
    with pytest.raises(RemoteChangedError):
        source.load(START, SIZE)


def test_versions_without_an_etag_are_known_by_their_time(store):
    server, url, options = store
    if url.startswith("s3"):
        pytest.skip("S3 has ETags")
    server.always = Fault(headers={"ETag": ""})
    source = open_bytes(url, remote=options)
    assert bytes(source.load(START, SIZE)) == CONTENT[START : START + SIZE]
    server.always = Fault(headers={"ETag": "", "Last-Modified": "Wed, 21 Oct 2015 07:28:01 GMT"})
    with pytest.raises(RemoteChangedError):
        source.load(START, SIZE)
    assert source.identity().cache_key is None


def test_parts_of_a_long_range_that_fail_are_asked_for_again(fault_server):
    content = os.urandom(3 * PART + 7)
    fault_server.objects["bucket/long"] = content
    options = RemoteOptions(endpoint=fault_server.address, anonymous=True)
    source = open_bytes("s3://bucket/long", remote=options)
    fault_server.faults.extend([None, Fault(404), Fault(cut=5)])
    with pytest.raises(StorageError):
        source.load(1, 3 * PART)
    assert bytes(source.load(1, 3 * PART)) == content[1 : 1 + 3 * PART]


def test_closing_ends_requests_that_are_repeated(fault_server):
    fault_server.objects["x"] = CONTENT
    source = open_bytes(fault_server.url("x"), remote=RemoteOptions(retry_seconds=1000))
    fault_server.always = Fault(503)
    errors = []

    def load():
        try:
            source.load(START, SIZE)
        except StorageError as error:
            errors.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    wait_until(lambda: len(fault_server.requests) >= 3)
    source.close()
    thread.join()
    assert "closed" in str(errors[0])


def interrupt_process():
    os.kill(os.getpid(), signal.SIGINT)


def interrupt_thread():
    # Another thread than the one that waits: as if the signal came just before the waiting.
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


@pytest.mark.parametrize("send", [interrupt_process, interrupt_thread])
@pytest.mark.parametrize("size", [1000, 1 << 20, PART + (3 << 20)])
def test_ctrl_c_does_not_wait_for_a_silent_server(fault_server, size, send):
    fault_server.objects["x"] = bytes(PART + (4 << 20))
    source = open_bytes(fault_server.url("x"), remote=RemoteOptions(silence_seconds=100))
    fault_server.always = Fault(late=100)
    fault_server.forget()

    def interrupt():
        wait_until(lambda: fault_server.requests)
        send()

    thread = threading.Thread(target=interrupt)
    thread.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        source.load(1 << 20, size)
    thread.join()
    assert time.monotonic() - began < 50


def test_all_requests_together_are_not_more_at_once_than_allowed(fault_server, tmp_path):
    url, options = fault_server.url("a"), RemoteOptions(requests=3)
    fault_server.objects["a"] = bytes(20 << 20)
    fault_server.latency = 0.05
    files = [(url, head_object(url, options))]
    cached = OpenSources(files, cache=NodeCache(tmp_path / "cache", 1 << 30))
    filler, source = CacheFiller([partial(cached.open, 0)], waits=True), OpenSources(files).open(0)
    with ThreadPoolExecutor(21) as threads:
        loads = [threads.submit(source.load, start << 20, 1 << 20) for start in range(15)]
        loads.append(threads.submit(source.read_exactly, 0, 20 << 20))
        heads = [threads.submit(head_object, url, options) for _ in range(5)]
    assert [len(load.result()) for load in loads] == [1 << 20] * 15 + [20 << 20]
    assert [head.result() for head in heads] == [files[0][1]] * 5
    filler.join()
    assert fault_server.most_at_once == 3


SCRIPT = """
import sys, threading
from gpubeton._bytes import open_bytes
file = open_bytes(sys.argv[1])
threading.Thread(target=file.load, args=(300_000, 1000), daemon=True).start()
input()
"""


def test_a_program_ends_after_the_last_answer(fault_server):
    # A thread that comes back from the library while Python takes itself apart may end it by a signal.
    fault_server.objects["a"] = bytes(1 << 20)
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, fault_server.url("a")], stdin=subprocess.PIPE)
    wait_until(lambda: fault_server.requests)
    fault_server.latency = 0.5
    wait_until(lambda: len(fault_server.requests) >= 2)
    process.communicate(b"\n")
    assert process.returncode == 0
    assert fault_server.answers == 2


def test_an_address_where_nothing_answers_is_given_up_soon(monkeypatch):
    monkeypatch.setattr("gpubeton._bytes.store_client._FIRST_PATIENCE", 0.3)
    with pytest.raises(RemoteTimeoutError, match=r"127\.0\.0\.1:9"):
        read_object("http://127.0.0.1:9/train.beton", RemoteOptions(retry_seconds=1000))


@pytest.mark.parametrize("is_endpoint", [False, True])
def test_https_to_a_server_without_tls_is_an_error_at_once(fault_server, is_endpoint, monkeypatch):
    monkeypatch.setattr("gpubeton._bytes.store_client._FIRST_PATIENCE", 3600.0)  # repeats would take so long
    server = fault_server.address.replace("http:", "https:")
    url, endpoint = ("s3://bucket/x", server) if is_endpoint else (f"{server}/x", None)
    with pytest.raises(StorageError, match=rf"/x.*plain.*{server}.*expects TLS.*http://"):
        open_bytes(url, remote=RemoteOptions(endpoint=endpoint, anonymous=True, retry_seconds=3600))


def test_without_credentials_the_error_comes_at_once(fault_server, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    options = RemoteOptions(endpoint=fault_server.address, retry_seconds=1000)
    with pytest.raises(RemoteDeniedError, match=r"AWS_ACCESS_KEY_ID(?!.*(GOOGLE|AZURE))"):
        list_shards("s3://bucket/folder/", options)
    assert fault_server.requests == []


def test_announced_ranges_come_in_parts_ahead_of_the_reader_each_byte_once(fault_server):
    start, stop = 300_000, 300_000 + 4 * PART + 1000
    fault_server.objects["x"] = content = random.Random(2).randbytes(stop + 1000)
    with open_bytes(fault_server.url("x")) as source:
        fault_server.forget()
        source.announce(start, stop - start)
        wait_until(lambda: len(fault_server.requests) == 4)  # nothing was read yet
        read = [source.read(place, 700_000) for place in range(start, stop - 700_000, 700_000)]
    assert b"".join(read) == content[start : start + 700_000 * len(read)]
    asked = sorted((request.start, request.stop) for request in fault_server.requests)
    assert [first for first, _ in asked] == [start, *(last for _, last in asked[:-1])]
    assert asked[-1][1] == stop


@pytest.mark.parametrize(("rest", "requests"), [(0, 1), (1000, 1), (2 << 20, 1), (3 << 20, 2)])
def test_a_short_rest_is_no_request(fault_server, rest, requests):
    size = PART + rest
    fault_server.objects["x"] = content = random.Random(2).randbytes(300_000 + size + 1000)
    with open_bytes(fault_server.url("x")) as source:
        fault_server.forget()
        loaded = source.load(300_000, size)
        target = bytearray(size)
        source.read_into(300_000, target)
    assert bytes(loaded) == bytes(target) == content[300_000 : 300_000 + size]
    assert len(fault_server.requests) == 2 * requests


def test_bytes_of_the_first_requests_are_reused_when_the_file_is_opened_again(fault_server):
    fault_server.objects["y"] = CONTENT
    with open_bytes(fault_server.url("y")) as source:
        source.announce(900_000, 1000)
        source.read(900_500, 100)
        identity = source.identity()
    fault_server.forget()
    with open_bytes(fault_server.url("y"), identity) as source:
        assert source.read(100, 200) == CONTENT[100:300]
        assert source.read(900_100, 300) == CONTENT[900_100:900_400]
    assert fault_server.requests == []


def test_every_request_after_the_first_names_the_version(store):
    source = opened(store)
    source.load(START, SIZE)
    source.read(500_000, 10)
    assert [request.headers.get("if-match") for request in store[0].requests] == [source.identity().etag] * 2
