from __future__ import annotations

import json

import pytest
from rich.console import Console

from benchmarks import user_terms
from benchmarks.table import fill
from benchmarks.user_terms import Setting, core_counts
from gpubeton.format.dataset import open_dataset

LAPS = [{"images": 100, "wall_seconds": seconds, "cpu_seconds": 0.05} for seconds in (0.5, 0.1, 0.25)]


def setting(mode, resolution, kilobytes):
    size = {"file_bytes": 10 * 1000 * kilobytes + 5, "image_bytes": 10 * 1000 * kilobytes, "images": 10}
    sides = {"median_width": resolution or 500, "median_height": 300}
    laps = {"writing": LAPS, "reading": {"1": LAPS, "2": LAPS[1:]}}
    return {"mode": mode, "max_resolution": resolution, **size, **sides, **laps, "share_of_jpeg": 0.25}


MADE = {
    "kind": "user_terms",
    "made": "2024-05-06T07:08:09+00:00",
    "gpubeton": {"version": "9.9", "commit": "abc"},
    "machine": {"cpu": "A CPU", "cores": 2, "memory_gib": 8.0, "kernel": "Linux", "load_before": 0.0},
    "work": {"images": 10, "passes": 2, "quality": 90, "smart_threshold": 360_000},
    "settings": [
        *(setting("jpg", None, 55), setting("jpg", 256, 15)),
        *(setting("smart", None, 80), setting("smart", 256, 90)),
    ],
}


@pytest.fixture
def drawn(tmp_path):
    (tmp_path / "made.json").write_text(json.dumps(MADE))
    return lambda name: fill(f"<!-- table: user_terms_{name} -->\n<!-- end of table -->", tmp_path).splitlines()


def test_sizes_are_listed_by_mode_and_resolution(drawn):
    table = drawn("size")
    assert table[1] == "| kB per image, or GB per million | original | `max_resolution=256` |"
    assert table[3:5] == ["| `jpg` | 55 | 15 |", "| `smart` | 80 | 90 |"]
    assert "`smart` with a threshold of 360 kB stored 25, 25 % as JPEG" in "\n".join(table)
    assert "10 photos, median 500 × 300, JPEG of quality 90" in "\n".join(table)


def test_writing_is_the_median_with_its_processor_time_and_reading_has_a_column_for_each_number_of_cores(drawn):
    assert drawn("writing")[3] == "| `jpg` | 400 <sub>0.5 ms</sub> | 400 <sub>0.5 ms</sub> |"
    table = drawn("reading")
    assert table[1].endswith("| images/s, 1 core | images/s, 2 cores |")
    assert table[4] == (
        "| `jpg`, `max_resolution=256` | 256 × 300 | 0.50 | 400 <sub>200–1,000</sub> | 700 <sub>400–1,000</sub> |"
    )


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_cores_are_doubled_up_to_all_of_them(most, counts):
    assert list(core_counts(most)) == counts


def test_a_measurement_is_written_and_can_be_drawn(tmp_path):
    user_terms.main(8, 2, 1, 1, "jpg,smart,proportion", "0,64", tmp_path, tmp_path / "results")
    (path,) = (tmp_path / "results").iterdir()
    result = json.loads(path.read_text())
    assert [(setting["mode"], setting["max_resolution"]) for setting in result["settings"]] == [
        (mode, resolution) for mode in ("jpg", "smart", "proportion") for resolution in (None, 64)
    ]
    for setting in result["settings"]:
        assert setting["images"] == setting["writing"][0]["images"] == 8
        assert [lap["images"] for lap in setting["reading"]["1"]] == [16]
        assert max(setting["median_width"], setting["median_height"]) <= (setting["max_resolution"] or 1000)
    assert result["settings"][0]["share_of_jpeg"] == 1
    text = "".join(
        f"<!-- table: user_terms_{name} -->\n<!-- end of table -->" for name in ("size", "writing", "reading")
    )
    assert "Not measured yet" not in fill(text, tmp_path / "results")


def test_a_process_may_use_the_cores_that_it_is_given_and_no_others(tmp_path, monkeypatch):
    chosen = []
    monkeypatch.setattr(user_terms.os, "sched_setaffinity", lambda process, cores: chosen.append((process, cores)))
    user_terms.confine([3, 5])
    user_terms.confine([])
    assert chosen == [(0, [3, 5])]


def test_writing_is_timed_by_turns_and_leaves_the_files(tmp_path, monkeypatch):
    user_terms.write_photos(tmp_path / "photos", user_terms.PhotoSet(3, (90, 90)))
    paths = {Setting("raw", 32): tmp_path / "raw.beton", Setting("jpg", None): tmp_path / "jpg.beton"}
    laps = user_terms.time_writing(tmp_path / "photos", paths, 2, Console(quiet=True))
    assert {name: len(lap) for name, lap in laps.items()} == {"raw-32": 2, "jpg-full": 2}
    assert [open_dataset(path).num_samples for path in paths.values()] == [3, 3]
