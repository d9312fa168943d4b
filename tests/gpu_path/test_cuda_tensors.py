"""`Device` without a GPU: how it launches kernels, and its calls of torch for the batches."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from gpubeton._gpu.cuda import open_device
from gpubeton.errors import DeviceError
from tests.at_once import run_at_once
from tests.simulator.recorded_cuda import DriverError, cuda_device, record

__all__ = ["cuda_device", "record"]


# --- kernels


@pytest.fixture
def cubins(monkeypatch):
    """Kernels of nothing but their names; those that were compiled."""
    compiled = []

    def load_machine_code(cupy, name, architecture):
        compiled.append((name, architecture))
        return name.encode()

    monkeypatch.setattr("gpubeton._gpu.kernels.load_machine_code", load_machine_code)
    return compiled


def test_a_kernel_is_loaded_once_for_each_gpu_and_launched_as_asked(cuda_device, record, cubins):
    stream = cuda_device.make_stream()
    arguments = [np.uint64(1), np.int32(2)]
    for _ in range(2):
        cuda_device.launch("resample", (3, 4, 5), (6, 7, 8), arguments, stream)
    assert cubins == [("resample", "sm_91")]
    assert record.named("load", "get_function") == [("load", b"resample"), ("get_function", "resample")]
    launch = ("launch", "resample", (3, 4, 5), (6, 7, 8), (np.uint64(1), np.int32(2)), 0, stream.handle)
    assert record.named("launch") == [launch, launch]
    other = open_device(0)
    other.launch("resample", (1, 1, 1), (1, 1, 1), [], other.make_stream())
    assert cubins == [("resample", "sm_91"), ("resample", "sm_90")]


def test_threads_that_need_a_kernel_at_once_load_it_once(cuda_device, record, monkeypatch):
    stream, together = cuda_device.make_stream(), threading.Barrier(8)
    loaded = []

    def load_machine_code(cupy, name, architecture):
        loaded.append(name)
        time.sleep(0.05)  # for the others to come here, if they can
        return b""

    def launch():
        together.wait()
        cuda_device.launch("resample", (1, 1, 1), (1, 1, 1), [], stream)

    monkeypatch.setattr("gpubeton._gpu.kernels.load_machine_code", load_machine_code)
    run_at_once(lambda _: launch(), range(8))
    assert loaded == ["resample"]
    assert len(record.named("launch")) == 8


def test_a_launch_of_no_blocks_is_refused_and_an_error_names_the_kernel(cuda_device, record, cubins):
    stream = cuda_device.make_stream()
    with pytest.raises(DeviceError, match=r"launching resample.*is empty"):
        cuda_device.launch("resample", (1, 0, 1), (1, 1, 1), [], stream)
    assert record.named("launch") == []
    record.fail["launch"] = [DriverError(1)]
    with pytest.raises(DeviceError, match=r"cuda:1: launching resample with grid \(1, 1, 1\) and block \(2, 1, 1\)"):
        cuda_device.launch("resample", (1, 1, 1), (2, 1, 1), [], stream)


@pytest.mark.parametrize("status", [200, 209, 218, 222])
def test_a_kernel_that_cannot_be_loaded_is_named_with_its_architecture(cuda_device, record, cubins, status):
    """A driver that is older than the compiler is no fault of earlier work."""
    record.fail["load"] = [DriverError(status)]
    with pytest.raises(DeviceError, match=f"loading resample, compiled for sm_91: driver status {status}. CUDA cannot"):
        cuda_device.launch("resample", (1, 1, 1), (1, 1, 1), [], cuda_device.make_stream())


# --- torch


def test_tensors_come_from_torchs_allocator_on_the_stream_and_too_little_memory_is_an_error(cuda_device, record):
    stream = cuda_device.make_stream()
    record.calls.clear()
    cuda_device.empty((2, 3), "float16", stream)
    assert record.calls == [
        ("torch stream", stream.handle),
        ("empty", (2, 3), {"dtype": torch.float16, "device": torch.device("cuda", 1)}),
        ("torch stream", 556),
    ]
    record.fail["empty"] = [torch.cuda.OutOfMemoryError("CUDA out of memory.")]
    with pytest.raises(DeviceError, match=r"cuda:1: a float16 tensor of shape \(2, 3\): CUDA out of memory"):
        cuda_device.empty((2, 3), "float16", stream)


def test_fetch_sleeps_until_the_stream_is_done(cuda_device, record):
    stream = cuda_device.make_stream()
    tensor = cuda_device.empty((2,), "uint8", stream)
    record.calls.clear()
    cuda_device.fetch(tensor, stream)
    assert [call[0] for call in record.calls] == ["record", "synchronize", "torch stream", "to", "torch stream"]
    assert record.named("to") == [("to", "tensor 0", "cpu", False)]


def test_hand_over_lets_the_callers_stream_wait_and_torch_know_and_leaves_the_cpus_tensors_alone(cuda_device, record):
    stream, ready = cuda_device.make_stream(), cuda_device.make_event()
    # Labels without ToDevice, for example: torch has no record_stream for them.
    tensors = [cuda_device.empty((2,), "uint8", stream), torch.zeros(2), cuda_device.empty((2,), "uint8", stream)]
    record.calls.clear()
    cuda_device.hand_over(tensors, ready)
    assert record.calls == [
        ("streamWaitEvent", 556, ready.cupy.ptr, 0),
        ("record_stream", "tensor 0", 556),
        ("record_stream", "tensor 1", 556),
    ]
