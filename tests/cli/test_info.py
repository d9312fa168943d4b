from __future__ import annotations

import json
from functools import partial

import pytest

from tests.cli.command import run
from tests.golden_files import save
from tests.picture_folders import write_converted
from tests.small_files import write_photos

info = partial(run, "info")


def test_it_shows_classes_sizes_and_the_decoders_of_the_jpeg_files(tmp_path):
    done = info(write_converted(tmp_path))
    assert done.exit_code == 0
    sizes = ("cat (", "24 × 32 (3)")
    for part in ("samples    9", "JPEG engines of a GPU: can decode 9 of 9", "9 baseline", "for each region", *sizes):
        assert part in done.stdout
    assert len(done.stdout.splitlines()) <= 24
    assert "█" not in done.stdout
    assert "dog █" in info(tmp_path / "a.beton", "--histograms").stdout


def test_json_has_everything_and_a_file_of_another_kind_ends_with_1(tmp_path):
    done = info(write_photos(tmp_path / "a.beton", 6), "--json", "--all")
    result = json.loads(done.stdout)
    assert (result["samples"], result["has_checksums"], result["class_names"]) == (6, False, None)
    assert result["fields"][0]["image"]["kinds"]["baseline"] == 6
    assert info(save("all_fields", tmp_path)).exit_code == 0
    (tmp_path / "a.beton").write_bytes(b"x" * 2000)
    done = info(tmp_path / "a.beton")
    assert (done.exit_code, done.stdout) == (1, "")


def test_a_custom_field_is_read_by_the_class_that_is_named(tmp_path, monkeypatch):
    path = save("custom", tmp_path)
    refused = info(path)
    assert (refused.exit_code, "custom_fields" in refused.stderr) == (2, True)
    (tmp_path / "my_own_fields.py").write_text(
        "import numpy as np\n"
        "from gpubeton.fields import BytesField\n"
        "class Caption(BytesField):\n"
        "    metadata_type = np.dtype('<u8')\n"
    )
    monkeypatch.chdir(tmp_path)
    done = info(path, "--field", "caption=my_own_fields:Caption")
    assert (done.exit_code, "Caption" in done.stdout) == (0, True)


@pytest.mark.parametrize("given", ["caption", "caption=no_such_module:A", "caption=json:A", "caption=json"])
def test_a_class_that_is_not_there_is_named(given, tmp_path):
    done = info(save("custom", tmp_path), "--field", given)
    assert (done.exit_code, "--field" in done.stderr) == (2, True)
