from __future__ import annotations

import json

from benchmarks import entry_points, memory, open_index, table, views
from benchmarks.machine import describe_machine
from benchmarks.results import latest, save


def test_a_result_records_the_measurement_the_versions_and_the_machine_which_can_be_replaced(tmp_path):
    path = save("open_index", {"samples": 7}, tmp_path)
    result = json.loads(path.read_text())
    assert (result["kind"], result["samples"]) == ("open_index", 7)
    assert set(result["machine"]) == set(describe_machine())
    assert result["gpubeton"]["version"]
    assert result["made"][:10] in path.name
    machine = {**describe_machine(), "cpu": "Another (R) CPU", "cores": 64}
    path = save("compare", {"machine": machine}, tmp_path)
    assert path.name.endswith("-compare-another-r-cpu-64-cores.json")
    assert json.loads(path.read_text())["machine"] == machine


def test_the_newest_result_of_a_kind_is_found(tmp_path):
    for name, kind, date in (("z", "a", "2024-01-01"), ("y", "a", "2024-02-01"), ("x", "b", "2024-03-01")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"kind": kind, "made": date, "name": name}))
    assert (latest("a", tmp_path) or {})["name"] == "y"
    assert latest("c", tmp_path) is None


def test_opening_is_timed_over_a_file_of_the_wanted_size(tmp_path):
    open_index.main(samples=3000, image_bytes=50_000, repeats=2, folder=tmp_path, results=tmp_path / "results")
    result = latest("open_index", tmp_path / "results") or {}
    assert result["samples"] == 3000
    assert result["file_bytes"] > 3000 * 50_000
    assert [len(seconds) for seconds in result["seconds"].values()] == [2, 2, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_memory_is_measured_beside_the_documented_bound(tmp_path):
    memory.main(gigabytes=0.06, folder=tmp_path, results=tmp_path / "results")
    runs = (latest("memory", tmp_path / "results") or {})["runs"]
    assert [run["name"].partition(",")[0] for run in runs] == ["raw-stored", "JPEG-stored"]
    for run in runs:
        # A loader that reads at all holds some batches; that it keeps to the bound is for the large file to show.
        assert run["peak_bytes"] > 1 << 20
        assert run["bound_bytes"] > 256 * 224 * 224 * 3 * 2


def test_views_are_measured_together_and_apart(tmp_path):
    views.main(images=8, rounds=1, data=tmp_path / "data", results=tmp_path / "results")
    runs = (latest("views", tmp_path / "results") or {})["runs"]
    assert [(run["storage"], run["name"][:6]) for run in runs] == [
        (storage, name) for storage in ("JPEG", "raw") for name in ("one vi", "2 view", "2 view")
    ]
    for run in runs:
        assert run["least_ratio"] <= run["ratio"] <= run["largest_ratio"]
        assert run["together_us"] > 0


def test_photos_are_loaded_with_and_without_entry_points(tmp_path):
    results = tmp_path / "results"
    entry_points.main(images=128, passes=1, rounds=1, data=tmp_path / "data", results=results)
    measured = latest("entry_points", results) or {}
    assert [name for name in measured["laps"] if name != "FFCV"] == ["without entry points", "with entry points"]
    sizes = measured["file_bytes"]
    assert sizes["with entry points"] > sizes["without entry points"]
    drawn = table.fill("<!-- table: entry_points -->\n<!-- end of table -->", results)
    assert all(f"| {name} |" in drawn for name in measured["laps"])
