from __future__ import annotations

import json

import pytest

from benchmarks.compare import ENTRIES
from benchmarks.table import READMES, draw_tables, fill

COMPARE = {
    "kind": "compare",
    "made": "2024-05-06T07:08:09+00:00",
    "gpubeton": {"version": "9.9", "commit": "abc"},
    "machine": {"cpu": "A CPU", "cores": 2, "memory_gib": 8.0, "kernel": "Linux", "load_before": 0.0},
    "races": [
        {
            "storage": "jpg",
            "work": {"passes": 2, "cores": 2, "batch_size": 50, "side": 224},
            "corpus": {
                "images": 100,
                "file_bytes": 9_000_000,
                "image_bytes": 5_000_000,
                "median_width": 500,
                "median_height": 375,
            },
            "contenders": {
                name: {
                    "versions": {"python": "3"},
                    "laps": [{"images": 200, "wall_seconds": second, "cpu_seconds": 2 * second} for second in seconds],
                }
                for name, seconds in {
                    "FFCV": (2.0, 4.0, 2.0),
                    "gpubeton, area": (0.5, 1.0, 1.0),
                    "gpubeton, bilinear": (0.4, 1.0, 0.8),
                    "PyTorch DataLoader, Pillow": (8.0, 8.0, 8.0),
                }.items()
            },
            "left_out": {"SPDL": "not installed"},
        }
    ],
}


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "old.json").write_text(json.dumps({**COMPARE, "made": "2023-01-01T00:00:00+00:00", "races": []}))
    (folder / "new.json").write_text(json.dumps(COMPARE))
    (folder / "other.json").write_text(json.dumps({**COMPARE, "kind": "other", "made": "2025-01-01T00:00:00+00:00"}))
    return folder


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.name)
def test_the_figures_of_a_readme_are_those_of_the_newest_results(readme):
    assert readme.read_text() == fill(readme.read_text())


def test_a_table_is_drawn_from_the_newest_result_of_its_kind(results):
    drawn = fill("before\n<!-- table: compare -->\nold\n<!-- end of table -->\nafter", results)
    assert drawn.startswith(
        "before\n<!-- table: compare -->\n**JPEG-stored**: 100 photos, median 500 × 375, 50 kB each"
    )
    assert drawn.endswith("<!-- end of table -->\nafter")
    assert "old" not in drawn
    assert "A CPU" in drawn
    assert "\n\nLeft out: SPDL: not installed." in drawn  # else it is a row of the table above
    assert fill(drawn, results) == drawn


def test_figures_are_medians_with_their_extremes(results):
    (row,) = [line for line in fill("<!-- table: compare -->\n<!-- end of table -->", results).splitlines()
              if line.startswith("| gpubeton, area")]  # fmt: skip
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "200 <sub>200–400</sub>"
    assert cells[2] == "100"  # 10 seconds for 1000
    assert cells[3] == "4.00 <sub>2.00–4.00</sub>"
    assert cells[4] == "8.00 <sub>8.00–16.00</sub>"


def test_a_race_that_measured_the_start_has_columns_for_it(results):
    (race,) = COMPARE["races"]
    start = {"cold_seconds": None, "warm_seconds": 1.25, "memory_bytes": 3 << 20}
    ours = {**race["contenders"]["gpubeton, area"], **start}
    ours["laps"] = [{**lap, "first_batch_seconds": 0.5} for lap in ours["laps"]]
    evaluation = {**race, "storage": "evaluation", "crop": "center", "contenders": {"gpubeton, area": ours}}
    newest = {**COMPARE, "made": "2024-06-01", "races": [race, evaluation]}
    (results / "newest.json").write_text(json.dumps(newest))
    drawn = fill("<!-- table: compare -->\n<!-- end of table -->", results)
    assert "| gpubeton, area | 200 <sub>200–400</sub> | 100 | – / 1.2 / 0.50 | 3 |" in drawn
    assert "center crop to 224" in drawn
    assert "evaluation" not in fill("<!-- table: headline -->\n<!-- end of table -->", results)


def test_the_headline_has_our_default_interpolation_alone(tmp_path):
    (race,) = COMPARE["races"]
    ours = {entry.name: race["contenders"]["FFCV"] for entry in ENTRIES if entry.name.startswith("gpubeton")}
    result = {**COMPARE, "races": [{**race, "contenders": ours}]}
    (tmp_path / "new.json").write_text(json.dumps(result))
    assert len(ours) > 3
    assert fill("<!-- table: headline -->\n<!-- end of table -->", tmp_path).count("\n| gpubeton") == 1


def test_a_table_without_a_result_is_marked_as_not_measured_and_an_unknown_one_refused(tmp_path):
    assert "Not measured yet." in fill("<!-- table: memory -->\n1\n<!-- end of table -->", tmp_path)
    with pytest.raises(KeyError, match="wishes"):
        fill("<!-- table: wishes -->\n1\n<!-- end of table -->", tmp_path)


def test_files_are_rewritten_in_place(results, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- table: compare -->\n<!-- end of table -->\n")
    draw_tables([readme], results)
    assert "JPEG-stored" in readme.read_text()
