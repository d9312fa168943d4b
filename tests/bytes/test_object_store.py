"""Objects in stores: read by ranges of one version, listed and written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest

from gpubeton._bytes import RemoteOptions, open_bytes
from gpubeton._bytes.object_store import PART, head_object, list_objects, put_object
from gpubeton.errors import (
    OptionError,
    RemoteExistsError,
    RemoteMissingError,
    TruncatedError,
)
from tests.bytes.fault_server import Fault
from tests.objects import read_object

CONTENT = os.urandom(3 << 20)


def test_written_content_is_read_back(s3_server):
    url = s3_server.url("folder/ä file+%20#?.beton")
    written = put_object(url, CONTENT)
    assert read_object(url) == CONTENT
    assert head_object(url) == written
    assert written.size == len(CONTENT)


def test_long_files_are_written_in_parts_and_read_in_parts(s3_server, tmp_path):
    content = os.urandom((17 << 20) + 5)
    (tmp_path / "long").write_bytes(content)
    written = put_object(s3_server.url("long"), tmp_path / "long", s3_server.options)
    assert written.etag.endswith('-3"')  # S3's name for an object of three parts
    assert read_object(s3_server.url("long"), s3_server.options) == content


@pytest.mark.parametrize("size", [100, 9 << 20])
def test_nothing_is_overwritten_unless_asked_for(s3_server, size):
    put_object(s3_server.url("one"), b"first")
    with pytest.raises(RemoteExistsError, match=s3_server.url("one")):
        put_object(s3_server.url("one"), bytes(size))
    assert read_object(s3_server.url("one")) == b"first"
    put_object(s3_server.url("one"), bytes(size), overwrite=True)
    assert head_object(s3_server.url("one")).size == size


def test_lists_have_the_objects_of_one_folder_in_order(s3_server):
    for key in ("a/2.beton", "a/10.beton", "a/deep/3.beton", "ab.beton", "b/4.beton"):
        s3_server.put(key, key.encode())
    objects = list_objects(s3_server.url("a/"))
    assert [url for url, _, _ in objects] == [s3_server.url("a/10.beton"), s3_server.url("a/2.beton")]
    assert [(size, etag) for _, size, etag in objects] == [
        (10, head_object(objects[0][0]).etag),
        (9, head_object(objects[1][0]).etag),
    ]
    assert [url for url, _, _ in list_objects(s3_server.url(""))] == [s3_server.url("ab.beton")]


def test_a_missing_object_is_named_in_the_error(s3_server):
    for url in (s3_server.url("none.beton"), "s3://no-such-bucket/none.beton"):
        with pytest.raises(RemoteMissingError, match=url):
            open_bytes(url)
        with pytest.raises(FileNotFoundError):
            head_object(url)


def test_a_web_servers_page_is_no_part_of_the_message():
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server, ThreadPoolExecutor(1) as thread:
        thread.submit(server.serve_forever, 0.05)
        try:
            with pytest.raises(RemoteMissingError, match="404 Not Found") as caught:
                open_bytes(f"http://127.0.0.1:{server.server_port}/no/such.beton")
        finally:
            server.shutdown()
    assert "<" not in str(caught.value)


def test_an_object_without_bytes_is_a_truncated_file(s3_server):
    put_object(s3_server.url("none/a.beton"), b"")
    with pytest.raises(TruncatedError, match="the object has no bytes"):
        open_bytes(s3_server.url("none/a.beton"))


@pytest.mark.parametrize(
    "url", ["s3://", "s3://bucket", "s3:///key", "s3://bucket//key", "s3://bucket/a/../key", "https:///x"]
)
def test_names_that_a_store_would_not_take_are_refused(url):
    with pytest.raises(OptionError, match=url):
        open_bytes(url)


def test_web_servers_are_not_listed(fault_server):
    with pytest.raises(OptionError, match="URL of each file"):
        list_objects(fault_server.url("a/"))


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_every_store_is_asked_at_the_endpoint(fault_server, scheme):
    fault_server.objects["place/a/b c.beton"] = CONTENT
    options = RemoteOptions(endpoint=fault_server.address, anonymous=True, account="account", region="eu-west-1")
    assert read_object(f"{scheme}://place/a/b c.beton", options) == CONTENT
    assert {unquote(request.path) for request in fault_server.requests} == {"/place/a/b c.beton"}
    assert not any("Authorization" in request.headers for request in fault_server.requests)


def test_a_signed_address_keeps_its_signature(fault_server):
    fault_server.objects["a b"] = CONTENT
    assert read_object(fault_server.url("a%20b?signature=a%2Fb&c=d")) == CONTENT
    assert {request.path for request in fault_server.requests} == {"/a%20b?signature=a%2Fb&c=d"}


def test_importing_gpubeton_imports_no_client_of_stores():
    code = "import sys, gpubeton, gpubeton.cli; print([name for name in sys.modules if name in ('obstore', 'boto3')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_without_the_extra_the_error_names_it():
    code = """
import sys
sys.modules["obstore"] = None
from gpubeton._bytes import open_bytes
try:
    open_bytes("s3://bucket/train.beton")
except ValueError as error:
    print(error)
"""
    shown = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert re.search(r"pip install .*\[remote\]", shown)


@pytest.mark.parametrize("scheme", ["http", "s3"])
@pytest.mark.parametrize(
    "fault", [Fault(503), Fault(cut=-1, is_reset=True), Fault(late=200), Fault(cut=1000, stall=200)]
)
def test_a_program_ends_while_the_store_does_not_answer_requests_ahead(fault_server, fault, scheme):
    code = """
import sys
from gpubeton._bytes import RemoteOptions, open_bytes
remote = RemoteOptions(retry_seconds=600, silence_seconds=100, endpoint=sys.argv[2], anonymous=True)
source = open_bytes(sys.argv[1], remote=remote)
print("opened", flush=True)
sys.stdin.readline()
source.announce(0, source.size)
print("asked", flush=True)
sys.stdin.readline()
"""
    fault_server.objects["bucket/x"] = bytes(PART + (3 << 20))  # two parts
    url = "s3://bucket/x" if scheme == "s3" else fault_server.url("bucket/x")
    command = [sys.executable, "-c", code, url, fault_server.address]
    for _ in range(1 if fault.late or fault.stall else 2):  # those take 5 seconds
        fault_server.always = None
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout.readline() == b"opened\n"
            fault_server.always, requests = fault, len(fault_server.requests)
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"asked\n"
            while len(fault_server.requests) < requests + 2:
                time.sleep(0.01)
            try:
                _, errors = process.communicate(b"\n")
            finally:
                process.kill()
            assert (process.returncode, errors) == (0, b"")


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_a_program_may_end_while_answers_are_received(fault_server, scheme):
    code = """
import sys, threading
from gpubeton._bytes import RemoteOptions, open_bytes
source = open_bytes(sys.argv[1], remote=RemoteOptions(endpoint=sys.argv[2], anonymous=True))
def read():
    while True:
        source.load(0, source.size)
for _ in range(8):
    threading.Thread(target=read, daemon=True).start()
for _ in range(5):
    source.load(0, source.size)
"""
    fault_server.objects["bucket/x"] = os.urandom(4 << 20)
    url = "s3://bucket/x" if scheme == "s3" else fault_server.url("bucket/x")
    for _ in range(3):
        run = [sys.executable, "-c", code, url, fault_server.address]
        assert subprocess.run(run, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_the_end_of_a_forked_process_leaves_the_requests_of_the_other_alone(fault_server):
    code = """
import os, sys, threading
from gpubeton._bytes import open_bytes
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
    assert len(fault_server.requests) == 2
