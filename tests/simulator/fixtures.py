"""Fixtures: a simulated GPU, and its faults.

A `conftest.py` imports them: ``from tests.simulator.fixtures import faults, simulated_device``.
"""

from __future__ import annotations

import pytest

from tests.simulator.build import build
from tests.simulator.device import SimulatedDevice
from tests.simulator.faults import Faults
from tests.simulator.library import library

__all__ = ["faults", "simulated_device"]


@pytest.fixture
def faults(monkeypatch, request):
    """The switches of the simulator, whose nvJPEG is the one that gpubeton finds; asserts that nothing was misused."""
    monkeypatch.setenv("GPUBETON_NVJPEG", str(build()))
    monkeypatch.setenv("GPUBETON_SELF_TEST", "0")  # tests count calls; `test_self_test.py` is for it
    library().simulated_faults_explain(_standard_error(request.config))
    library().simulated_test_begin()
    library().simulated_misuses_clear()
    switches = Faults()
    yield switches
    busy = switches.reset()
    misuses = switches.take_misuses()
    assert not misuses, "\n".join(misuses)
    assert busy == 0, f"{busy} streams are still at work"


@pytest.fixture
def simulated_device(faults):
    """cuda:0, simulated; not active yet."""
    return SimulatedDevice(0)


def _standard_error(config):
    """Where pytest writes why the process crashed: what a test writes to standard error is lost then."""
    try:
        from _pytest.faulthandler import fault_handler_stderr_fd_key
    except ImportError:
        return 2
    return config.stash.get(fault_handler_stderr_fd_key, 2)
