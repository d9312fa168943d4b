"""The simulated GPU's memory, and torch's tensors in it."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest
import torch

from gpubeton.errors import DeviceError
from tests.simulator.active_device import GARBAGE, device, faults, pinned, simulated_device
from tests.simulator.device import DEVICE, PINNED, TENSOR
from tests.simulator.library import library

pytestmark = pytest.mark.campaign

__all__ = ["device", "faults", "simulated_device"]


def test_new_memory_is_garbage_and_aligned(device):
    for nbytes in (1, 255, 256, 5000):
        memory = device.allocate_pinned(nbytes)
        assert memory.array.tolist() == [GARBAGE] * nbytes
        assert memory.address % 256 == 0


def test_no_more_memory_is_given_than_there_is(device, faults):
    faults.leave_memory(10_000)
    memory = device.allocate(6000)
    with pytest.raises(DeviceError, match=r"6000 bytes were asked for, 4000 are free"):
        device.allocate(6000)
    memory.free()
    memory.free()
    device.allocate(6000)


def test_memory_is_freed_with_the_last_reference(device, faults):
    memory, pinned_memory = device.allocate(1000), device.allocate_pinned(3000)
    assert (faults.live_memory(DEVICE), faults.live_memory(PINNED)) == (1000, 3000)
    view = pinned_memory.array
    del memory, pinned_memory
    gc.collect()
    assert (faults.live_memory(DEVICE), faults.live_memory(PINNED)) == (0, 3000)
    del view
    gc.collect()
    assert faults.live_memory(PINNED) == 0


def test_memory_that_an_earlier_test_has_left_does_not_count(device, faults):
    memory, stream = device.allocate(1000), device.make_stream()
    tensor = device.empty((500,), "uint8", stream)
    faults.reset()
    library().simulated_test_begin()
    assert [faults.live_memory(kind) for kind in (DEVICE, TENSOR)] == [0, 0]
    assert faults.allocations() == 0
    faults.leave_memory(10_000)
    with faults.held(device.make_stream()):  # the same thread, of which the former stream knows nothing
        memory.free()
        del tensor
        stream.synchronize()
    assert device.memory_left() == 10_000


@pytest.mark.parametrize("is_freed", [True, False])
@pytest.mark.parametrize("place", [-1, 100])
def test_a_byte_written_beside_memory_is_noticed(device, faults, is_freed, place):
    memory = device.allocate(100)
    beside = device.view(memory.address + place, (1,), (1,), "uint8")
    beside[0] = 1
    if is_freed:
        memory.free()
    assert ["just outside of 100 bytes of device memory" in misuse for misuse in faults.take_misuses()] == [True]
    if not is_freed:
        beside[0] = 0xA5  # as it was


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_copy_from_or_to_freed_memory_is_misuse(device, faults, which):
    stream = device.make_stream()
    places = {"source": device.allocate_pinned(64), "target": device.allocate(64)}
    with faults.held(stream):
        device.copy(places["target"].address, places["source"].address, 64, stream)
        places[which].free()
    stream.synchronize()
    (misuse,) = faults.take_misuses()
    assert f"at its turn the {which}" in misuse
    assert "freed" in misuse


def test_a_copy_of_memory_that_is_not_pinned_is_misuse(device, faults):
    pageable = np.zeros(64, np.uint8)
    with pytest.raises(DeviceError, match="InvalidValue"):
        device.copy(device.allocate(64).address, pageable.ctypes.data, 64, device.make_stream())
    assert "neither the device's nor pinned" in faults.take_misuses()[0]


CRASHES = {
    "the host reads freed memory": """
        memory = device.allocate_pinned(5000)
        view = device.view(memory.address, (5000,), (1,), "uint8")
        memory.free()
        print(view[0])
        """,
    "a kernel writes freed memory": """
        memory, stream = device.allocate(5000), device.make_stream()
        memory.free()
        address = np.uint64(memory.address)
        device.launch("add", (1, 1, 1), (64, 1, 1), [address, address, np.uint32(1), np.int32(1)], stream)
        stream.synchronize()
        """,
    "a kernel writes freed memory below another handler": """
        memory, stream = device.allocate(5000), device.make_stream()
        arguments = [np.uint64(memory.address)] * 2 + [np.uint32(1), np.int32(1)]
        device.launch("add", (1, 1, 1), (64, 1, 1), arguments, stream)
        stream.synchronize()
        import faulthandler
        faulthandler.enable()
        device.launch("add", (1, 1, 1), (64, 1, 1), arguments, stream)
        stream.synchronize()
        memory.free()
        device.launch("add", (1, 1, 1), (64, 1, 1), arguments, stream)
        stream.synchronize()
        """,
    "the host reads after memory": """
        memory = device.allocate(5120)
        print(device.view(memory.address, (5121,), (1,), "uint8")[5120])
        """,
}


@pytest.mark.parametrize(
    ("crash", "message"),
    [
        ("the host reads freed memory", "the host touches byte 0 of 5000 bytes of pinned memory"),
        ("a kernel writes freed memory", "add touches byte 0 of 5000 bytes of device memory"),
        ("a kernel writes freed memory below another handler", "Segmentation fault"),
        ("the host reads after memory", "the host touches byte 5120 of 5120 bytes of device memory"),
    ],
)
def test_use_of_invalid_memory_ends_the_process(device, crash, message):
    lines = ["import numpy as np", "from tests.simulator.device import SimulatedDevice", "device = SimulatedDevice()"]
    lines += ["with device.active():", *(line[4:] for line in CRASHES[crash].splitlines())]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert message in done.stderr


STRAYING = """
import signal
import numpy as np
from tests.simulator.device import SimulatedDevice
from tests.simulator.faults import Faults

