from __future__ import annotations

import numpy as np
import pytest

from gpubeton.plan.philox import philox4x32, sort_keys, uniform, uniforms

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
    assert philox4x32(np.array([counter], np.uint32), np.array(key, np.uint32)).tolist() == [words]


def test_rows_do_not_depend_on_each_other_nor_on_how_many_there_are():
    counter = np.random.default_rng(0).integers(0, 2**32, (20_001, 4), np.uint32)
    key = np.array([1, 2], np.uint32)
    words = philox4x32(counter, key)
    for rows in ([0], [8191, 8192], [20_000]):
        assert np.array_equal(philox4x32(counter[rows], key), words[rows])


def test_the_counter_is_epoch_sample_operation_block_and_the_key_the_seed_low_word_first():
    seed = (3 << 32) + 5
    numbers = uniform(seed, epoch=9, samples=SAMPLES, operation=(2 << 16) + 1, count=8)
    for row, sample in enumerate(SAMPLES):
        counter = [[9, int(sample), (2 << 16) + 1, block] for block in (0, 1)]
        words = philox4x32(np.array(counter, np.uint32), np.array([5, 3], np.uint32))
        assert numbers[row].tolist() == (words.ravel() * 2.0**-32).tolist()


def test_fewer_numbers_are_the_first_of_more():
    many = uniform(1, 2, SAMPLES, 3, 40)
    for count in (0, 1, 3, 4, 5, 39):
        assert np.array_equal(uniform(1, 2, SAMPLES, 3, count), many[:, :count])


def test_several_operations_at_once_are_each_by_itself():
    wanted = [(3, 6), (4, 0), (70_000, 13), (5, 4)]
    for numbers, (operation, count) in zip(uniforms(1, 2, SAMPLES, wanted), wanted, strict=True):
        assert np.array_equal(numbers, uniform(1, 2, SAMPLES, operation, count))


def test_no_operation_and_no_sample_give_nothing():
    assert uniforms(1, 2, SAMPLES, []) == []
    assert uniform(1, 2, SAMPLES[:0], 3, 4).shape == (0, 4)


@pytest.mark.parametrize("change", [{"seed": 2}, {"seed": 1 + (1 << 32)}, {"epoch": 3}, {"operation": 4}])
def test_another_seed_epoch_or_operation_gives_other_numbers(change):
    usual = {"seed": 1, "epoch": 2, "samples": SAMPLES, "operation": 3, "count": 4}
    assert not np.isin(uniform(**usual | change), uniform(**usual)).any()


def test_a_negative_seed_is_a_seed_like_any_other():
    assert uniform(-1, 0, SAMPLES, 0, 4).tolist() == uniform(2**64 - 1, 0, SAMPLES, 0, 4).tolist()


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
    assert not np.isin(keys, sort_keys(1, 2, 4, 1001)).any()
