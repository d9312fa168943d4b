from __future__ import annotations

import numpy as np
import pytest

from gpubeton.gpu.batch_memory import Constants, Slot, Table
from gpubeton.gpu.memory_layout import ALIGNMENT
from tests.simulator.active_device import device
from tests.simulator.device import DEVICE, PINNED

__all__ = ["device"]


@pytest.fixture
def stream(device):
    return device.make_stream()


@pytest.fixture
def table(device, stream):
    table = Table(device)
    yield table
    stream.synchronize()
    for buffer in table.buffers:
        buffer.free()


ARRAYS = {
    "bytes": np.arange(7, dtype=np.uint8),
    ("numbers", 3): np.arange(12, dtype=np.int32).reshape(3, 4),
    "none": np.zeros((5, 0), np.int32),
    "long": np.arange(9, dtype=np.uint64) << 40,
}


def read(device, stream, address, array):
    """An array of the device's memory."""
    memory = device.allocate_pinned(max(array.nbytes, 1))
    device.copy(memory.address, address, array.nbytes, stream)
    stream.synchronize()
    return memory.array[: array.nbytes].view(array.dtype).reshape(array.shape)


def test_arrays_arrive_each_at_an_address_that_any_type_may_have(table, device, stream):
    places = table.fill(ARRAYS)
    table.send(stream)
    assert list(places) == list(ARRAYS)
    assert all(address % ALIGNMENT == 0 for address in places.values())
    for name, array in ARRAYS.items():
        assert np.array_equal(read(device, stream, places[name], array), array)


def test_arrays_are_taken_over_when_they_are_given(table, device, stream):
    array = np.arange(5)
    places = table.fill({"a": array})
    array[:] = 0
    table.send(stream)
    assert read(device, stream, places["a"], array).tolist() == [0, 1, 2, 3, 4]


def test_what_kernels_have_written_is_brought_back(table, device, stream):
    places = table.fill({"a": np.zeros(4, np.int32), "b": np.zeros(4, np.int32)})
    table.send(stream)
    written = device.allocate_pinned(16)
    written.array.view(np.int32)[:] = 5, 6, 7, 8
    device.copy(places["b"], written.address, 16, stream)
    found = table.bring_back("b", stream)
    stream.synchronize()
    assert (found.tolist(), found.dtype) == ([5, 6, 7, 8], np.int32)


def test_a_table_is_filled_anew_and_grows(table, device, stream):
    for count in (10, 5, 1_000_000, 3):
        array = np.arange(count)
        places = table.fill({count: array})
        table.send(stream)
        assert np.array_equal(read(device, stream, places[count], array), array)
        with pytest.raises(KeyError):
            table.bring_back("of another batch", stream)


@pytest.mark.parametrize("is_freed", [False, True])
def test_a_table_is_filled_again_with_arrays_of_the_same_shapes(table, device, stream, is_freed):
    before = table.fill({"a": np.zeros(6, np.int32), "b": np.zeros((2, 3))})
    if is_freed:
        for buffer in table.buffers:
            buffer.free()
    places = table.fill({"a": np.arange(6, dtype=np.int32), "b": np.ones((2, 3))})
    assert is_freed or places == before
    table.send(stream)
    assert read(device, stream, places["a"], np.zeros(6, np.int32)).tolist() == [0, 1, 2, 3, 4, 5]
    assert (read(device, stream, places["b"], np.zeros((2, 3))) == 1).all()


def test_a_slot_has_no_memory_before_it_needs_any_and_none_after_it_was_freed(device, faults):
    before = [faults.live_memory(kind) for kind in (DEVICE, PINNED)]
    slot = Slot(device)
    assert [faults.live_memory(kind) for kind in (DEVICE, PINNED)] == before
    blocks = [slot.staging, slot.arena, slot.taps, slot.resampled]
    for block in blocks:
        block.reserve(5000)
    slot.table.fill(ARRAYS)
    assert min(faults.live_memory(kind) for kind in (DEVICE, PINNED)) > max(before)
    for buffer in slot.buffers:
        buffer.free()
    assert [faults.live_memory(kind) for kind in (DEVICE, PINNED)] == before
    assert [block.nbytes for block in blocks] == [0] * 4


def test_constants_are_sent_once_and_take_no_more_memory_than_their_bytes(device, stream, faults):
    before = {kind: faults.live_memory(kind) for kind in (DEVICE, PINNED)}
    constants, arrays = Constants(device), [np.arange(700, dtype=np.float32), np.zeros((0, 3), np.uint8)]
    places = [constants.address_of(array, stream) for array in arrays]
    assert [constants.address_of(array.copy(), stream) for array in arrays] == places
    for kind, nbytes in before.items():
        assert faults.live_memory(kind) - nbytes == 2800
    for place, array in zip(places, arrays, strict=True):
        assert np.array_equal(read(device, stream, place, array), array)
