"""The comparison of trainings: its statistics, its planted mistakes, and a run at toy size."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.accuracy.__main__ import Study, main
from benchmarks.accuracy.batches import FAULTS, GPUBETON
from benchmarks.accuracy.equivalence import MARGINS, compare
from benchmarks.accuracy.glyphs import CLASSES, GlyphSet, characters


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return Study(tmp_path_factory.mktemp("glyphs"), GlyphSet(256, 32), epochs=1)


def test_all_classes_are_different_characters():
    assert len(set(characters())) == CLASSES


@pytest.mark.parametrize(("spread", "mean", "expected"), [(0.1, 0.1, True), (0.1, 0.6, False), (2.0, 0.1, False)])
def test_a_small_difference_is_equivalent_only_if_the_runs_show_it(spread, mean, expected):
    differences = {name: [0.0, 0.0] for name in MARGINS}
    differences["accuracy"] = [mean - spread, mean + spread, mean, mean - spread, mean + spread]
    verdicts = {verdict.measure: verdict for verdict in compare(differences)}
    assert verdicts["accuracy"].is_equivalent == expected
    assert verdicts["accuracy"].mean == pytest.approx(mean)
    assert all(verdict.is_equivalent for name, verdict in verdicts.items() if name != "accuracy")


def test_images_are_those_of_pillow_within_the_margins(study):
    differences = study.images(GPUBETON, 0)
    assert abs(np.mean(differences["mean level"])) < MARGINS["mean level"]
    assert np.mean(differences["absolute levels"]) < MARGINS["absolute levels"]
    assert set(differences["labels"]) == {0.0}


@pytest.mark.parametrize("arm", [arm for arm in FAULTS if arm.name != "fast DCT"], ids=lambda arm: arm.name)
def test_the_images_or_labels_of_each_planted_mistake_differ(study, arm):
    differences = study.images(arm, 0)
    too_large = [name for name, values in differences.items() if abs(np.mean(values)) > MARGINS[name]]
    assert too_large


def test_a_run_is_written_with_a_verdict_for_each_arm(tmp_path):
    main(train_images=256, test_images=32, epochs=1, seeds=2, fault_seeds=2, data=tmp_path, results=tmp_path)
    (path,) = tmp_path.glob("*-accuracy-*.json")
    arms = json.loads(path.read_text())["arms"]
    assert [arm["name"] for arm in arms] == ["gpubeton", *(arm.name for arm in FAULTS)]
    assert [len(arm["verdicts"]) for arm in arms] == [len(MARGINS)] * len(arms)