faults = Faults()
faults.stray_work = True
device = SimulatedDevice()
with device.active():
    memory, stream = device.allocate(5000), device.make_stream()
    address = np.uint64(memory.address)
    arguments = [address, address, np.uint32(1), np.int32(1)]
    device.launch("add", (1, 1, 1), (64, 1, 1), arguments, stream)
    stream.synchronize()
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # as another library may do
    memory.free()
    device.launch("add", (1, 1, 1), (64, 1, 1), arguments, stream)
    stream.synchronize()
print(*faults.take_misuses())
"""


def test_where_work_may_stray_a_kernel_in_freed_memory_is_misuse():
    done = subprocess.run([sys.executable, "-c", STRAYING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "add reaches memory that is not there" in done.stdout


FREED_UNDER_COPIES = """
import time
from tests.simulator.device import SimulatedDevice
from tests.simulator.faults import Faults

Faults().stray_work = True
device = SimulatedDevice()
with device.active():
    stream = device.make_stream()
    for number in range(20):
        source, target = device.allocate_pinned(16 << 20), device.allocate(16 << 20)
        device.copy(target.address, source.address, 16 << 20, stream)
        time.sleep(0.0002 * number)
        target.free()
        source.free()
        stream.synchronize()
"""


def test_where_work_may_stray_memory_may_be_freed_under_a_copy():
    done = subprocess.run([sys.executable, "-c", FREED_UNDER_COPIES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- torch


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32", "int64"])
def test_empty_gives_garbage_of_the_dtype(device, dtype):
    tensor = device.empty((2, 3, 4), dtype, device.make_stream())
    assert tensor.shape == (2, 3, 4)
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.is_contiguous()
    assert set(tensor.view(torch.uint8).reshape(-1).tolist()) == {GARBAGE}


def test_an_empty_tensor_may_be_allocated(device):
    assert device.empty((0, 3), "float16", device.make_stream()).shape == (0, 3)


def test_memory_of_a_tensor_is_freed_after_the_work_of_its_stream(device, faults):
    stream = device.make_stream()
    tensor = device.empty((16,), "uint8", stream)
    with faults.held(stream):
        source = device.allocate_pinned(16)
        device.copy(tensor.data_ptr(), source.address, 16, stream)
        del tensor
        gc.collect()
        assert faults.live_memory(TENSOR) == 16
    stream.synchronize()
    assert faults.live_memory(TENSOR) == 0


def test_send_copies_the_source_at_the_call(device, faults):
    stream = device.make_stream()
    source = torch.arange(6, dtype=torch.int32).reshape(2, 3).T
    with faults.held(stream):
        sent = device.send(source, stream)
        source.zero_()
        assert set(sent.view(torch.uint8).reshape(-1).tolist()) == {GARBAGE}
    assert device.fetch(sent, stream).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_fetch_waits_and_returns_separate_memory(device, faults):
    faults.slow_down(2000, least=2000)
    stream = device.make_stream()
    sent = device.send(torch.ones(3), stream)
    fetched = device.fetch(sent, stream)
    sent.zero_()
    assert fetched.tolist() == [1, 1, 1]


def test_a_view_shares_the_devices_memory(device):
    memory = pinned(device, np.arange(24, dtype=np.float32))
    view = device.view(memory.address, (2, 3), (12, 2), "float32")
    assert view.tolist() == [[0, 2, 4], [12, 14, 16]]
    view[1, 2] = -1
    assert memory.array.view(np.float32)[16] == -1


def test_hand_over_waits_for_the_event(device, faults):
    faults.slow_down(2000, least=2000)
    stream, ready = device.make_stream(), device.make_event()
    sent = device.send(torch.ones(3), stream)
    ready.record(stream)
    device.hand_over([sent], ready)
    assert sent.tolist() == [1, 1, 1]


def test_torch_begins_when_the_stream_that_it_uses_is_done(device, faults):
    faults.slow_down(2000, least=2000)
    stream = device.make_stream()
    assert device.current_stream is None
    with device.using(stream):
        assert device.current_stream is stream
        sent = device.send(torch.ones(3), stream)
        doubled = sent * 2
    assert doubled.tolist() == [2, 2, 2]
    assert device.current_stream is None


def test_a_view_of_a_tensor_waits_for_nothing(device, faults):
    stream = device.make_stream()
    tensor = device.empty((4, 3), "float16", stream)
    with faults.held(stream), device.using(stream):
        device.make_event().record(stream)
        assert tensor[1:].permute(1, 0).shape == (3, 3)
