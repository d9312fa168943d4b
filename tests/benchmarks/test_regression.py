from __future__ import annotations

import copy
import json
import random
import subprocess

import pytest
import typer

from benchmarks import regression
from benchmarks.regression import find_changes, last_committed
from benchmarks.results import RESULTS


def result(seed, *, noise=0.03, laps=9, made="2026-01-01", **factors):
    """Make a result whose loaders take 2 s for 1000 images, times a factor, with noise."""
    chance = random.Random(seed)

    def contender(name):
        seconds = [2 * factors.get(name, 1.0) * chance.gauss(1, noise) for _ in range(laps)]
        return {
            "versions": {"x": "1"},
            "laps": [{"images": 1000, "wall_seconds": 1, "cpu_seconds": s} for s in seconds],
        }

    race = {"storage": "jpg", "work": {"side": 224}, "corpus": {"images": 3}}
    race["contenders"] = {name: contender(name) for name in ("gpubeton", "FFCV", "DALI", "DataLoader")}
    return {"kind": "compare", "made": made, "machine": {"cpu": "A", "cores": 2}, "races": [race]}


def verdict(before, after):
    (change,) = find_changes(before, after)
    return change.verdict


def test_noise_is_no_change():
    verdicts = [verdict(result(seed), result(1000 + seed)) for seed in range(200)]
    assert verdicts.count("same") >= 198


def test_a_change_above_the_noise_is_found():
    for seed in range(20):
        assert verdict(result(seed), result(1000 + seed, gpubeton=1.2)) == "slower"
        assert verdict(result(seed), result(1000 + seed, gpubeton=0.8)) == "faster"


def test_a_slower_machine_is_no_change_and_does_not_hide_one():
    machine = {"gpubeton": 1.3, "FFCV": 1.3, "DALI": 1.3, "DataLoader": 1.3}
    assert verdict(result(1), result(2, **machine)) == "same"
    assert verdict(result(1), result(2, **{**machine, "gpubeton": 1.3 * 1.2})) == "slower"
    assert verdict(result(1), result(2, **{**machine, "gpubeton": 1.0})) == "faster"


def test_noisier_laps_and_fewer_peers_widen_the_tolerance():
    (quiet,), (noisy,) = (find_changes(result(1, noise=noise), result(2, noise=noise)) for noise in (0.01, 0.1))
    assert 0.03 <= quiet.tolerance < noisy.tolerance
    alone = [copy.deepcopy(result(seed, noise=0.01)) for seed in (1, 2)]
    for contender in alone:
        contender["races"][0]["contenders"] = {"gpubeton": contender["races"][0]["contenders"]["gpubeton"]}
    (change,) = find_changes(*alone)
    assert change.tolerance > 0.1


def test_loaders_of_other_versions_do_not_measure_the_machine():
    updated = result(2, FFCV=1.5, DALI=1.5, DataLoader=1.5)
    for name in ("FFCV", "DALI", "DataLoader"):
        updated["races"][0]["contenders"][name]["versions"] = {"x": "2"}
    assert verdict(result(1), updated) == "same"


def test_other_work_is_not_compared():
    other = result(2)
    other["races"][0]["work"] = {"side": 192}
    assert find_changes(result(1), other) == []


def test_the_last_committed_result_of_the_same_machine_is_taken(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    results = {"a": result(1, made="1"), "b": result(1, made="2"), "c": result(1, made="3"), "new": result(1, made="9")}
    results["c"]["machine"] = {"cpu": "B", "cores": 2}
    for name, outcome in results.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(outcome))
    assert last_committed(results["new"], tmp_path) is None
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    assert last_committed(results["new"], tmp_path) == tmp_path / "b.json"
    assert last_committed(results["b"], tmp_path) == tmp_path / "a.json"


def test_the_command_ends_with_1_if_something_became_slower(tmp_path, capsys):
    for name, factor in (("before", 1.0), ("same", 1.0), ("slow", 2.0)):
        (tmp_path / f"{name}.json").write_text(json.dumps(result(len(name), gpubeton=factor)))
    regression.main(tmp_path / "same.json", tmp_path / "before.json")
    with pytest.raises(typer.Exit) as ended:
        regression.main(tmp_path / "slow.json", tmp_path / "before.json")
    assert ended.value.exit_code == 1
    assert "slower" in capsys.readouterr().out


def test_committed_results_are_understood():
    newest = max(RESULTS.glob("*-compare-*.json"))
    newest_result = json.loads(newest.read_text())
    assert {change.verdict for change in find_changes(newest_result, newest_result)} == {"same"}
