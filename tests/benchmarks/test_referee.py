"""Comparisons by other people's protocols, and results that others send."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import typer
from PIL import Image

from benchmarks import accelerators, imread, landscape
from benchmarks.contenders.process import Contender, ContenderProcess
from benchmarks.harness import accelerators as simulation
from benchmarks.referee_tables import fed
from benchmarks.results import latest
from benchmarks.send import text_of
from benchmarks.table import fill
from tests.benchmarks.test_table import COMPARE

MISSING = Contender("Missing", "work", "a_missing_package", "GPUBETON_MISSING_PYTHON")
PLUGIN = Path(accelerators.__file__).parent / "imread_plugin"


def test_an_accelerator_waits_for_batches_and_its_first_step_does_not_count(monkeypatch):
    clock = [1.0]

    def pass_time(seconds):
        clock[0] += seconds

    def batches():
        for number in itertools.count():
            pass_time(0.1 if number else 100.0)
            yield 400

    monkeypatch.setattr(simulation, "time", SimpleNamespace(sleep=pass_time, perf_counter=lambda: clock[0]))
    assert simulation.run_accelerators(batches(), 1, 0.3, 5) == pytest.approx(5 * (0.1 + 0.3))


def test_accelerators_share_the_batches():
    taken = []
    batches = (taken.append(number) for number in itertools.count())
    simulation.run_accelerators(batches, 3, 0.0, 4)
    assert taken == list(range(3 * (4 + 1)))


@pytest.mark.parametrize("first", [0, 1, 3, 4, 7])
@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_search_ends_with_the_largest_number_that_is_fed_and_the_next(most, first):
    measured = accelerators.search(lambda count: 0.95 if count <= most else 0.95 * most / count, first)
    assert fed([measured])[0] == most
    assert max(1, most) in measured
    assert most + 1 in measured


def test_the_number_of_a_run_is_that_of_the_median_of_its_rounds():
    rounds = [{"1": 0.99, "2": 0.89}, {"2": 0.95, "3": 0.5}, {"2": 0.93, "3": 0.92}]
    assert fed(rounds) == (2, {1: 0.99, 2: 0.93, 3: pytest.approx(0.71)})


def test_simulated_accelerators_take_batches_of_each_loader(tmp_path, monkeypatch):
    monkeypatch.setattr(accelerators, "LOADERS", (*accelerators.LOADERS[:2], MISSING))
    monkeypatch.setattr(accelerators, "STEP_SECONDS", {"H100": 1e-4})
    monkeypatch.setattr(accelerators, "_BATCH", 4)
    folders = {"data": tmp_path / "data", "results": tmp_path / "results"}
    accelerators.main(images=4, steps=2, rounds=1, cores=1, storages="jpg", **folders)
    runs = (latest("accelerators", tmp_path / "results") or {})["runs"]
    assert [run["loader"] for run in runs] == ["gpubeton", "gpubeton, entry points", "Missing"]
    assert all(0 < share <= 1 for run in runs[:2] for share in run["utilization"]["H100"][0].values())
    drawn = fill("<!-- table: accelerators -->\n<!-- end of table -->", tmp_path / "results")
    assert "| gpubeton, entry points |" in drawn
    assert "Left out: Missing" in drawn
    assert "Not a result of MLPerf" in drawn


def test_a_loader_whose_process_ends_is_left_out_and_the_others_are_measured(tmp_path, monkeypatch):
    feed = ContenderProcess.feed

    def feed_or_die(process, accelerators, step_seconds, steps):
        if process.name == "gpubeton" and step_seconds:
            process._process.kill()
        return feed(process, accelerators, step_seconds, steps)

    monkeypatch.setattr(ContenderProcess, "feed", feed_or_die)
    monkeypatch.setattr(accelerators, "LOADERS", accelerators.LOADERS[:2])
    monkeypatch.setattr(accelerators, "STEP_SECONDS", {"H100": 1e-4, "A100": 1e-4})
    monkeypatch.setattr(accelerators, "_BATCH", 4)
    folders = {"data": tmp_path / "data", "results": tmp_path / "results"}
    accelerators.main(images=4, steps=2, rounds=2, cores=1, storages="jpg", **folders)
    first, second = (latest("accelerators", tmp_path / "results") or {})["runs"]
    assert "its process ended" in first["left_out"]
    assert {gpu: len(rounds) for gpu, rounds in second["utilization"].items()} == {"H100": 2, "A100": 2}
    table = fill("<!-- table: accelerators -->\n<!-- end of table -->", tmp_path / "results")
    assert re.search(r"Left out: gpubeton \(.+ kB\): ", table)


def test_random_is_noise_in_twenty_classes_that_our_loader_reads(tmp_path, monkeypatch):
    landscape.write_random(tmp_path / "again", 21)
    monkeypatch.setattr(landscape, "LOADERS", landscape.LOADERS[:1])
    folders = {"data": tmp_path, "results": tmp_path / "results"}
    landscape.main(images=21, rounds=2, batches="4,8", workers="1", **folders)
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.jpg")} for name in ("again", "random-21")
    ]
    assert len(files[0]) == 21
    assert files[0] == files[1]
    assert [path.name for path in sorted((tmp_path / "again/00").iterdir())] == ["00000.jpg", "00020.jpg"]
    runs = (latest("random", tmp_path / "results") or {})["runs"]
    assert [[lap["images"] for lap in run["laps"]["gpubeton"]] for run in runs] == [[20, 20], [16, 16]]
    assert "| 1, 8 |" in fill("<!-- table: random -->\n<!-- end of table -->", tmp_path / "results")


def test_the_plugin_decodes_as_imread_benchmark_asks(tmp_path, monkeypatch):
    stub = ModuleType("imread_benchmark.decoders")
    stub.BaseDecoder = object
    monkeypatch.setitem(sys.modules, "imread_benchmark", ModuleType("imread_benchmark"))
    monkeypatch.setitem(sys.modules, "imread_benchmark.decoders", stub)
    monkeypatch.syspath_prepend(PLUGIN)
    ((module, name),) = re.findall(r'^gpubeton = "(\w+):(\w+)"', (PLUGIN / "pyproject.toml").read_text(), re.MULTILINE)
    decoder = getattr(importlib.import_module(module), name)()
    path = tmp_path / "ramp.jpg"
    Image.fromarray(np.linspace(0, 255, 40 * 60 * 3).astype(np.uint8).reshape(40, 60, 3)).save(path)
    pixels = decoder.decode(path.read_bytes())
    assert (pixels.dtype, pixels.shape, pixels.flags.c_contiguous) == (np.uint8, (40, 60, 3), True)
    assert np.abs(pixels.astype(int) - np.asarray(Image.open(path), int)).mean() < 1
    assert decoder.name == decoder.package_name == "gpubeton"


def test_decoders_alone_take_turns_and_one_that_is_missing_is_left_out(tmp_path, monkeypatch):
    missing = ("none", "module_that_nobody_has", lambda: None)
    monkeypatch.setattr(
        imread, "DECODERS", {**{name: imread.DECODERS[name] for name in ("gpubeton", "Pillow")}, "Missing": missing}
    )
    imread.main(images=4, runs=2, data=tmp_path / "data", results=tmp_path / "results")
    decoders = (latest("imread", tmp_path / "results") or {})["decoders"]
    assert {name: [lap["images"] for lap in laps] for name, laps in decoders.items()} == {
        "gpubeton": [4, 4],
        "Pillow": [4, 4],
    }
    assert "| gpubeton " in fill("<!-- table: imread -->\n<!-- end of table -->", tmp_path / "results")


def test_a_text_to_send_has_the_table_and_the_result_and_no_path_of_the_user():
    race = {**COMPARE["races"][0], "left_out": {"SPDL": f"no module in {Path.home()}/secret/project"}}
    race["corpus"] = {**race["corpus"], "share": 1 / 3}
    text = text_of({**COMPARE, "races": [race]})
    assert text.startswith("Result of benchmarks.compare: A CPU, 2 cores")
    assert "| gpubeton, area | 200" in text
    assert str(Path.home()) not in text
    (code,) = re.findall(r"```json\n(.*)\n```", text)
    sent = json.loads(code)
    assert sent["races"][0]["corpus"]["share"] == 0.33333
    assert sent["gpubeton"] == COMPARE["gpubeton"]
    with pytest.raises(typer.BadParameter, match="attach the file"):
        text_of({**COMPARE, "more": ["a" * 100] * 1000})


def test_results_that_others_sent_are_in_the_table_of_machines_and_in_no_other(tmp_path):
    ours = {**COMPARE, "made": "2024-01-01"}
    (tmp_path / "2024-01-01-0000-compare-a.json").write_text(json.dumps(ours))
    (tmp_path / "sent").mkdir()
    machine = {**COMPARE["machine"], "cpu": "Another CPU", "cores": 64}
    (tmp_path / "sent/another.json").write_text(json.dumps({**COMPARE, "machine": machine}))
    drawn = fill("<!-- table: machines -->\n<!-- end of table -->", tmp_path)
    assert "| A CPU | 2 | JPEG, 50 kB | 200 | 8.0 | 4.0 |" in drawn
    (line,) = [line for line in drawn.splitlines() if line.startswith("| Another CPU | 64 |")]
    assert line.endswith("sent |")
    assert "Another CPU" not in fill("<!-- table: compare -->\n<!-- end of table -->", tmp_path)
