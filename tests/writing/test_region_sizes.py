from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpubeton.writing.file_builder import RegionSizes

SAMPLES = st.lists(st.lists(st.integers(0, 50), max_size=4), max_size=12)


@given(SAMPLES, st.randoms(use_true_random=False))
def test_regions_of_a_sample_follow_each_other_wherever_it_goes(samples, random):
    regions = RegionSizes.of(samples)
    offset = np.array([random.randrange(1 << 40) for _ in samples], np.uint64)
    expected, owners, rooms = [], [], []
    for number, (sizes, start) in enumerate(zip(samples, offset.tolist(), strict=True)):
        room = 0
        for size in sizes:
            expected.append(start + room)
            owners.append(number)
            room += max(size, 1)
        rooms.append(room)
    assert regions.pointers(offset).tolist() == expected
    assert regions.owners.tolist() == owners
    assert regions.room_of_samples.tolist() == rooms


def test_no_two_regions_begin_at_the_same_place_not_even_empty_ones():
    assert RegionSizes.of([[0, 0], [0], [5]]).pointers(np.array([10, 12, 13])).tolist() == [10, 11, 12, 13]
