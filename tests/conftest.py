"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.bytes.fault_server import FaultServer
from tests.bytes.s3_server import Bucket, running_s3
from tests.memory import MemoryMeter, running_meter

# A shell starts background jobs with Ctrl-C ignored, and so all processes of the tests would ignore it, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing is timed in a test: a busy machine is no bug. The examples are the same in every run, so that a change
# fails by its own fault only; `make fuzz` looks for new ones.
UNTIMED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("house", deadline=None, derandomize=True, suppress_health_check=UNTIMED)
settings.load_profile("house")


_FROZEN: set[str] = set()  # names of the modules whose objects no collection looks at


@pytest.fixture(autouse=True, scope="module")
def _quick_garbage() -> None:
    """Leave the objects of modules that are loaded out of every collection: beside torch and Numba, each takes long."""
    if len(loaded := sys.modules.keys() - _FROZEN) >= 50:  # a few more are not worth another collection
        gc.collect()
        gc.freeze()
        _FROZEN.update(loaded)


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Put the environment back: training libraries write LOCAL_RANK and others, which later tests would believe."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys() - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


@pytest.fixture
def own_threads() -> Callable[[], list[str]]:
    """Names of the threads of a loader that were started since the test began, and have not ended."""
    # Those of earlier tests may be on the way to their end; threads that load from object stores stay.
    before = set(threading.enumerate())
    kinds = tuple(f"gpubeton-{kind}" for kind in ("prefetch", "load", "worker", "feeder"))
    return lambda: sorted(each.name for each in set(threading.enumerate()) - before if each.name.startswith(kinds))


@pytest.fixture(scope="session")
def memory_of() -> Iterator[MemoryMeter]:
    """Measure the memory of a call in a process with no other threads."""
    with running_meter() as meter:
        yield meter


@pytest.fixture(scope="session")
def _s3_address() -> Iterator[str]:
    """An S3 server of this process, started when a test needs it first."""
    with running_s3() as address:
        yield address


_BUCKETS = count()


@pytest.fixture
def s3_server(_s3_address: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket of a real S3 interface, with credentials for it in the environment."""
    return Bucket.make(_s3_address, f"bucket-{next(_BUCKETS)}", monkeypatch)


@pytest.fixture
def fault_server() -> Iterator[FaultServer]:
    """A web server that answers with faults when a test asks for them."""
    with FaultServer() as server:
        yield server


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 50 samples with JPEG images of varying size."""
    from tests.small_files import write_photos  # it takes long, and few tests need it

    return write_photos(tmp_path_factory.mktemp("photos") / "photos.beton")


@pytest.fixture(scope="session")
def raw_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 20 samples with raw images of 48 x 64 pixels."""
    from tests.small_files import write_photos

    return write_photos(tmp_path_factory.mktemp("raw") / "raw.beton", 20, write_mode="raw", size=(48, 64))
