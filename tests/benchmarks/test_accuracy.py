"""The comparison of trainings: its statistics, its planted mistakes, the equal parts, and a run at toy size."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from benchmarks.accuracy.__main__ import main
from benchmarks.accuracy.agreement import agreement
from benchmarks.accuracy.batches import FAULTS
from benchmarks.accuracy.equivalence import LIMITS, MARGINS, compare, power, within_limits
from benchmarks.accuracy.pictures import CLASSES, PictureSet, characters
from benchmarks.accuracy.same_again import bad_images, resuming
from benchmarks.accuracy.shapes import boxes, masks
from benchmarks.accuracy.study import ARMS, Study
from benchmarks.table import fill
from gpubeton.loader import Loader

NAMES = ["accuracy", "accuracy_faults", "accuracy_agreement", "accuracy_same_again"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    study = Study(tmp_path_factory.mktemp("glyphs"), PictureSet("glyphs", 256, 64), epochs=1)
    study.prepare(has_faults=True)
    return study


def test_all_classes_are_different_characters():
    assert len(set(characters())) == CLASSES["glyphs"]


@pytest.mark.parametrize(
    ("spread", "mean", "outcome"),
    [(0.1, 0.1, "equivalent"), (0.1, 0.45, "undecided"), (2.0, 0.1, "undecided"), (0.1, 0.8, "different")],
)
def test_a_difference_is_equivalent_only_if_the_runs_show_it(spread, mean, outcome):
    differences = {name: [0.0, 0.0] for name in MARGINS}
    differences["accuracy"] = [mean - spread, mean + spread, mean, mean - spread, mean + spread]
    verdicts = {verdict.measure: verdict for verdict in compare(differences)}
    assert verdicts["accuracy"].outcome == outcome
    assert verdicts["accuracy"].mean == pytest.approx(mean)
    assert all(verdict.outcome == "equivalent" for name, verdict in verdicts.items() if name != "accuracy")


def test_one_pair_is_judged_by_the_spread_of_others():
    differences = {name: [2.0] for name in MARGINS}
    assert all(verdict.outcome == "undecided" for verdict in compare(differences))
    others = {name: [-0.1, 0.1, 0.0] for name in MARGINS}
    assert all(verdict.outcome == "different" for verdict in compare(differences, others))


def test_the_power_is_how_often_pairs_without_a_difference_pass():
    rng = np.random.default_rng(1)
    passed = [compare(dict.fromkeys(MARGINS, rng.normal(0, 0.35, 5)))[2].outcome == "equivalent" for _ in range(2000)]
    assert power(0.35, 5, MARGINS["accuracy"]) == pytest.approx(np.mean(passed), abs=0.04)


def test_images_are_within_the_limits_of_their_definition(study):
    for name in ("gpubeton", "Pillow and NumPy"):
        assert {verdict.outcome for verdict in within_limits(study.compare_pixels(ARMS[name]))} == {"equivalent"}


@pytest.mark.parametrize("arm", FAULTS, ids=lambda arm: arm.name)
def test_the_images_or_labels_of_each_planted_mistake_are_outside(study, arm):
    assert "different" in {verdict.outcome for verdict in within_limits(study.compare_pixels(arm))}


def test_a_resumed_training_ends_in_the_same_bits_and_one_of_another_order_does_not(study):
    results = resuming(study.paths[0], CLASSES["glyphs"])
    assert 0 < results["stopped_after"] < results["steps"]
    assert results["different"] == 0 < results["different_in_another_order"]


def test_a_forgotten_position_changes_the_bits(study, monkeypatch):
    monkeypatch.setattr(Loader, "load_state_dict", lambda _loader, _state: None)
    assert resuming(study.paths[0], CLASSES["glyphs"])["different"] > 0


def test_bad_images_change_no_other_image(study):
    results = bad_images(study.paths[0])
    sizes = {"skip": results["images"] - results["bad"], "replace": results["images"]}
    for reaction, size in sizes.items():
        assert results[reaction] == {"images": size, "different": 0, "bad": 0, "listed": results["bad"]}


def test_masks_and_boxes_follow_their_image(tmp_path):
    followed = masks(tmp_path, 64)
    assert (followed["masks"], followed["different"]) == (64, 0)
    moved = boxes(tmp_path, 64)
    assert moved["boxes"] > 50
    assert moved["missing"] == 0
    assert moved["largest difference"] < 1e-4


def test_pixels_are_within_a_level_of_the_planes_and_wholes_of_pillows(tmp_path):
    rows = agreement(tmp_path, 3, (48,))["rows"]
    assert len(rows) == 8 + 2 * 5
    for row in rows:
        if row["name"].endswith("whole"):
            assert row["beside"]["Pillow"]["largest"] <= 1, row["name"]
        else:
            assert row["beside"]["planes"]["largest"] <= 1 + ("bicubic" in row["name"]), row["name"]


def test_a_run_is_written_with_a_verdict_for_each_arm_and_drawn_and_not_repeated(tmp_path, monkeypatch):
    options = {"train": 320, "test": 64, "epochs": 1, "seeds": 2, "fault_seeds": 1, "photos": 1}
    # A process of trainings takes ten seconds to start, and then half a second for each of these.
    monkeypatch.setattr("benchmarks.accuracy.study.count_cores", lambda: 1)
    monkeypatch.setattr("benchmarks.accuracy.__main__.masks", partial(masks, samples=64))
    monkeypatch.setattr("benchmarks.accuracy.__main__.boxes", partial(boxes, samples=64))
    main(**options, data=tmp_path, results=tmp_path)
    (path,) = tmp_path.glob("*-accuracy-*.json")
    glyphs, turns = json.loads(path.read_text())["sets"]
    others = ["gpubeton", "Pillow and NumPy, nudged"]
    assert [arm["name"] for arm in glyphs["arms"]] == [*others, *(arm.name for arm in FAULTS)]
    assert [arm["name"] for arm in turns["arms"]] == others
    assert {len(arm["verdicts"]) for arm in glyphs["arms"]} == {len(LIMITS) + len(MARGINS)}
    for name in NAMES:
        drawn = fill(f"<!-- table: {name} -->\n<!-- end of table -->", tmp_path)
        assert drawn.count("\n| ") > 5, name
    monkeypatch.setattr(Study, "_train", None)
    main(**options, data=tmp_path, results=tmp_path)
