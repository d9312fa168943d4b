"""What the executor takes for granted of a GPU's streams, events and memory."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
import torch

from gpubeton._gpu.cuda import open_device
from gpubeton.errors import DeviceError
from tests.at_once import run_at_once


class Busy:
    """Keeps a stream busy for a while, by copies of device memory."""

    def __init__(self, gpu):
        self._device = gpu.device
        # Some 50 milliseconds of a data-center GPU, longer on others.
        self._nbytes, self._copies = (8 << 20, 100) if gpu.is_simulated else (256 << 20, 400)
        self._memory = [gpu.device.allocate(self._nbytes) for _ in range(2)]

    def keep(self, stream):
        first, second = self._memory
        for _ in range(self._copies):
            self._device.copy(first.address, second.address, self._nbytes, stream)


@pytest.fixture
def busy(gpu):
    return Busy(gpu)


def pinned(device, values):
    memory = device.allocate_pinned(values.nbytes)
    memory.array[:] = values.view(np.uint8)
    return memory


def test_bytes_come_back_from_the_device_as_they_were_at_any_place(gpu):
    device, stream = gpu.device, gpu.device.make_stream()
    values = np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8)
    sent, back, memory = pinned(device, values), pinned(device, np.zeros_like(values)), device.allocate(len(values))
    for start, count in ((0, len(values)), (1, 77), (4097, 12345), (len(values) - 1, 1), (5, 0)):
        back.array[:] = 0
        device.copy(memory.address + start, sent.address + start, count, stream)
        device.copy(back.address + start, memory.address + start, count, stream)
        stream.synchronize()
        assert np.array_equal(back.array[start : start + count], values[start : start + count])
        assert not back.array[:start].any()
        assert not back.array[start + count :].any()


def test_memory_begins_where_the_kernels_want_it(gpu):
    for nbytes in (0, 1, 1000, 1 << 20):
        assert gpu.device.allocate(nbytes).address % 256 == 0
        assert gpu.device.allocate_pinned(nbytes).address % 16 == 0


def test_an_event_is_done_when_the_work_before_it_is(gpu, busy):
    device = gpu.device
    stream, event = device.make_stream(), device.make_event()
    assert event.is_done
    busy.keep(stream)
    event.record(stream)
    assert not event.is_done
    event.synchronize()
    assert event.is_done


def test_a_stream_waits_for_an_event_of_another(gpu, busy):
    device = gpu.device
    first, second, event = device.make_stream(), device.make_stream(), device.make_event()
    values = np.arange(1000, dtype=np.uint8)
    sent, back, memory = pinned(device, values), pinned(device, np.zeros_like(values)), device.allocate(len(values))
    busy.keep(first)
    device.copy(memory.address, sent.address, len(values), first)
    event.record(first)
    second.wait(event)
    device.copy(back.address, memory.address, len(values), second)
    second.synchronize()
    assert event.is_done
    assert np.array_equal(back.array, values)


def test_streams_run_beside_each_other_and_beside_torchs_default_stream(gpu, busy):
    device = gpu.device
    blocked, free = device.make_stream(), device.make_stream()
    values = np.arange(100, dtype=np.uint8)
    sent, memory, event = pinned(device, values), device.allocate(len(values)), device.make_event()
    busy.keep(blocked)
    event.record(blocked)
    device.copy(memory.address, sent.address, len(values), free)
    free.synchronize()
    assert not event.is_done, "the other stream was waited for"
    blocked.synchronize()


def test_each_thread_may_use_the_device(gpu):
    device, results = gpu.device, []

    def copy(number):
        values = np.full(100_000, number, np.uint8)
        with device.active():
            stream, memory = device.make_stream(), device.allocate(values.nbytes)
            sent, back = pinned(device, values), pinned(device, np.zeros_like(values))
            for _ in range(50):
                device.copy(memory.address, sent.address, values.nbytes, stream)
                device.copy(back.address, memory.address, values.nbytes, stream)
            stream.synchronize()
            results.append(np.array_equal(back.array, values))

    run_at_once(copy, range(1, 5))
    assert results == [True] * 4


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float16", "bfloat16", "float32", "int64"])
def test_tensors_show_the_memory_of_the_device(gpu, dtype):
    device, stream = gpu.device, gpu.device.make_stream()
    kind = getattr(torch, dtype)
    values = torch.arange(24).to(kind)
    content = values.view(torch.uint8).numpy()
    tensor, sent = device.empty((2, 3, 4), dtype, stream), pinned(device, content)
    device.copy(tensor.data_ptr(), sent.address, content.nbytes, stream)
    assert torch.equal(device.fetch(tensor, stream), values.reshape(2, 3, 4))
    empty = device.empty((3, 5), dtype, stream)
    assert (empty.dtype, tuple(empty.shape), empty.is_contiguous()) == (kind, (3, 5), True)
    with device.using(stream):
        empty.fill_(7)
    assert torch.equal(device.fetch(empty, stream), torch.full((3, 5), 7).to(kind))


def test_torch_works_on_a_stream_for_a_while_and_then_where_it_did_before(gpu):
    if not gpu.has_cuda:
        return  # torch has no streams for the host

    def places():
        return torch.cuda.current_device(), [torch.cuda.current_stream(n) for n in range(torch.cuda.device_count())]

    with torch.cuda.stream(torch.cuda.Stream()):
        before = places()
        for device in [open_device(number) for number in range(torch.cuda.device_count())]:
            with suppress(ZeroDivisionError), device.active():
                stream = device.make_stream()
                with device.using(stream):
                    assert torch.cuda.current_stream() == stream.torch
                    assert places()[0] == device.number
                    raise ZeroDivisionError
            assert places() == before


def test_memory_that_is_freed_is_there_again(gpu):
    def free():
        if not gpu.has_cuda:
            from tests.simulator.device import DEVICE

            return -gpu.faults.live_memory(DEVICE)
        return torch.cuda.mem_get_info(0)[0]

    gpu.device.allocate(1 << 20).free()
    before = free()
    memory = [gpu.device.allocate(64 << 20) for _ in range(4)]
    assert before - free() >= 4 * (64 << 20)
    for block in memory:
        block.free()
        block.free()
    assert before - free() < (64 << 20), "modules that are loaded late, and other processes, take some"


def test_a_request_for_too_much_memory_raises_an_error_that_names_it(gpu):
    with pytest.raises(DeviceError, match="bytes were asked for"):
        gpu.device.allocate(1 << 45)
    gpu.device.allocate(1 << 20).free()


def test_an_empty_grid_is_an_error(gpu):
    arguments = [np.uint64(0), np.int32(0), np.uint32(0)]
    with pytest.raises(DeviceError):
        gpu.device.launch("canary", (0, 1, 1), (32, 1, 1), arguments, gpu.device.make_stream())


def test_tensors_are_handed_over_when_their_event_is_done(gpu, busy):
    device, stream, event = gpu.device, gpu.device.make_stream(), gpu.device.make_event()
    tensor = device.empty((1000,), "int32", stream)
    with device.using(stream):
        tensor.fill_(1)
    stream.synchronize()
    busy.keep(stream)
    with device.using(stream):
        tensor.fill_(2)
    event.record(stream)
    device.hand_over([tensor, torch.zeros(3)], event)
    assert (tensor + 0).cpu().eq(2).all()
