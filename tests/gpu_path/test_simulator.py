"""The simulated GPU itself: what is wrong on a GPU has to go wrong here."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from gpubeton.errors import DeviceError
from tests.simulator.device import DEVICE, PINNED, TENSOR, SimulatedDevice
from tests.simulator.fixtures import faults, simulated_device

__all__ = ["faults", "simulated_device"]

GARBAGE = 0xCD


@pytest.fixture
def device(simulated_device):
    with simulated_device.active():
        yield simulated_device


def pinned(device, values):
    memory = device.allocate_pinned(np.asarray(values).nbytes)
    memory.array[:] = np.asarray(values).view(np.uint8)
    return memory


def ints(memory):
    return memory.array.view(np.uint32)


def add(device, target, source, added, count, stream):
    arguments = [np.uint64(target.address), np.uint64(source.address), np.uint32(added), np.int32(count)]
    device.launch("add", (1, 1, 1), (64, 1, 1), arguments, stream)


# --- order


def test_work_of_a_stream_is_done_in_its_order(device, faults):
    faults.slow_down(300, seed=1)
    stream = device.make_stream()
    memory = pinned(device, np.zeros(1, np.uint32))
    other = device.allocate(4)
    for _ in range(20):
        device.copy(other.address, memory.address, 4, stream)
        add(device, memory, other, 1, 1, stream)
    stream.synchronize()
    assert ints(memory)[0] == 20


def test_a_copy_reads_its_source_at_the_streams_turn(device, faults):
    stream = device.make_stream()
    source, target = pinned(device, np.uint32([1])), pinned(device, np.uint32([0]))
    with faults.held(stream):
        device.copy(target.address, source.address, 4, stream)
        ints(source)[0] = 2
    stream.synchronize()
    assert ints(target)[0] == 2


def test_without_a_wait_one_stream_overtakes_another(device, faults):
    first, second = device.make_stream(), device.make_stream()
    source, target = pinned(device, np.uint32([5])), device.allocate_pinned(4)
    between = device.allocate(4)
    with faults.held(first):
        device.copy(between.address, source.address, 4, first)
        device.copy(target.address, between.address, 4, second)
        second.synchronize()
    assert target.array.tolist() == [GARBAGE] * 4


def test_a_stream_that_waits_for_an_event_does_not_overtake(device, faults):
    first, second = device.make_stream(), device.make_stream()
    source, target = pinned(device, np.uint32([5])), device.allocate_pinned(4)
    between, event = device.allocate(4), device.make_event()
    with faults.held(first):
        device.copy(between.address, source.address, 4, first)
        event.record(first)
        second.wait(event)
        device.copy(target.address, between.address, 4, second)
        assert not event.is_done
        assert not second.is_idle
        assert target.array.tolist() == [GARBAGE] * 4
    second.synchronize()
    assert ints(target)[0] == 5


def test_random_delays_show_a_missing_wait(device, faults):
    faults.slow_down(2000, seed=3)
    found = set()
    for _ in range(20):
        first, second = device.make_stream(), device.make_stream()
        source, target = pinned(device, np.uint32([5])), device.allocate_pinned(4)
        between = device.allocate(4)
        device.copy(between.address, source.address, 4, first)
        device.copy(target.address, between.address, 4, second)
        first.synchronize()
        second.synchronize()
        found.add(int(ints(target)[0]))
    assert len(found) == 2


def test_an_event_is_a_mark_and_not_the_end_of_the_queue(device, faults):
    stream, event = device.make_stream(), device.make_event()
    memory = pinned(device, np.uint32([0]))
    event.record(stream)
    event.synchronize()
    with faults.held(stream):
        add(device, memory, memory, 1, 1, stream)
        assert event.is_done
        event.synchronize()
        event.record(stream)
        assert not event.is_done
    event.synchronize()
    assert ints(memory)[0] == 1


def test_an_event_that_was_never_recorded_holds_nobody_up(device):
    stream, event = device.make_stream(), device.make_event()
    stream.wait(event)
    stream.synchronize()
    event.synchronize()
    assert event.is_done


def test_a_wait_is_for_the_mark_of_then(device, faults):
    first, second, event = device.make_stream(), device.make_stream(), device.make_event()
    event.record(first)
    event.synchronize()
    second.wait(event)
    with faults.held(first):
        event.record(first)
        second.synchronize()


def test_who_waits_lets_other_threads_run(device, faults):
    stream = device.make_stream()
    with faults.held(stream):
        device.make_event().record(stream)
        waiting = threading.Thread(target=stream.synchronize)
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
    waiting.join()


# --- kernels


def test_arguments_of_a_kernel_are_copied_when_it_is_launched(device, faults):
    stream = device.make_stream()
    source, target = pinned(device, np.uint32([1, 2, 3])), device.allocate_pinned(12)
    added = np.array([10], np.uint32)
    with faults.held(stream):
        arguments = [np.uint64(target.address), np.uint64(source.address), added[0], np.int32(3)]
        device.launch("add", (1, 1, 1), (64, 1, 1), arguments, stream)
        added[0] = 99
        arguments.clear()
    stream.synchronize()
    assert ints(target).tolist() == [11, 12, 13]


def test_a_kernel_of_the_checkout_runs(device):
    from gpubeton.gpu.pictures import PICTURE

    stream = device.make_stream()
    image = device.allocate_pinned(64 * 3 * 8)
    pictures = np.zeros(1, PICTURE)
    pictures[["address", "pitch", "height", "width", "is_guarded"]] = (image.address, 64 * 3, 8, 64, 1)
    described = pinned(device, pictures)
    device.launch("plant", (1, 1, 1), (64, 1, 1), [np.uint64(described.address), np.int32(1), np.uint32(7)], stream)
    stream.synchronize()
    assert image.array[:8].tolist() != [GARBAGE] * 8


@pytest.mark.parametrize(
    ("grid", "block"), [((1, 1, 1), (32, 32, 2)), ((0, 1, 1), (1, 1, 1)), ((1, 65536, 1), (1, 1, 1))]
)
def test_a_launch_that_no_gpu_takes_is_refused(device, grid, block):
    arguments = [np.uint64(0), np.uint64(0), np.uint32(0), np.int32(0)]
    with pytest.raises(DeviceError, match="InvalidConfiguration"):
        device.launch("add", grid, block, arguments, device.make_stream())


def test_arguments_of_other_types_are_refused(device):
    with pytest.raises(AssertionError, match="add takes"):
        device.launch("add", (1, 1, 1), (1, 1, 1), [np.uint64(0), np.uint64(0), 1, np.int32(0)], device.make_stream())


# --- memory


def test_new_memory_is_garbage_and_aligned(device):
    for nbytes in (1, 255, 256, 5000):
        memory = device.allocate_pinned(nbytes)
        assert memory.array.tolist() == [GARBAGE] * nbytes
        assert memory.address % 256 == 0


def test_no_more_memory_is_given_than_there_is(device, faults):
    faults.leave_memory(10_000)
    kept = device.allocate(6000)
    with pytest.raises(DeviceError, match=r"6000 bytes were asked for, 4000 are free"):
        device.allocate(6000)
    kept.free()
    kept.free()
    device.allocate(6000)


def test_memory_is_freed_with_the_last_reference(device, faults):
    before = faults.live_memory(DEVICE), faults.live_memory(PINNED)
    memory, pinned_memory = device.allocate(1000), device.allocate_pinned(3000)
    assert (faults.live_memory(DEVICE), faults.live_memory(PINNED)) == (before[0] + 1000, before[1] + 3000)
    view = pinned_memory.array
    del memory, pinned_memory
    gc.collect()
    assert (faults.live_memory(DEVICE), faults.live_memory(PINNED)) == (before[0], before[1] + 3000)
    del view
    gc.collect()
    assert faults.live_memory(PINNED) == before[1]


def test_a_byte_written_behind_memory_is_noticed(device, faults):
    memory = device.allocate(100)
    beside = device.view(memory.address, (101,), (1,), "uint8")
    beside[100] = 1
    assert ["just outside of 100 bytes of device memory" in misuse for misuse in faults.take_misuses()] == [True]
    beside[100] = 0xA5  # as it was


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
    "the host reads behind memory": """
        memory = device.allocate(5120)
        print(device.view(memory.address, (5121,), (1,), "uint8")[5120])
        """,
}


@pytest.mark.parametrize(
    ("crash", "message"),
    [
        ("the host reads freed memory", "the host touches byte 0 of 5000 bytes of pinned memory"),
        ("a kernel writes freed memory", "add touches byte 0 of 5000 bytes of device memory"),
        ("the host reads behind memory", "the host touches byte 5120 of 5120 bytes of device memory"),
    ],
)
def test_who_uses_memory_that_is_not_there_ends_the_process(device, crash, message):
    lines = ["import numpy as np", "from tests.simulator.device import SimulatedDevice", "device = SimulatedDevice()"]
    lines += ["with device.active():", *(line[4:] for line in CRASHES[crash].splitlines())]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert message in done.stderr


# --- errors


def test_an_error_stays_with_the_device_from_the_streams_turn_on(device, faults):
    stream, other = device.make_stream(), device.make_stream()
    memory = pinned(device, np.uint32([1]))
    with faults.held(stream):
        faults.fail_stream(stream)
        add(device, memory, memory, 1, 1, stream)
        other.synchronize()
    for _ in range(2):
        with pytest.raises(DeviceError, match="cudaErrorIllegalAddress"):
            stream.synchronize()
    with pytest.raises(DeviceError, match="cudaErrorIllegalAddress"):
        other.synchronize()
    with pytest.raises(DeviceError, match="cudaErrorIllegalAddress"):
        device.allocate(1)
    assert ints(memory)[0] == 1


def test_an_error_of_one_device_leaves_the_others_alone(device, faults):
    other = SimulatedDevice(1)
    faults.fail_device(0)
    with other.active():
        other.make_stream().synchronize()
    with pytest.raises(DeviceError, match="cuda:0"):
        device.make_stream().synchronize()


def test_whoever_waits_for_an_event_behind_an_error_is_told(device, faults):
    stream, event = device.make_stream(), device.make_event()
    faults.fail_stream(stream)
    event.record(stream)
    with pytest.raises(DeviceError, match="wait for an event"):
        event.synchronize()
    with pytest.raises(DeviceError, match="query of an event"):
        _ = event.is_done


def test_a_device_has_to_be_active_in_the_calling_thread(simulated_device):
    with pytest.raises(AssertionError, match="not active"):
        simulated_device.make_stream()
    raised = []

    def work():
        try:
            simulated_device.allocate(1)
        except AssertionError as error:
            raised.append(error)

    with simulated_device.active():
        simulated_device.allocate(1)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(raised) == 1


def test_an_event_of_another_device_cannot_be_recorded(device, faults):
    other = SimulatedDevice(1)
    with other.active():
        event = other.make_event()
    with pytest.raises(DeviceError, match="InvalidResourceHandle"):
        event.record(device.make_stream())
    assert "event of device 1 in a stream of device 0" in faults.take_misuses()[0]


# --- torch


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32", "int64"])
def test_empty_gives_garbage_of_the_dtype(device, dtype):
    tensor = device.empty((2, 3, 4), dtype, device.make_stream())
    assert tensor.shape == (2, 3, 4)
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.is_contiguous()
    assert set(tensor.view(torch.uint8).reshape(-1).tolist()) == {GARBAGE}


def test_an_empty_tensor_without_elements_may_be_asked_for(device):
    assert device.empty((0, 3), "float16", device.make_stream()).shape == (0, 3)


def test_memory_of_a_tensor_is_freed_behind_what_its_stream_has_to_do(device, faults):
    stream = device.make_stream()
    tensor = device.empty((16,), "uint8", stream)
    before = faults.live_memory(TENSOR)
    with faults.held(stream):
        device.copy(tensor.data_ptr(), device.allocate_pinned(16).address, 0, stream)
        source = device.allocate_pinned(16)
        device.copy(tensor.data_ptr(), source.address, 16, stream)
        del tensor
        gc.collect()
        assert faults.live_memory(TENSOR) == before
    stream.synchronize()
    assert faults.live_memory(TENSOR) == before - 16


def test_send_takes_the_source_as_it_is_when_called(device, faults):
    stream = device.make_stream()
    source = torch.arange(6, dtype=torch.int32).reshape(2, 3).T
    with faults.held(stream):
        sent = device.send(source, stream)
        source.zero_()
        assert set(sent.view(torch.uint8).reshape(-1).tolist()) == {GARBAGE}
    assert device.fetch(sent, stream).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_fetch_waits_and_gives_memory_of_its_own(device, faults):
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


# --- the switches


def test_with_pixels_off_nothing_is_done_and_nobody_waits(device, faults):
    stream, event = device.make_stream(), device.make_event()
    memory = pinned(device, np.uint32([1]))
    faults.pixels = False
    with faults.held(stream):
        add(device, memory, memory, 1, 1, stream)
        event.record(stream)
        event.synchronize()
        stream.synchronize()
    assert ints(memory)[0] == 1


def test_the_journal_tells_what_was_done_and_in_which_order(device, faults):
    stream = device.make_stream()
    memory, other = pinned(device, np.uint32([1])), device.allocate(4)
    add(device, memory, memory, 1, 1, stream)
    device.copy(other.address, memory.address, 4, stream)
    stream.synchronize()
    assert [(note.name, note.stream) for note in faults.notes("work")] == [("add", 0), ("copy", 0)]


def test_streams_are_urgent_unless_told_otherwise(device):
    assert device.make_stream().is_urgent
    assert not device.make_stream(is_urgent=False).is_urgent
