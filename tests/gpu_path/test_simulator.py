"""The simulated GPU itself, its order and its errors: faults on a GPU have to be faults here."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from gpubeton._gpu.launch import GATHER, JPEG, PICTURE
from gpubeton.errors import DeviceError
from tests.simulator.active_device import GARBAGE, add, device, faults, ints, pinned, simulated_device
from tests.simulator.device import SimulatedDevice, _host_kernel

__all__ = ["device", "faults", "simulated_device"]


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


def test_a_kernel_that_gets_memory_which_a_gpu_cannot_reach_is_misuse(device, faults):
    """The host's own memory, or another GPU's, as an argument or in a table of images."""
    stream, good, host = device.make_stream(), device.allocate(64), np.zeros(64, np.uint8)
    second = SimulatedDevice(1)
    with second.active():
        elsewhere = second.allocate(64)
    reasons = {host.ctypes.data: "neither the device's nor pinned", elsewhere.address: "another device has"}
    for address, why in reasons.items():
        arguments = [np.uint64(good.address), np.uint64(address), np.uint32(1), np.int32(1)]
        device.launch("add", (1, 1, 1), (1, 1, 1), arguments, stream)
        stream.synchronize()
        assert [why in misuse for misuse in faults.take_misuses()] == [True]
        for kernel, row in [("gather", GATHER), ("canary", PICTURE), ("resample", PICTURE), ("jpeg_idct", JPEG)]:
            for name in [name for name in row.names if row[name] == np.uint64]:
                rows = np.zeros(2, row)
                rows[name][1] = address
                table = pinned(device, rows)
                values = [np.uint64(0) if kind is np.uint64 else kind(0) for kind in _host_kernel(kernel)[1]]
                values[0], values[5 if kernel == "resample" else 1] = np.uint64(table.address), np.int32(2)
                device.launch(kernel, (2, 1, 1), (128, 1, 1), values, stream)
                stream.synchronize()
                assert [why in misuse for misuse in faults.take_misuses()] == [True], (kernel, name)


def test_a_launch_in_a_stream_of_another_device_is_misuse(device, faults):
    memory, stream = pinned(device, np.zeros(1, np.uint32)), device.make_stream()
    second = SimulatedDevice(1)
    with second.active(), pytest.raises(DeviceError, match="400"):
        add(second, memory, memory, 1, 1, stream)
    assert "another device than the current one" in faults.take_misuses()[0]


def test_without_a_wait_one_stream_overtakes_another(device, faults):
    first, second = device.make_stream(), device.make_stream()
    source, target = pinned(device, np.uint32([5])), device.allocate_pinned(4)
    between = device.allocate(4)
    with faults.held(first):
        device.copy(between.address, source.address, 4, first)
        device.copy(target.address, between.address, 4, second)
        second.synchronize()
    first.synchronize()
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
    result = set()
    for _ in range(20):
        first, second = device.make_stream(), device.make_stream()
        source, target = pinned(device, np.uint32([5])), device.allocate_pinned(4)
        between = device.allocate(4)
        device.copy(between.address, source.address, 4, first)
        device.copy(target.address, between.address, 4, second)
        first.synchronize()
        second.synchronize()
        result.add(int(ints(target)[0]))
    assert len(result) == 2


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


def test_an_event_that_was_never_recorded_blocks_no_wait(device):
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


def test_waiting_lets_other_threads_run(device, faults):
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
    with faults.held(stream):
        arguments = [np.uint64(target.address), np.uint64(source.address), np.uint32(10), np.int32(3)]
        device.launch("add", (1, 1, 1), (64, 1, 1), arguments, stream)
        arguments.clear()
        # Without a copy the present content is read.
        others = [np.array(value) for value in (np.uint64(0), np.uint32(99), np.int32(1)) for _ in range(100)]
    stream.synchronize()
    assert ints(target).tolist() == [11, 12, 13]
    del others


def test_a_kernel_of_the_checkout_runs(device):
    from gpubeton._gpu.launch import PICTURE

    stream = device.make_stream()
    image = device.allocate_pinned(64 * 3 * 8)
    pictures = np.zeros(1, PICTURE)
    pictures[["address", "pitch", "height", "width", "is_guarded"]] = (image.address, 64 * 3, 8, 64, 1)
    described = pinned(device, pictures)
    device.launch("canary", (1, 1, 1), (64, 1, 1), [np.uint64(described.address), np.int32(1), np.uint32(7)], stream)
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


# --- errors


def test_an_error_stays_with_the_device_from_the_streams_turn_on(device, faults):
    stream, other = device.make_stream(), device.make_stream()
    memory, device_memory = pinned(device, np.uint32([1])), device.allocate(1)
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
    with pytest.raises(DeviceError, match="freeing memory"):
        device_memory.free()
    assert ints(memory)[0] == 1


def test_an_error_of_one_device_leaves_the_others_alone(device, faults):
    other = SimulatedDevice(1)
    faults.fail_device(0)
    with other.active():
        other.make_stream().synchronize()
    with pytest.raises(DeviceError, match="cuda:0"):
        device.make_stream().synchronize()


def test_waiting_for_an_event_after_an_error_raises_it(device, faults):
    stream, event = device.make_stream(), device.make_event()
    with faults.held(stream):
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


# --- the switches


def test_with_pixels_off_no_work_is_done_and_waits_return(device, faults):
    stream, event = device.make_stream(), device.make_event()
    memory = pinned(device, np.uint32([1]))
    faults.pixels = False
    with faults.held(stream):
        add(device, memory, memory, 1, 1, stream)
        event.record(stream)
        event.synchronize()
        stream.synchronize()
    assert ints(memory)[0] == 1


def test_the_journal_lists_the_work_in_its_order(device, faults):
    stream = device.make_stream()
    memory, other = pinned(device, np.uint32([1])), device.allocate(4)
    add(device, memory, memory, 1, 1, stream)
    device.copy(other.address, memory.address, 4, stream)
    stream.synchronize()
    assert [(note.name, note.stream) for note in faults.notes("work")] == [("add", 0), ("copy", 0)]


def test_a_kernel_that_is_led_astray_ends_as_misuse_and_its_stream_goes_on(device, faults):
    memory, stream = device.allocate_pinned(64), device.make_stream()
    for distance in (46, 4):  # beyond all memory, and in what belongs to it
        device.launch("stray", (1, 1, 1), (1, 1, 1), [np.uint64(memory.address), np.int32(distance)], stream)
    stream.synchronize()
    (misuse,) = faults.take_misuses()
    assert "stray reaches memory that is not there" in misuse
    assert ints(memory)[4] == 1
