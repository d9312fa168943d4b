from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._plan.philox import fill_uniform, sort_keys, uniform, uniforms
from tests.reference.philox import philox4x32

SAMPLES = np.array([0, 7, 4_000_000_000, 7], np.uint64)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_known_answers(counter, key, words):
    assert philox4x32(counter, key) == words
    numbers = np.empty((4, 1))
    place = np.array([counter[2:]], np.uint32)
    fill_uniform(*key, counter[0], np.array([counter[1]], np.uint64), place, numbers)
    assert numbers[:, 0].tolist() == [word * 2.0**-32 for word in words]


@settings(max_examples=50)
@given(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 2**64 - 1), max_size=40),
    st.integers(0, 2**32 - 1),
    st.integers(0, 13),
)
def test_the_numbers_are_those_of_the_plain_rounds(seed, epoch, samples, operation, count):
    numbers = uniform(seed, epoch, np.array(samples, np.uint64), operation, count)
    # The upper bits of a draw id, which count how often a sample came before, are a part of the seed.
    keys = [[seed & 0xFFFFFFFF, ((seed >> 32) + (sample >> 40)) & 0xFFFFFFFF] for sample in samples]
    words = [
        [word for block in range(4) for word in philox4x32([epoch, sample & 0xFFFFFFFF, operation, block], key)]
        for sample, key in zip(samples, keys, strict=True)
    ]
    assert numbers.tolist() == [[word * 2.0**-32 for word in row[:count]] for row in words]


def test_samples_of_any_layout_give_the_same_numbers():
    usual = uniform(1, 2, SAMPLES, 3, 4)
    backwards = SAMPLES[::-1].copy()[::-1]
    fixed = SAMPLES.copy()
    fixed.setflags(write=False)
    for samples in (backwards, fixed, SAMPLES.astype(np.int64)):
        assert np.array_equal(uniform(1, 2, samples, 3, 4), usual)
    assert np.array_equal(uniform(np.int64(1), np.int64(2), SAMPLES, 3, 4), usual)


def test_several_operations_at_once_are_each_by_itself():
    expected = [(3, 6), (4, 0), (70_000, 13), (5, 4)]
    for numbers, (operation, count) in zip(uniforms(1, 2, SAMPLES, expected), expected, strict=True):
        assert np.array_equal(numbers, uniform(1, 2, SAMPLES, operation, count))
    assert uniforms(1, 2, SAMPLES, []) == []
    assert uniform(1, 2, SAMPLES[:0], 3, 4).shape == (0, 4)


def test_numbers_are_uniform_from_zero_to_below_one():
    numbers = uniform(0, 0, np.arange(20_000, dtype=np.uint64), 0, 4)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=64, range=(0, 1))
    expected = numbers.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # chi-square of 63 degrees: 1 in 100 000
    assert abs(np.corrcoef(numbers.T)[np.triu_indices(4, 1)]).max() < 0.03


def test_sort_keys_differ_by_stream_and_are_those_of_a_longer_list():
    keys = sort_keys(1, 2, 3, 1001)
    assert len(np.unique(keys)) == 1001
    assert np.array_equal(keys[:500], sort_keys(1, 2, 3, 500))
    for first, count in ((0, 1), (1, 1), (1, 500), (7, 994), (500, 0), (501, 0)):
        assert np.array_equal(keys[first : first + count], sort_keys(1, 2, 3, count, first))
    assert not np.isin(keys, sort_keys(1, 2, 4, 1001)).any()
