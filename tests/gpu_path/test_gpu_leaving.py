"""Every way out of the loop on a GPU: all threads, memory and objects of nvJPEG are released."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest
import torch

from gpubeton.errors import LoaderClosedError
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import NormalizeImage, ToTensor
from tests.ctrl_c import ctrl_c
from tests.gpu_path.image_samples import IMAGE_SAMPLES, assert_same, epochs, gpu_loader, twin, write_images
from tests.loader.test_leaving import Pause, test_an_iterator_outlives_its_loader
from tests.simulator.device import DEVICE, PINNED, TENSOR
from tests.waiting import wait_until

__all__ = [
    "ctrl_c",
    "test_an_iterator_outlives_its_loader",
]

PIPELINE = [
    RandomResizedCropRGBImageDecoder((12, 10)),
    NormalizeImage((120, 110, 100), (60, 50, 40), np.float16),
    ToTensor(),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images") / "images.beton", IMAGE_SAMPLES)


def left(faults):
    """What of a GPU is in use: handles and states of nvJPEG, bytes of memory by kind."""
    return {
        **{kind: faults.live(kind) for kind in ("handle", "state")},
        **{kind: faults.live_memory(kind) for kind in (DEVICE, PINNED, TENSOR)},
    }


@pytest.fixture(params=[(True, 0), (False, 2000)], ids=["mapped", "read, on a slow GPU"])
def make(request, gpus, faults, path, own_threads):
    """Makes loaders of 12 batches, of all of which nothing may be left at the end."""
    is_mapped, delay = request.param
    faults.slow_down(delay)
    gc.collect()
    before = left(faults)
    loaders = []

    def make(**arguments):
        loader = gpu_loader(path, PIPELINE, batch_size=4, os_cache=is_mapped, **arguments)
        loaders.append(loader)
        return loader

    yield make
    for loader in loaders:
        loader.close()
    loaders.clear()
    gc.collect()
    wait_until(lambda: own_threads() == [])
    wait_until(lambda: all(stream.is_idle for stream in gpus[0].streams))
    assert left(faults) == before


def test_after_an_epoch_its_threads_are_gone_and_the_equipment_stays(make, faults, own_threads):
    loader = make()
    assert len(list(loader)) == 12
    assert own_threads() == []
    assert faults.live("state") == 2
    list(loader)
    assert faults.live("state") == 2


@pytest.mark.parametrize("received", [0, 1, 5, 12])
def test_leaving_the_loop_early_ends_its_threads_at_once(make, received, own_threads, monkeypatch):
    monkeypatch.setattr("gpubeton._engine.prefetch._PATIENCE_SECONDS", 600)
    loader = make()
    for _ in range(2):
        batches = iter(loader)
        for _ in range(received):
            next(batches)
        del batches
        assert own_threads() == []


def test_an_error_in_the_loop_body_releases_everything(make, own_threads):
    def fail():
        for _ in make():
            raise ArithmeticError("planted")

    with pytest.raises(ArithmeticError, match="planted"):
        fail()
    assert own_threads() == []


def test_a_half_used_iterator_in_a_cycle_is_collected(make, own_threads):
    cycle = [iter(make())]
    cycle.append(cycle)
    next(cycle[0])
    del cycle
    gc.collect()
    wait_until(lambda: own_threads() == [])


def test_closing_the_loader_from_another_thread_ends_the_loop(make):
    loader = make(batches_ahead=1)
    batches = iter(loader)
    next(batches)
    closing = threading.Thread(target=loader.close)
    closing.start()
    with pytest.raises(LoaderClosedError):
        [*batches, next(batches)]
    closing.join()
    with pytest.raises(LoaderClosedError):
        iter(loader)


def test_closing_while_a_batch_is_in_flight_on_the_gpu_waits_for_it(make, gpus, faults, own_threads):
    loader = make()
    augment = gpus[0].stream("augment")
    with faults.held(augment):
        batches = iter(loader)
        while augment.is_idle:
            time.sleep(0.001)
        closing = threading.Thread(target=loader.close)
        closing.start()
        closing.join(0.1)
        assert closing.is_alive(), "kernels may still read and write"
    closing.join()
    assert own_threads() == []
    with pytest.raises(LoaderClosedError):
        next(batches)


def test_closing_with_several_active_iterators_ends_them_all(make, own_threads):
    loader = make()
    iterators = [iter(loader) for _ in range(3)]
    for batches in iterators:
        next(batches)
    loader.close()
    assert own_threads() == []


def test_an_error_of_an_operation_releases_everything(make, own_threads):
    class Failing(torch.nn.Module):
        def forward(self, batch):
            raise ArithmeticError("planted")

    loader = make(more={"again": PipelineSpec("number", transforms=[ToTensor(), Failing()])})
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="planted"):
            list(loader)
        assert own_threads() == []


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_interrupts_a_waiting_loop_which_can_continue(make):
    pause = Pause()
    batches = iter(make(more={"again": PipelineSpec("number", transforms=[ToTensor(), pause])}))
    interrupt = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        [interrupt.start(), next(batches)]
    pause.go.set()
    assert len(list(batches)) == 12


def test_batches_outlive_everything(make, tmp_path):
    loader = make()
    batches = list(loader)
    copies = [tuple(output.clone() for output in batch) for batch in batches]
    loader.close()
    del loader
    gc.collect()
    assert_same(batches, copies)
    decoded = write_images(tmp_path / "decoded.beton", twin(IMAGE_SAMPLES))
    assert_same(batches, epochs(gpu_loader(decoded, PIPELINE, device="cpu", batch_size=4)))


def test_a_loader_that_is_never_closed_releases_everything_when_it_is_garbage(gpus, faults, path):
    gc.collect()
    before = left(faults)
    loader = gpu_loader(path, PIPELINE)
    next(iter(loader))
    list(loader)
    alive = weakref.ref(loader)
    del loader
    gc.collect()
    assert alive() is None
    wait_until(lambda: all(stream.is_idle for stream in gpus[0].streams))
    assert left(faults) == before
