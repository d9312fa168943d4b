"""What no program may do to nvJPEG, and what goes unseen on a GPU."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from benchmarks.gpu.nvjpeg_parts import Backend
from gpubeton.errors import NvjpegError
from tests.cpu.pictures import decoded
from tests.simulator.active_device import device, faults, simulated_device
from tests.simulator.device import SimulatedDevice
from tests.simulator.nvjpeg_bench import HEIGHT, PITCH, TAKEN, bench

pytestmark = pytest.mark.campaign

__all__ = ["bench", "device", "faults", "simulated_device"]


def only_misuse(faults):
    (misuse,) = faults.take_misuses()
    return misuse


def test_a_batch_before_initialize_is_misuse(bench, faults):
    assert bench().status_of_batch() == 1
    assert "nvjpegDecodeBatched before nvjpegDecodeBatchedInitialize" in only_misuse(faults)


def test_a_batch_before_initialize_can_end_the_process():
    program = f"""
import ctypes
from tests.simulator.device import SimulatedDevice
from tests.simulator.faults import Faults
from tests.simulator.library import library
Faults().crash = True
device = SimulatedDevice()
with device.active():
    stream = device.make_stream()
call, handle, state = library(), ctypes.c_void_p(), ctypes.c_void_p()
call.nvjpegCreateEx(0, None, None, 0, ctypes.byref(handle))
call.nvjpegJpegStateCreate(handle, ctypes.byref(state))
some = ctypes.c_void_p({id(object())})
call.nvjpegDecodeBatched(handle, state, some, some, some, ctypes.c_void_p(stream.handle))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert "before nvjpegDecodeBatchedInitialize; the real nvJPEG crashes here" in done.stderr


def test_to_initialize_a_state_at_work_is_misuse(bench, faults):
    job = bench()
    with faults.held(job.stream):
        job.decode()
        assert job.status_of_initialize() == 0
    assert "the state's work has not finished" in only_misuse(faults)
    job.stream.synchronize()
    job.decode()


def test_a_state_at_work_on_another_stream_is_misuse(device, bench, faults):
    job, other = bench(), device.make_stream()
    with faults.held(job.stream):
        job.decode()
        assert job.status_of_batch(other) == 0
    assert "still at work in another stream" in only_misuse(faults)
    job.stream.synchronize()
    job.status_of_batch(other)


def test_to_destroy_a_state_at_work_is_misuse(bench, faults):
    job = bench()
    with faults.held(job.stream):
        job.decode()
        closing = threading.Thread(target=job.state.close)
        closing.start()
        while not faults.misuses():
            time.sleep(0.001)
    closing.join()
    assert "its work has not finished" in only_misuse(faults)


def test_two_threads_in_one_state_are_misuse(bench, faults):
    entered, leave = threading.Event(), threading.Event()

    def decode(data):
        entered.set()
        leave.wait()
        return decoded(data)

    faults.decoder = decode
    job = bench()
    job.state.initialize(1)
    first = threading.Thread(target=job.status_of_batch)
    first.start()
    entered.wait()
    job.status_of_initialize()
    leave.set()
    first.join()
    assert "two threads use one state at once" in only_misuse(faults)


def test_a_handle_that_was_closed_is_misuse(bench, faults):
    job = bench()
    pointer = job.handle.pointer
    job.handle.close()
    assert job.handle.library.status("nvjpegDestroy", pointer) == 2
    assert "no handle, or was destroyed" in only_misuse(faults)


def test_the_default_stream_is_misuse(bench, faults):
    job = bench()
    job.state.initialize(1)
    assert job.status_of_batch(0) == 2
    assert "the default stream" in only_misuse(faults)


def test_another_current_device_than_the_handles_is_misuse(bench, faults):
    job = bench()
    with SimulatedDevice(1).active():
        job.decode()
    assert "the thread's current one is 1" in faults.take_misuses()[0]


def target_of(driven, address):
    driven.targets["channel"][0, 0] = address


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda driven: target_of(driven, np.zeros(100_000, np.uint8).ctypes.data), "neither the device's nor pinned"),
        (lambda driven: driven.outputs[0].free(), "freed"),
        (lambda driven: target_of(driven, driven.outputs[0].address + PITCH), f"of {HEIGHT * PITCH} bytes"),
        (lambda driven: driven.inputs[0].free(), "freed"),
        (lambda driven: driven.addresses.fill(driven.device.allocate(90_000).address), "memory"),
    ],
    ids=["foreign target", "freed target", "target too small", "freed bytes", "bytes on the device"],
)
def test_memory_that_nvjpeg_must_not_use_is_misuse(bench, faults, spoil, message):
    driven = bench()
    spoil(driven)
    with pytest.raises(NvjpegError):
        driven.decode()
    assert message in only_misuse(faults)


def test_to_write_into_a_tensor_of_torch_is_misuse(device, bench, faults):
    job = bench()
    tensor = device.empty((HEIGHT, PITCH), "uint8", job.stream)
    target_of(job, tensor.data_ptr())
    with pytest.raises(NvjpegError):
        job.decode()
    assert "memory of torch's allocator" in only_misuse(faults)


@pytest.mark.parametrize("early", [True, False])
def test_changing_bytes_before_the_stream_has_read_them_is_misuse(bench, faults, early):
    faults.early_write = early
    job = bench()
    with faults.held(job.stream):
        job.decode()
        job.inputs[0].array[-5] ^= 1
    job.stream.synchronize()
    assert "its bytes were changed before the stream came to it" in only_misuse(faults)


def test_freeing_memory_before_the_stream_has_used_it_is_misuse(bench, faults):
    job = bench(Backend.GPU_HYBRID)
    with faults.held(job.stream):
        job.decode()
        job.outputs[0].free()
    job.stream.synchronize()
    assert "at its turn its target is" in only_misuse(faults)


def test_bytes_that_are_not_pinned_are_allowed_by_default(bench, faults):
    image = np.frombuffer(TAKEN["4:2:0"], np.uint8).copy()
    job = bench()
    job.addresses[0] = image.ctypes.data
    job.decode()
    job.stream.synchronize()
    faults.pinned_input = True
    with pytest.raises(NvjpegError):
        job.decode()
    assert "neither the device's nor pinned" in only_misuse(faults)


def test_a_test_that_misuses_nvjpeg_fails(tmp_path):
    test = tmp_path / "test_misuse.py"
    test.write_text(
        "from tests.simulator.active_device import device, faults, simulated_device\n"
        "from tests.simulator.nvjpeg_bench import bench\n"
        "def test_it(bench):\n"
        "    bench().status_of_batch()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "nvjpegDecodeBatched before nvjpegDecodeBatchedInitialize" in done.stdout
