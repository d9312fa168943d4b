"""Tests on a real GPU.

    GPUBETON_REQUIRE_GPU=1 python -m pytest tests/gpu

Without a GPU they are skipped. With GPUBETON_REQUIRE_GPU=1 that is a failure, and so is any other skip here.
With GPUBETON_SIMULATED=1 they run on the simulated GPU, which shows that they are able to. `make gpu-rehearsal` runs
them with the real CuPy and torch over the simulated GPU.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.gpu.photos import make_photos
from benchmarks.gpu.simulation import is_rehearsed, is_simulated, rehearsed_gpu, simulated_gpu
from gpubeton.errors import DeviceError, LibraryError

HERE = Path(__file__).parent

REQUIRED = os.environ.get("GPUBETON_REQUIRE_GPU", "0") not in {"", "0"}


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            # Other versions of other packages warn of other things; of ours, only this must not happen.
            item.add_marker(pytest.mark.filterwarnings("default"))
            item.add_marker(pytest.mark.filterwarnings("error:.*images are decoded on the CPU"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if REQUIRED and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"GPUBETON_REQUIRE_GPU is set, and this was skipped: {report.longrepr}"


class Gpu(NamedTuple):
    """The GPU of a test: its device, and the simulator's switches if it is simulated."""

    device: Any
    faults: Any

    @property
    def is_simulated(self):
        return self.faults is not None

    @property
    def has_cuda(self):
        """Whether torch's tensors and streams are CUDA's, and not the host's."""
        return not is_simulated()

    @property
    def torch_device(self):
        """Where torch's tensors are."""
        return "cuda:0" if self.has_cuda else "cpu"


@pytest.fixture
def gpu():
    """cuda:0, current in the test's thread."""
    from gpubeton._gpu import cuda

    with ExitStack() as stack:
        faults = None
        if is_simulated() or is_rehearsed():
            faults = stack.enter_context(simulated_gpu() if is_simulated() else rehearsed_gpu())
            faults.take_misuses()
        try:
            device = cuda.open_device("cuda:0")
        except (DeviceError, LibraryError) as error:
            pytest.skip(f"no GPU can be used: {error}")
        with device.active():
            yield Gpu(device, faults)
        if faults is not None:
            misuses = faults.take_misuses()
            assert not misuses, "\n".join(misuses)


@pytest.fixture
def nvjpeg(gpu):
    """nvJPEG."""
    from gpubeton._gpu.nvjpeg import load

    try:
        return load()
    except LibraryError as error:
        pytest.skip(f"there is no nvJPEG: {error}")


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Photographs, few if the GPU is simulated."""
    return make_photos(tmp_path_factory.mktemp("photos"), 24 if is_simulated() or is_rehearsed() else 300, 90)
