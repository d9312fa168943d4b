from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from gpubeton.cli.screen import Screen, histogram, printable, progress, show_json, size_text


def test_values_unknown_to_json_become_null_and_numpys_numbers_are_numbers(capsys):
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


def test_no_bar_is_drawn_without_a_terminal(capsys):
    with progress("Doing") as advance:
        advance(1, 2)
        advance(2, 2)
    assert capsys.readouterr() == ("", "")


@given(st.text(st.characters()))
def test_printable_text_is_one_line_that_any_terminal_takes_and_harmless_text_is_unchanged(text):
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in shown)
    shown.encode("utf-8")
    assert printable(shown) == shown


def test_letters_of_every_script_and_emoji_are_printable():
    text = "Hündin 犬 दिल्\u200dली 👩\u200d🚀 [/x] :smile:"
    assert printable(text) == text


def test_nothing_in_a_string_controls_the_terminal_in_any_output():
    hostile = "[/x] :smile: \x1b[2J\u202e\ud800"
    shown = io.StringIO()
    screen = Screen(file=shown, force_terminal=True, width=200)
    table = Table(title=hostile)
    table.add_column(hostile)
    table.add_row(hostile)
    screen.print(hostile)
    screen.print(table)
    assert "\x1b[2J" not in shown.getvalue()
    assert shown.getvalue().count("[/x] :smile: \\x1b[2J\\u202e\\ud800") == 4


def test_control_characters_in_the_title_of_a_bar_are_escaped(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("Writing [/x]{y}\x1b]0;z") as advance:
        advance(1, 1)
    shown = capsys.readouterr().err
    assert "Writing [/x]{y}\\x1b]0;z" in shown
    assert "\x1b]0;" not in shown
