from __future__ import annotations

import pytest

from gpubeton.transforms import ToDevice
from tests.simulator.device import SimulatedDevice
from tests.simulator.fixtures import faults, simulated_device
from tests.small_files import write_photos

__all__ = ["faults", "simulated_device"]


@pytest.fixture
def gpus(faults, monkeypatch):
    """Simulated GPUs in the place of real ones: loaders on "cuda:0" and up use them. Gives those that were opened."""
    opened = {}

    def open_device(name):
        number = int(str(name).partition(":")[2] or 0)
        return opened.setdefault(number, SimulatedDevice(number))

    monkeypatch.setattr("gpubeton._gpu.cuda.open_device", open_device)
    monkeypatch.setattr(ToDevice, "apply", _copied)
    return opened


def _copied(self, batch, draw=None):
    """Torch without CUDA knows no such device, and the simulated GPU's tensors are on the CPU."""
    return batch.clone()


@pytest.fixture(scope="session")
def raw_photos(tmp_path_factory):
    """A file of 20 samples with raw images of varying size."""
    return write_photos(tmp_path_factory.mktemp("raw") / "raw.beton", 20, write_mode="raw")
