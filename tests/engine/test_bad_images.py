from __future__ import annotations

import numpy as np
import pytest

from gpubeton._engine.bad_images import MAX_TRIES, BadSample, Successors, bad_image_error, bad_rows, listed
from gpubeton._plan.image_job import BadImage


def u8(*numbers):
    return np.array(numbers, np.uint64)


@pytest.mark.parametrize(
    ("indices", "sample", "others"),
    [
        ([0, 1, 2, 3, 4], 2, [3, 4, 0, 1]),
        ([7, 3, 9], 9, [7, 3]),
        ([7, 3, 9, 3], 3, [9, 7]),  # repeated ids are tried once
        ([7, 3, 9], 5, [7, 3, 9]),  # not among the indices: from the next greater id on
        ([7, 3, 9], 10, [3, 9, 7]),  # greater than all
        ([4], 4, []),
        ([], 4, []),
    ],
)
def test_the_other_samples_that_follow_may_replace_one_and_never_the_sample_itself(indices, sample, others):
    assert list(Successors(u8(*indices)).of(sample)) == others


def test_no_more_samples_are_tried_than_the_limit_and_no_fewer():
    for sample in (0, 99, 200):  # the last is not among the indices
        assert len(list(Successors(np.arange(100, dtype=np.uint64)).of(sample))) == MAX_TRIES
    assert list(Successors(np.arange(100, dtype=np.uint64)).of(98)) == [99, *range(MAX_TRIES - 1)]


def test_an_error_lists_five_samples_and_counts_the_others():
    bad = [BadSample(10 * number, f"reason {number}") for number in range(7)]
    for count, more in ((5, ""), (6, "; and 1 more"), (7, "; and 2 more")):
        error = bad_image_error("here", bad[:count], "Look.")
        first = "; ".join(f"sample {10 * number}: reason {number}" for number in range(5))
        assert str(error) == f"here: {first}{more}. Look."
        assert error.samples == tuple(range(0, 10 * count, 10))
        assert error.reasons == tuple(f"reason {number}" for number in range(count))


def test_eight_samples_are_listed_and_more_are_counted():
    assert listed(np.arange(8, dtype=np.uint64)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert listed(np.arange(9, dtype=np.uint64)) == "0, 1, 2, 3, 4, 5, 6, 7, ... (9 in all)"


NAMES = [("image", "image"), ("view", "image"), ("mask", "mask")]


def test_rows_and_outputs_are_named_in_order_for_any_order_of_executors():
    images = [BadImage(2, 1, "late"), BadImage(0, 3, "cut"), BadImage(0, 1, "early")]
    rows = bad_rows(images, NAMES, u8(50, 51, 52, 53), lambda _: "")
    assert list(rows.items()) == [(1, BadSample(51, "image: early; mask: late")), (3, BadSample(53, "image: cut"))]


def test_a_reason_is_reported_once_for_each_field():
    images = [BadImage(program, 0, "cut") for program in range(3)]
    assert bad_rows(images, NAMES, u8(5), lambda _: "")[0] == BadSample(5, "image: cut; mask: cut")


def test_the_file_of_a_sample_comes_before_its_reasons():
    rows = bad_rows([BadImage(0, 1, "cut")], NAMES, u8(5, 6), lambda sample: f"b.beton, sample {sample - 4}")
    assert rows == {1: BadSample(6, "b.beton, sample 2: image: cut")}
