"""Statistics for TensorBoard, loggers of numbers by name, and Prometheus."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton.errors import OptionError
from gpubeton.loader import Loader, LoaderStats
from tests.loader.pipelines import augmented

openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")
prometheus = pytest.importorskip("prometheus_client.parser")

PIPELINES = {"image": augmented(), **dict.fromkeys(["label", "weight", "note", "info", "vector"])}
STATS = LoaderStats(epoch=2, batches=10, images=320, seconds=2.0, waiting_seconds=0.5, num_workers=4, requests=7)


def samples(text, parse=openmetrics.text_string_to_metric_families):
    return {sample.name: sample for family in parse(text) for sample in family.samples}


def test_names_have_the_prefix_and_values_are_numbers():
    metrics = STATS.to_metrics("train/")
    assert metrics["train/epoch"] == 2
    assert metrics["train/images_per_second"] == 160
    assert {type(value) for value in metrics.values()} == {float}
    assert {name.removeprefix("train/") for name in metrics} == STATS.to_dict().keys()
    assert "loader/epoch" not in (STATS + STATS).to_metrics()


def test_openmetrics_has_every_number_once():
    found = samples(STATS.to_openmetrics())
    for name, value in STATS.to_dict().items():
        counted = found.pop(f"gpubeton_loader_{name}_total", None) or found.pop(f"gpubeton_loader_{name}")
        assert counted.value == value
        assert counted.labels == {}
    assert found == {}


def test_sums_are_counters_and_the_rest_are_gauges():
    kinds = {family.name: family.type for family in openmetrics.text_string_to_metric_families(STATS.to_openmetrics())}
    gauges = {name.removeprefix("gpubeton_loader_") for name, kind in kinds.items() if kind == "gauge"}
    assert gauges == {"epoch", "num_workers"} | (STATS.to_dict().keys() - asdict(STATS).keys())
    assert set(kinds.values()) == {"gauge", "counter"}


def test_the_parser_of_prometheus_and_its_node_exporter_reads_it_too():
    found = samples(STATS.to_openmetrics({"rank": 3}), prometheus.text_string_to_metric_families)
    assert found["gpubeton_loader_images_total"].value == 320
    assert found["gpubeton_loader_waiting_share"].labels == {"rank": "3"}


@given(st.text(), st.text(alphabet='"\\\n{},= #'))
def test_values_of_labels_come_back_as_they_were(value, hostile):
    found = samples(STATS.to_openmetrics({"loader": value.encode(errors="replace").decode(), "run": hostile}))
    assert found["gpubeton_loader_epoch"].labels["run"] == hostile
    assert found["gpubeton_loader_epoch"].labels["loader"] == value.encode(errors="replace").decode()


@pytest.mark.parametrize("name", ["", "1st", "a-b", "__name__", 'x="', "a b", "ü", "a\n"])
def test_names_that_labels_cannot_have_are_refused(name):
    with pytest.raises(OptionError, match="label"):
        STATS.to_openmetrics({name: 1})


def test_a_loader_reports_what_it_did(photos):
    loader = Loader(photos, 10, pipelines=PIPELINES, num_workers=1)
    assert samples(loader.stats().to_openmetrics())["gpubeton_loader_images_total"].value == 0
    for _ in range(2):
        list(loader)
    assert loader.stats().to_metrics()["loader/epoch"] == 1
    total = samples(loader.stats(total=True).to_openmetrics({"loader": "train"}))
    assert total["gpubeton_loader_images_total"].value == 100
    assert "gpubeton_loader_epoch" not in total
    assert all(math.isfinite(sample.value) for sample in total.values())
