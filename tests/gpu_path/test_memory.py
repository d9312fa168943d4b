from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._gpu.memory import Constants, GrowableBuffer, Table
from tests.gpu_path.gpu_room import ALIGNMENT, Slot
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


def test_arrays_arrive_as_they_were_given_each_at_an_address_that_any_type_may_have(table, device, stream):
    arrays = {name: array.copy() for name, array in ARRAYS.items()}
    places = table.fill(arrays)
    for array in arrays.values():
        array[...] = 0
    table.send(stream)
    assert list(places) == list(ARRAYS)
    assert all(address % ALIGNMENT == 0 for address in places.values())
    for name, array in ARRAYS.items():
        assert np.array_equal(read(device, stream, places[name], array), array)


def test_memory_written_by_kernels_is_copied_back(table, device, stream):
    places = table.fill({"a": np.zeros(4, np.int32), "b": np.zeros(4, np.int32)})
    table.send(stream)
    written = device.allocate_pinned(16)
    written.array.view(np.int32)[:] = 5, 6, 7, 8
    device.copy(places["b"], written.address, 16, stream)
    result = table.bring_back("b", stream)
    stream.synchronize()
    assert (result.tolist(), result.dtype) == ([5, 6, 7, 8], np.int32)


def test_a_table_is_filled_again_and_grows(table, device, stream):
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


class Allocation:
    """Memory that remembers whether it was freed."""

    live = 0

    def __init__(self, nbytes):
        self.nbytes, self.address, self.is_freed = nbytes, 4096, False
        Allocation.live += nbytes

    def free(self):
        assert not self.is_freed
        self.is_freed = True
        Allocation.live -= self.nbytes


@pytest.fixture
def allocations():
    """What blocks have allocated."""
    Allocation.live = 0
    return []


@pytest.fixture
def block(allocations):
    return GrowableBuffer(lambda nbytes: allocations.append(Allocation(nbytes)) or allocations[-1])


@given(wishes=st.lists(st.integers(0, 1 << 28), min_size=1, max_size=30))
def test_a_block_has_the_requested_size_and_stays_while_that_is_enough(wishes):
    Allocation.live = 0
    results = []
    block = GrowableBuffer(lambda nbytes: results.append(Allocation(nbytes)) or results[-1])
    for wish in wishes:
        before, allocations = block.nbytes, len(results)
        memory = block.reserve(wish)
        assert memory.nbytes == block.nbytes >= wish
        assert not memory.is_freed
        if 0 < wish <= before or (wish == 0 and before):
            assert len(results) == allocations
        assert Allocation.live == block.nbytes, "the smaller memory is freed"
    largest = max(wishes)
    assert block.nbytes <= largest + largest // 8 + (1 << 20)
    for _ in range(2):
        block.free()
        assert Allocation.live == 0
    assert block.reserve(5).nbytes >= 5
    block.free()


def test_wishes_that_vary_by_a_tenth_need_one_allocation_and_none_is_made_before(block, allocations):
    assert (block.nbytes, allocations) == (0, [])
    block.free()
    rng = np.random.default_rng(0)
    block.reserve(10_000_000)
    for _ in range(100):
        block.reserve(int(rng.uniform(10_000_000, 11_000_000)))
    assert len(allocations) == 1


def test_the_smaller_memory_is_freed_before_a_larger_one_is_requested():
    """Old and new together might not fit."""
    Allocation.live, sums = 0, []
    block = GrowableBuffer(lambda nbytes: sums.append(Allocation.live + nbytes) or Allocation(nbytes))
    block.reserve(1 << 20)
    block.reserve(16 << 20)
    assert max(sums) <= 19 << 20


def test_a_block_that_cannot_grow_has_nothing_and_may_be_asked_again():
    def allocate(nbytes):
        if nbytes > 1 << 22 and len(refused) < 1:
            refused.append(nbytes)
            raise MemoryError("planted")
        return Allocation(nbytes)

    Allocation.live, refused = 0, []
    block = GrowableBuffer(allocate)
    block.reserve(1000)
    with pytest.raises(MemoryError, match="planted"):
        block.reserve(1 << 23)
    assert (block.nbytes, Allocation.live) == (0, 0)
    assert block.reserve(1 << 23).nbytes >= 1 << 23
