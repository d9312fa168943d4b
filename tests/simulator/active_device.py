"""A device and some memory for the simulator's own tests."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simulator.fixtures import faults, simulated_device

__all__ = ["add", "device", "faults", "ints", "pinned", "simulated_device"]

#: What new memory is full of.
GARBAGE = 0xCD


@pytest.fixture
def device(simulated_device):
    """The simulated device, active in the test's thread."""
    with simulated_device.active():
        yield simulated_device


def pinned(device, values):
    """Pinned memory that holds an array."""
    memory = device.allocate_pinned(np.asarray(values).nbytes)
    memory.array[:] = np.asarray(values).view(np.uint8)
    return memory


def ints(memory):
    """Pinned memory as numbers."""
    return memory.array.view(np.uint32)


def add(device, target, source, added, count, stream):
    """Launch target[i] = source[i] + added."""
    arguments = [np.uint64(target.address), np.uint64(source.address), np.uint32(added), np.int32(count)]
    device.launch("add", (1, 1, 1), (64, 1, 1), arguments, stream)
