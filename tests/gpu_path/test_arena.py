from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton.gpu.batch_memory import GrowableBuffer
from gpubeton.gpu.memory_layout import ALIGNMENT, lay_out_images, round_up

SIDES = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=30)


def columns(sides):
    return (np.array([side[axis] for side in sides], np.int32) for axis in (0, 1))


def ends(layout, height):
    return layout.offset.astype(np.int64) + layout.pitch.astype(np.int64) * height


@given(sides=SIDES, start=st.integers(0, 5000))
def test_images_lie_one_behind_another_aligned_with_room_for_every_row(sides, start):
    height, width = columns(sides)
    layout = lay_out_images(height, width, start=start)
    assert (layout.offset.dtype, layout.pitch.dtype) == (np.uint64, np.int32)
    assert (layout.offset % ALIGNMENT == 0).all()
    assert (layout.pitch >= 3 * width).all()
    assert (layout.pitch < 3 * width + 32).all()
    # Kernels read 16 bytes at a time.
    assert (layout.pitch % 16 == 0).all()
    begins = [*layout.offset.astype(np.int64), layout.nbytes]
    assert all(begin >= start for begin in begins)
    assert all(ends(layout, height) <= begins[1:])
    # Nothing but what alignment costs lies between them.
    assert all(begins[1:] - ends(layout, height) < ALIGNMENT)
    assert layout.nbytes % ALIGNMENT == 0
    assert begins[0] < start + ALIGNMENT


@given(sides=SIDES, start=st.integers(0, 40).map(lambda number: number * ALIGNMENT))
def test_images_that_are_sent_in_one_copy_lie_without_gaps(sides, start):
    height, width = columns(sides)
    layout = lay_out_images(height, width, start=start, is_tight=True)
    assert (layout.pitch == 3 * width).all()
    size = 3 * height.astype(np.int64) * width
    assert layout.offset.tolist() == (start + np.cumsum(size) - size).tolist()
    assert layout.nbytes == round_up(start + int(size.sum()))


def test_sizes_of_many_large_images_do_not_overflow():
    side = np.full(20, 60_000, np.int32)
    for is_tight in (False, True):
        layout = lay_out_images(side, side, is_tight=is_tight)
        assert (np.diff(layout.offset.astype(np.int64)) >= 3 * 60_000**2).all()
        assert layout.nbytes >= 20 * 3 * 60_000**2


def test_no_image_takes_no_memory():
    nothing = np.zeros(0, np.int32)
    assert lay_out_images(nothing, nothing).nbytes == 0
    assert lay_out_images(nothing, nothing, start=700).nbytes == 768


@pytest.mark.parametrize(
    ("nbytes", "rounded"), [(0, 0), (1, 256), (255, 256), (256, 256), (257, 512), (2**40 + 1, 2**40 + 256)]
)
def test_bytes_are_rounded_up(nbytes, rounded):
    assert round_up(nbytes) == rounded


class Piece:
    """Memory that remembers whether it was freed."""

    live = 0

    def __init__(self, nbytes):
        self.nbytes, self.address, self.is_freed = nbytes, 4096, False
        Piece.live += nbytes

    def free(self):
        assert not self.is_freed
        self.is_freed = True
        Piece.live -= self.nbytes


@pytest.fixture
def block():
    Piece.live = 0
    made = []
    block = GrowableBuffer(lambda nbytes: made.append(Piece(nbytes)) or made[-1])
    block.made = made
    return block


def test_a_block_allocates_nothing_before_it_is_asked(block):
    assert (block.nbytes, block.made) == (0, [])
    block.free()


@given(wishes=st.lists(st.integers(0, 1 << 28), min_size=1, max_size=30))
def test_a_block_has_what_was_asked_for_and_keeps_it_while_that_is_enough(wishes):
    Piece.live = 0
    made = []
    block = GrowableBuffer(lambda nbytes: made.append(Piece(nbytes)) or made[-1])
    for wish in wishes:
        before, allocations = block.nbytes, len(made)
        memory = block.reserve(wish)
        assert memory.nbytes == block.nbytes >= wish
        assert not memory.is_freed
        if 0 < wish <= before or (wish == 0 and before):
            assert len(made) == allocations
        assert Piece.live == block.nbytes, "what it grew out of is freed"
    largest = max(wishes)
    assert block.nbytes <= largest + largest // 8 + (1 << 20)
    block.free()
    assert Piece.live == 0


def test_wishes_that_vary_by_a_tenth_need_one_allocation(block):
    rng = np.random.default_rng(0)
    block.reserve(10_000_000)
    for _ in range(100):
        block.reserve(int(rng.uniform(10_000_000, 11_000_000)))
    assert len(block.made) == 1


def test_exactly_what_it_has_is_enough(block):
    memory = block.reserve(5)
    assert block.reserve(memory.nbytes) is memory


def test_what_it_grew_out_of_is_freed_before_more_is_asked_for(block):
    """Old and new together might not fit."""
    most = 0

    def allocate(nbytes):
        nonlocal most
        most = max(most, Piece.live + nbytes)
        return Piece(nbytes)

    block._allocate = allocate
    block.reserve(1 << 20)
    block.reserve(16 << 20)
    assert most <= 19 << 20


def test_a_block_that_cannot_grow_has_nothing_and_may_be_asked_again(block):
    block.reserve(1000)
    allocate, block._allocate = block._allocate, None
    with pytest.raises(TypeError):
        block.reserve(1 << 22)
    assert (block.nbytes, Piece.live) == (0, 0)
    block._allocate = allocate
    assert block.reserve(1 << 22).nbytes >= 1 << 22


def test_a_block_may_be_freed_twice_and_used_again(block):
    block.reserve(5)
    block.free()
    block.free()
    assert block.reserve(5).nbytes >= 5
    block.free()
