"""``--json``: each command prints the keys that the guide lists for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpubeton.cli.app import app
from tests.picture_folders import write_folder
from tests.small_files import damage, write_photos

GUIDE = Path(__file__).parents[2] / "docs/guides/command.md"
QUICK = ["--seconds", "0.05", "--size", "16", "--batch-size", "4", "--workers", "1"]
ERROR = "each of them, after an error"


def documented():
    """Read the guide's table: the keys of each command, and those of the elements of its lists."""
    (table,) = re.findall(r"<!-- table: keys of --json.*?-->\n(.*?)<!-- end of table -->", GUIDE.read_text(), re.DOTALL)
    results = {}
    for row in table.splitlines()[2:]:
        command, cell = row.strip("| ").split(" | ")
        keys, inner = set(), {}
        for part in re.sub(r"\(.*?\)", "", cell).split("; "):
            before, _, nested = part.partition(": ")
            names = re.findall(r"`(\w+)`", before)
            keys.update(names)
            if nested:
                inner[names[-1]] = set(re.findall(r"`(\w+)`", nested))
        results[command.replace("`", "")] = keys, inner
    return results


def printed(*arguments, codes=(0,)):
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code in codes, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Run each command once."""
    folder = tmp_path_factory.mktemp("json")
    photos, file, shards = write_folder(folder / "photos"), folder / "a.beton", folder / "shards"
    (photos / "cat" / "bad.jpg").write_bytes(b"no picture")
    ways = ["--on-error", "skip", "--workers", "1"]
    whole = write_photos(folder / "b.beton", 4)
    copy = printed("split", whole, f"{folder / 'half.beton'}=2", f"{folder / 'rest.beton'}=rest")
    damage(whole, 0)
    return {
        "convert": printed("convert", photos, file, *ways),
        "convert --shard, while others are missing": printed(
            "convert", photos, shards, "--shards", 2, "--shard", 0, *ways
        ),
        "convert --shards": printed("convert", photos, shards, "--shards", 2, *ways),
        "info": printed("info", file),
        "verify": printed("verify", whole, "--workers", 1, codes=(1,)),
        "index, of files": printed("index", file, "--workers", 1),
        "index, of a folder": printed("index", shards),
        "index --out": printed("index", photos, "--out", folder / "photos.index", "--workers", 1),
        "view": printed("view", file, folder / "sheet.png", "--count", 2),
        "cat": printed("cat", file, 0),
        "extract": printed("extract", file, folder / "out", "--workers", 1),
        "split, subset, merge": copy,
        "bench": printed("bench", file, *QUICK, "--no-gpu"),
        "doctor": printed("doctor", file, *QUICK, codes=(0, 1)),
        "warm-up": printed("warm-up"),
        ERROR: printed("info", folder / "none.beton", codes=(2,)),
    }


def test_the_guide_lists_each_command(results):
    assert {*documented()} == {*results, "fetch"}
    assert documented()["fetch"] == ({"cache_dir", "files", "bytes"}, {})


@pytest.mark.parametrize("command", [command for command in documented() if command != "fetch"])
def test_a_command_prints_the_keys_that_the_guide_lists(results, command):
    keys, inner = documented()[command]
    result = results[command]
    if command == ERROR:
        keys = keys - {"type", "message"}
        assert set(result["error"]) == {"type", "message"}
    assert set(result) == keys
    for name, inner_keys in inner.items():
        assert all(set(element) == inner_keys for element in result[name]), name
    assert all(result[name] for name in inner if name != "bad")


def test_missing_labels_are_reported_for_a_file_and_for_shards(tmp_path):
    pictures = write_folder(tmp_path / "photos", 4, ("one",)) / "one"
    for options in ((), ("--shards", 2)):
        report = printed("convert", pictures, tmp_path / f"out{len(options)}.beton", "--workers", 1, *options)
        assert (report["has_labels"], report["class_names"]) == (False, None)
