"""Statistics for loggers of numbers by name."""

from __future__ import annotations

import math

from gpubeton.loader import Loader, LoaderStats
from tests.loader.pipelines import augmented

PIPELINES = {"image": augmented(), **dict.fromkeys(["label", "weight", "note", "info", "vector"])}
STATS = LoaderStats(epoch=2, batches=10, images=320, seconds=2.0, waiting_seconds=0.5, num_workers=4, requests=7)


def test_names_have_the_prefix_and_values_are_numbers():
    metrics = STATS.to_metrics("train/")
    assert metrics["train/epoch"] == 2
    assert metrics["train/images_per_second"] == 160
    assert {type(value) for value in metrics.values()} == {float}
    assert {name.removeprefix("train/") for name in metrics} == STATS.to_dict().keys()
    assert "loader/epoch" not in (STATS + STATS).to_metrics()


def test_a_loader_reports_its_work(photos):
    loader = Loader(photos, 10, pipelines=PIPELINES, num_workers=1)
    assert loader.stats().to_metrics()["loader/images"] == 0
    for _ in range(2):
        list(loader)
    assert loader.stats().to_metrics()["loader/epoch"] == 1
    total = loader.stats(total=True).to_metrics()
    assert total["loader/images"] == 100
    assert "loader/epoch" not in total
    assert all(math.isfinite(value) for value in total.values())
