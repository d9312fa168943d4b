"""Memory: after the first epochs a loader asks for no more, and gives all of it back."""

from __future__ import annotations

import gc
import resource
from contextlib import closing
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.pipelines import image_pipelines
from tests.gpu.comparing import images_loader

PIPELINES = image_pipelines(48)

# What the driver and torch's allocator round up to.
_SLACK = 24 << 20


def used(gpu):
    """Bytes of the device that are taken."""
    gc.collect()
    if not gpu.has_cuda:
        from tests.simulator.device import DEVICE, PINNED

        return gpu.faults.live_memory(DEVICE) + gpu.faults.live_memory(PINNED)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(0)
    return total - free


def resident():
    """Bytes of the host's memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.parametrize("routes", [("hardware",), ()], ids="+".join)
@pytest.mark.parametrize("name", ["float16", "colors"])
def test_memory_does_not_grow_from_epoch_to_epoch(gpu, photos, name, routes):
    loader = images_loader(photos.beton, PIPELINES[name], order="random", batch_size=24, routes=routes)
    with closing(loader):
        for _ in range(3):
            for _ in loader:
                pass
        device, host = used(gpu), resident()
        for _ in range(4 if gpu.is_simulated else 20):
            for _ in loader:
                pass
        assert used(gpu) - device <= _SLACK
        assert resident() - host <= 2 * _SLACK


def test_closed_loaders_leave_no_memory_taken(gpu, photos):
    def load():
        with closing(images_loader(photos.beton, PIPELINES["float16"], batch_size=24)) as loader:
            for _ in loader:
                pass

    for _ in range(2):
        load()
    before, host = used(gpu), resident()
    for _ in range(3 if gpu.is_simulated else 8):
        load()
    assert used(gpu) - before <= _SLACK
    assert resident() - host <= 3 * _SLACK


def test_an_iterator_that_is_dropped_in_the_middle_gives_its_memory_back(gpu, photos):
    with closing(images_loader(photos.beton, PIPELINES["float16"], batch_size=24)) as loader:
        for _ in range(3):
            next(iter(loader))
        gc.collect()
        before = used(gpu)
        for _ in range(6):
            next(iter(loader))
        assert used(gpu) - before <= _SLACK
