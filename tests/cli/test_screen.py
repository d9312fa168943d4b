from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpubeton.cli.screen import histogram, progress, show_json, size_text


def test_what_json_does_not_know_becomes_null_and_numpys_numbers_are_numbers(capsys):
    show_json(
        {"a": [float("nan"), float("inf"), 0.5], "b": np.int64(7), "c": np.arange(2), "d": Path("x"), "e": "NaN é"}
    )
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"a": [None, None, 0.5], "b": 7, "c": [0, 1], "d": "x", "e": "NaN é"}
    assert "Infinity" not in shown


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
def test_bars_are_as_long_as_their_numbers_and_none_is_lost(counts):
    lines = histogram([str(number) for number in range(len(counts))], counts, width=10)
    lengths = [line.count("█") for line in lines]
    assert max(lengths) <= 10
    for count, length, line in zip(counts, lengths, lines, strict=True):
        assert abs(length - 10 * count / max(1, *counts)) <= 1
        assert line.endswith(f"{count:,}")
        assert (count == 0) == (not set(line) & set("▏▎▍▌▋▊▉█"))


def test_sizes_have_units_of_1024():
    assert [size_text(size) for size in (0, 1023, 1024, 5 << 30, 3 << 50)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 GiB", "3072.0 TiB",
    ]  # fmt: skip


def test_no_bar_is_drawn_where_nobody_looks(capsys):
    with progress("Doing") as advance:
        advance(1, 2)
        advance(2, 2)
    assert capsys.readouterr() == ("", "")
