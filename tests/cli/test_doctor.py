"""``gpubeton bench`` and ``gpubeton doctor``, as they are typed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from gpubeton.cli import advice, loops
from tests.cli.command import run
from tests.cli.test_advice import MEASURED, changed
from tests.small_files import write_photos

HOSTILE = "[/x]:smile:\x1b[31m"
QUICK = ["--seconds", "0.05", "--size", "16", "--batch-size", "4", "--workers", "1"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return str(write_photos(tmp_path_factory.mktemp("photos") / "photos.beton", 8))


def test_bench_gives_json_alone_or_a_table(photos):
    done = run("bench", photos, *QUICK, "--json")
    assert done.exit_code == 0
    assert "end to end, CPU" in {part["name"] for part in json.loads(done.stdout)["parts"]}
    assert "decode and resize" in run("bench", photos, *QUICK, "--no-gpu").stdout


def test_doctor_gives_everything_as_json(photos):
    done = run("doctor", photos, *QUICK, "--step-ms", "5", "--json")
    (result,) = json.loads(done.stdout)["loaders"]
    assert set(result["findings"][0]) == {"name", "weight", "text", "change", "gain"}
    assert result["findings"][0]["weight"] == "bottleneck"
    assert result["stats"]["waiting_share"] <= 1
    assert result["files"][0]["path"] == photos


@pytest.mark.parametrize(
    ("reading", "code", "shown"),
    [
        (changed({"waiting_seconds": 0.0}), 0, ["bottleneck"]),
        (MEASURED, 0, ["bottleneck"]),
        (changed(machine={"cores": 8}), 1, ["num_workers=8.", "At most 2.11 x"]),
    ],
)
def test_doctor_ends_with_0_if_there_is_nothing_to_change_and_with_1_and_an_advice(
    photos, monkeypatch, reading, code, shown
):
    monkeypatch.setattr(loops, "examine_file", lambda *_, **__: reading)
    done = run("doctor", photos)
    assert done.exit_code == code
    for part in shown:
        assert part in done.stdout.replace("\n", " ").replace("  ", "")


def test_doctor_runs_a_command_and_hands_its_failure_on(monkeypatch):
    seen = []

    def examine(command):
        seen.append(command)
        return 3, [replace(MEASURED)]

    monkeypatch.setattr(loops, "examine_command", examine)
    done = run("doctor", "--json", "--", sys.executable, "train.py", "--epochs", "3")
    assert seen == [[sys.executable, "train.py", "--epochs", "3"]]
    assert (done.exit_code, json.loads(done.stdout)["command_exit_code"]) == (1, 3)
    monkeypatch.setattr(loops, "examine_command", lambda _: (3, []))
    assert "exit code 3" in run("doctor", "--", "false", "x").stdout


def test_doctor_wants_one_thing_to_look_at_and_names_the_command_that_watches_a_program():
    for arguments in ([], ["a.beton", "--loader", "a:b"], ["a.beton", "--", "python", "x.py"]):
        assert run("doctor", *arguments).exit_code == 2
    done = run("doctor", "train.py")
    assert done.exit_code == 2
    assert "gpubeton doctor -- python train.py" in " ".join(done.output.replace("│", " ").split())


def test_names_and_advice_are_shown_as_they_are(photos, monkeypatch):
    reading = changed(facts={"files": [HOSTILE]})
    findings = (advice.LoopFinding("workers", "advice", HOSTILE, HOSTILE, 2.0),)
    monkeypatch.setattr(loops, "examine_file", lambda *_, **__: reading)
    monkeypatch.setattr(advice, "advise", lambda _: findings)
    done = run("doctor", photos)
    assert (done.exit_code, "\x1b" in done.stdout) == (1, False)
    assert done.stdout.count("[/x]:smile:\\x1b[31m") == 3
    assert "At most 2.00 x" in done.stdout


def test_bench_shows_the_name_of_the_file_as_it_is(tmp_path):
    (tmp_path / "[").mkdir()
    done = run("bench", str(write_photos(tmp_path / "[" / "x].beton", 8)), *QUICK, "--no-gpu")
    assert (done.exit_code, "[/x].beton" in done.stdout.replace("\n", "")) == (0, True)
