from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._plan.arena_layout import ALIGNMENT, lay_out_images

SIDES = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=30)


def columns(sides):
    return (np.array([side[axis] for side in sides], np.int32) for axis in (0, 1))


def ends(layout, height):
    return layout.offset.astype(np.int64) + layout.pitch.astype(np.int64) * height


@given(sides=SIDES, start=st.integers(0, 5000))
def test_images_lie_one_after_another_aligned_with_room_for_every_row(sides, start):
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


def test_sizes_of_many_large_images_do_not_overflow():
    side = np.full(20, 60_000, np.int32)
    layout = lay_out_images(side, side)
    assert (np.diff(layout.offset.astype(np.int64)) >= 3 * 60_000**2).all()
    assert layout.nbytes >= 20 * 3 * 60_000**2
