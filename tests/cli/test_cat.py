from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from gpubeton.cli.app import app
from gpubeton.fields import BytesField
from tests.cli.command import run
from tests.picture_folders import write_converted
from tests.small_files import write, write_photos


@pytest.fixture
def file(tmp_path):
    return write_converted(tmp_path)


def test_cat_writes_the_stored_bytes_of_a_jpeg_file(file, tmp_path):
    done = run("cat", file, 0, "--only", "image")
    assert done.stdout_bytes == (tmp_path / "photos" / "cat" / "0000.jpg").read_bytes()


def test_cat_shows_all_values_or_gives_them_as_json(file, tmp_path):
    done = run("cat", file, 4)
    assert "image: JPEG file, 25 × 32 (height × width)" in done.stdout
    assert "label: 1 (dog)" in done.stdout
    every = run("cat", write_photos(tmp_path / "b.beton", 3), 2)
    for part in ("weight: 0.5", "note: 2 bytes", "info: {'number': 2}", "vector: float32 of shape (2, 3) [[2.0, 2.0"):
        assert part in every.stdout
    result = json.loads(run("cat", file, 4, "--json").stdout)
    assert (result["sample"], result["class_name"], result["values"]["label"]) == (4, "dog", 1)
    assert result["values"]["image"]["kind"] == "jpg"


def test_cat_refuses_an_unknown_sample_or_field_and_a_file_as_json(file):
    assert run("cat", file, 9).exit_code == 2
    assert run("cat", file, 0, "--only", "mask").exit_code == 2
    done = run("cat", file, 0, "--only", "image", "--json", code=2)
    assert "choose one" in json.loads(done.stdout)["error"]["message"]


def test_cat_does_not_print_binary_data_to_a_terminal(file, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(SystemExit, match="2"):
        app(["cat", str(file), "0", "--only", "image"])
    printed = capsys.readouterr()
    assert (printed.out, "> FILE" in printed.err) == ("", True)


def test_extract_takes_some_samples(file, tmp_path):
    done = run("extract", file, tmp_path / "out", "--indices", "7:")
    assert (done.exit_code, "2 samples in" in done.stdout) == (0, True)
    assert run("extract", file, tmp_path / "out").exit_code == 2


def test_cat_escapes_text_for_a_terminal_and_for_nothing_else(tmp_path, monkeypatch, capsys):
    text = b"one\ttwo\r\n\x1b[31m\xc2\x9b"
    path = write(tmp_path / "a.beton", {"note": BytesField()}, [(np.frombuffer(text, np.uint8),)])
    assert run("cat", path, 0, "--only", "note").stdout_bytes == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(SystemExit, match="0"):
        app(["cat", str(path), "0", "--only", "note"])
    assert capsys.readouterr().out == "one     two\n\\x1b[31m\\x9b\n"
