from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import (
    check_choice,
    check_number,
    check_pair,
    check_probability,
    check_range,
    check_size,
    check_spread,
    check_whole,
)


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (check_whole, np.int64(3), 3),
        (partial(check_whole, least=1, most=100), 100, 100),
        (check_number, np.float32(0.5), 0.5),
        (check_probability, 0, 0.0),
        (check_probability, 1, 1.0),
        (check_range, [1, 2], (1.0, 2.0)),
        (partial(check_range, takes_one=True), 3, (3.0, 3.0)),
        (partial(check_pair, least=0, most=2), np.array([2, 1]), (2.0, 1.0)),
        (check_spread, 30, (-30.0, 30.0)),
        (partial(check_spread, center=1, least=0, most=10), 4, (0.0, 5.0)),
        (partial(check_spread, center=1, least=0, most=10), (0.5, 1), (0.5, 1.0)),
        (check_size, 32, (32, 32)),
        (check_size, (32, 48), (32, 48)),
        (partial(check_choice, choices=("raw", "jpg")), "jpg", "jpg"),
    ],
)
def test_a_value_in_range_comes_back_in_a_plain_type(check, value, expected):
    result = check("size", value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (check_whole, 2.0, "of at least 0"),
        (check_whole, "2", "of at least 0"),
        (check_whole, -1, "of at least 0"),
        (partial(check_whole, least=1, most=100), 101, "from 1 to 100"),
        (check_number, math.nan, "a number"),
        (check_number, "0.5", "a number"),
        (check_number, None, "a number"),
        (partial(check_number, positive=True), 0, "above 0"),
        (partial(check_number, most=3), 4, "up to 3"),
        (check_probability, -0.1, "from 0 to 1"),
        (check_probability, 1.1, "from 0 to 1"),
        (check_range, (2, 1), "the smaller first"),
        (check_range, (1, math.inf), "two numbers"),
        (check_range, 3, "two numbers"),
        (check_range, [[1, 2]], "two numbers"),
        (partial(check_range, positive=True), (0, 1), "above 0"),
        (partial(check_range, takes_one=True), [3], "a number or two numbers"),
        (partial(check_pair, least=0, most=9), (1, 2, 3), "two numbers"),
        (partial(check_pair, least=0, most=1), (0, 2), "from 0 to 1"),
        (check_spread, -1, "at least 0"),
        (partial(check_spread, center=1, least=0, most=10), 10, "from 0 to 9"),
        (partial(check_spread, center=1, least=0, most=10), (-1, 10), "from 0 to 10"),
        (check_size, 0, "at least 1"),
        (check_size, (0, 32), "at least 1"),
        (check_size, (32, 0), "at least 1"),
        (check_size, 32.0, "height and width"),
        (check_size, (32, [1, 2]), "height and width"),
        (partial(check_size, takes_one=False), 32, "expected height and width in pixels"),
        (partial(check_choice, choices=("raw", "jpg")), "png", "'raw', 'jpg'"),
        (partial(check_choice, choices=("raw", "jpg")), np.zeros(2), "'raw', 'jpg'"),
    ],
)
def test_any_other_value_is_refused_with_its_name_and_the_expected_values(check, value, expected):
    with pytest.raises(OptionError) as caught:
        check("Noise: size", value)
    assert f"Noise: size is {value!r}; expected " in str(caught.value)
    assert expected in str(caught.value)
