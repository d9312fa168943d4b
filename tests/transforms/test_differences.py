"""Each step beside its definition in float64, torchvision and Pillow: within the bounds of the table in the docs."""

from __future__ import annotations

import pytest

from benchmarks.differences import PEERS, measure, open_photos, steps
from benchmarks.results import latest
from gpubeton._batch.step_rows import KEEP, NUM_KINDS

EQUAL = 0, 0
#: Of each step the largest and the mean difference, at most; beside float64, torchvision and Pillow.
BOUNDS = {
    "brightness": (EQUAL, EQUAL, EQUAL),
    "contrast": ((1, 0.001), (1, 0.001), (1, 0.3)),
    "saturation": ((1, 0.001), (1, 0.005), (1, 0.4)),
    "hue": ((1, 0.001), (1, 0.001), (12, 0.3)),
    "HSV": ((1, 0.025), EQUAL, (12, 0.4)),
    "solarize": (EQUAL, EQUAL, EQUAL),
    "solarize add": (EQUAL, EQUAL, EQUAL),
    "posterize": (EQUAL, EQUAL, EQUAL),
    "invert": (EQUAL, EQUAL, EQUAL),
    "autocontrast": (EQUAL, (1, 0.006), (1, 0.001)),
    "equalize": (EQUAL, EQUAL, EQUAL),
    "sharpness": (EQUAL, EQUAL, EQUAL),
    "blur": ((1, 0.002), (1, 0.002), (40, 0.7)),
    "affine, nearest": ((255, 0.001), (255, 0.001), (255, 0.01)),
    "affine, bilinear": ((1, 0.003), (64, 0.5), (80, 1)),
    "perspective, nearest": ((255, 0.015), (255, 0.015), (255, 0.015)),
    "perspective, bilinear": ((1, 0.003), (64, 0.8), (80, 1.3)),
    "paint": (EQUAL, EQUAL, EQUAL),
    "turn": (EQUAL, EQUAL, EQUAL),
    "shift": (EQUAL, EQUAL, EQUAL),
    "mixture": ((1, 0.004), (1, 0.52), (1, 0.52)),
}


@pytest.fixture(scope="module")
def measured():
    return {step["name"]: step["beside"] for step in measure(steps(64), open_photos(3, 64))["steps"]}


def beyond(name, beside):
    """The differences of a step that are larger than their bounds."""
    pairs = zip(PEERS, BOUNDS[name], strict=True)
    limits = {peer: bound for peer, bound in pairs if peer in beside}
    return {
        peer: beside[peer]
        for peer, (largest, mean) in limits.items()
        if beside[peer]["largest"] > largest or beside[peer]["mean"] > mean
    }


@pytest.mark.parametrize("name", BOUNDS)
def test_a_step_is_as_near_to_others_as_documented(name, measured):
    assert measured[name].keys() >= {"float64", "Pillow"}
    assert beyond(name, measured[name]) == {}


def test_the_table_has_every_kind_of_step_and_keeps_the_bounds():
    # If not: python -m benchmarks.differences
    listed = steps(224)
    assert frozenset().union(*(step.kinds for step in listed)) == frozenset(range(NUM_KINDS)) - {KEEP}
    result = latest("differences")
    assert result is not None
    assert [step["name"] for step in result["steps"]] == [step.name for step in listed] == list(BOUNDS)
    assert [step["name"] for step in result["steps"] if beyond(step["name"], step["beside"])] == []
