from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._plan.ranges import plan_ranges
from gpubeton.errors import OptionError


def spans(offset, size, **limits):
    plan = plan_ranges(offset, size, **{"max_gap": 64, "max_read": 1 << 20} | limits)
    return list(zip(plan.start.tolist(), plan.stop.tolist(), strict=True))


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 300)), max_size=40),
    st.integers(0, 200),
    st.integers(1, 2000),
)
def test_every_sample_lies_whole_in_its_range(samples, max_gap, max_read):
    offset, size = np.array(samples, np.uint64).reshape(-1, 2).T
    plan = plan_ranges(offset, size, max_gap=max_gap, max_read=max_read)
    assert (plan.source == -1).tolist() == (size == 0).tolist()
    filled = size > 0
    source = plan.source[filled]
    assert np.array_equal(plan.start[source] + plan.position[filled], offset[filled])
    assert (offset[filled] + size[filled] <= plan.stop[source]).all()
    assert (plan.start[1:] >= plan.start[:-1]).all()
    longest = {number: size[plan.source == number].max() for number in range(len(plan.start))}
    for number, (start, stop) in enumerate(zip(plan.start, plan.stop, strict=True)):
        assert stop > start
        assert stop - start <= max(max_read, longest[number])


@pytest.mark.parametrize(
    ("offset", "size", "limits", "expected"),
    [
        ([0, 164], [100, 10], {}, [(0, 174)]),  # a gap of exactly `max_gap`
        ([0, 165], [100, 10], {}, [(0, 100), (165, 175)]),
        ([0, 100, 200], [100, 100, 100], {"max_read": 300}, [(0, 300)]),
        ([0, 100, 200], [100, 100, 100], {"max_read": 299}, [(0, 200), (200, 300)]),
        ([0, 10, 1010], [10, 1000, 10], {"max_read": 100}, [(0, 10), (10, 1010), (1010, 1020)]),  # a longer sample
        ([0, 10, 900], [1000, 10, 50], {}, [(0, 1000)]),  # a sample inside another
        ([], [], {}, []),
    ],
)
def test_ranges_end_at_longer_gaps_and_before_longer_reads(offset, size, limits, expected):
    assert spans(offset, size, **limits) == expected


def test_the_same_sample_twice_is_read_once():
    plan = plan_ranges([50, 50], [10, 10], max_gap=0, max_read=100)
    assert (plan.start.tolist(), plan.source.tolist(), plan.position.tolist()) == ([50], [0, 0], [0, 0])


@pytest.mark.parametrize(
    ("offset", "size", "limits"), [([1], [1, 2], {}), ([1], [1], {"max_gap": -1}), ([1], [1], {"max_read": 0})]
)
def test_impossible_arguments_are_refused(offset, size, limits):
    with pytest.raises(OptionError, match="expected"):
        spans(offset, size, **limits)
