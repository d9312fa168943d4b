"""Where the time of an epoch goes: the figures of `loader.stats()`."""

from __future__ import annotations

import gc
import json
import math
import threading
from dataclasses import fields

import pytest
import torch

from gpubeton.loader import Loader, LoaderStats
from gpubeton.loader import stats as loader_stats
from gpubeton.loader.describe import LoaderInfo
from gpubeton.loader.stats import DOCTOR_VARIABLE, EpochStats, StatsHistory
from tests.loader.pipelines import augmented

PIPELINES = {"image": augmented(), **dict.fromkeys(["label", "weight", "note", "info", "vector"])}


class Clock:
    """Does not advance by itself."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    timer = Clock()
    monkeypatch.setattr(loader_stats, "time", timer)
    monkeypatch.setattr("gpubeton._engine.timing.time", timer)
    return timer


def wait(record, clock, seconds):
    marked = record.begin_wait()
    clock.now += seconds
    record.end_wait(marked)


def test_time_in_the_loop_body_is_neither_waiting_nor_handover(photos, clock):
    loader = Loader(photos, 10, pipelines=PIPELINES, num_workers=1)
    for _ in loader:
        clock.now += 2
    stats = loader.stats()
    assert (stats.batches, stats.images, stats.epoch) == (5, 50, 0)
    assert (stats.seconds, stats.step_seconds, stats.waiting_seconds, stats.handover_seconds) == (10, 10, 0, 0)
    assert stats.images_per_second == 5
    clock.now += 100
    assert loader.stats() == stats


def test_waiting_is_a_share_of_the_wall_time(clock):
    record = EpochStats(3, num_workers=2)
    wait(record, clock, 2.0)
    clock.now += 5.0
    wait(record, clock, 1.0)
    stats = record.stats()
    assert (stats.epoch, stats.seconds, stats.waiting_seconds, stats.first_wait_seconds) == (3, 8, 3, 2)
    assert stats.waiting_share == 3 / 8


def test_threads_that_wait_together_wait_once(clock):
    record = EpochStats(0, num_workers=1)
    first = record.begin_wait()
    clock.now += 1
    second = record.begin_wait()
    clock.now += 2
    record.end_wait(first)
    clock.now += 4
    assert record.stats().waiting_seconds == 7
    record.end_wait(second)
    clock.now += 1
    assert (record.stats().waiting_seconds, record.stats().seconds) == (7, 8)


def test_all_epochs_add_up_and_each_counts_once(clock):
    history = StatsHistory()
    for epoch in range(3):
        record = EpochStats(epoch, num_workers=1)
        history.add(record, LoaderInfo)
        record.receive(8)
        clock.now += 2
        record.end()
        clock.now += 50  # a validation, for example
    total = history.stats(total=True)
    assert (total.epoch, total.batches, total.images, total.seconds) == (None, 3, 24, 6)
    assert (history.stats(total=False).epoch, history.stats(total=False).images) == (2, 8)


def test_a_loop_that_was_left_stops_the_clock(photos, clock):
    loader = Loader(photos, 10, pipelines=PIPELINES, num_workers=1)
    for _ in loader:
        clock.now += 1
        break
    clock.now += 7
    assert (loader.stats().seconds, loader.stats().batches) == (1, 1)
    again = iter(loader)
    next(again)
    clock.now += 1
    loader.close()
    clock.now += 7
    assert (loader.stats().seconds, loader.stats(total=True).seconds) == (1, 2)


def test_a_loader_that_was_not_used_has_taken_no_time(photos):
    stats = Loader(photos, 10, pipelines=PIPELINES).stats()
    assert stats == LoaderStats()
    assert (stats.images_per_second, stats.waiting_share, stats.worker_share) == (0, 0, 0)
    assert "0 images" in str(stats)


@pytest.mark.parametrize("os_cache", [True, False])
def test_every_stage_of_a_real_epoch_is_there(photos, os_cache):
    loader = Loader(photos, 10, pipelines=PIPELINES, num_workers=2, os_cache=os_cache)
    for _ in loader:
        pass
    stats = loader.stats()
    assert stats.num_workers == 2
    for name in ("plan", "read", "submit", "decode", "tail", "handover", "waiting", "worker"):
        assert getattr(stats, f"{name}_seconds") > 0, name
    assert 0 < stats.waiting_share <= 1
    assert 0 < stats.worker_share <= 1
    assert stats.first_wait_seconds <= stats.waiting_seconds <= stats.seconds
    assert stats.stored_bytes == int(loader.reader.index.regions("image").size.sum())


def test_statistics_may_be_asked_for_in_the_loop_and_in_another_thread(photos):
    loader = Loader(photos, 5, pipelines=PIPELINES, num_workers=1)
    stop, seen, errors = threading.Event(), [], []

    def ask():
        try:
            while not stop.is_set():
                seen.append(loader.stats(total=True).images)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(3):
            for number, _ in enumerate(loader):
                assert loader.stats().batches == number + 1
    finally:
        stop.set()
        thread.join()
    assert not errors
    assert seen == sorted(seen)
    assert loader.stats(total=True).images == 150


def test_numbers_go_through_json_and_the_table_names_every_party():
    numbers = {field.name: 1 for field in fields(LoaderStats)} | {"seconds": 4.0, "num_workers": 3}
    stats = LoaderStats(**numbers)
    assert LoaderStats.from_dict(json.loads(json.dumps(stats.to_dict()))) == stats
    assert stats.to_dict()["waiting_share"] == 0.25
    table = str(stats)
    assert all(party in table for party in ("your loop:", "loader:", "workers:", "25%"))


def test_torchs_profiler_shows_the_wait_and_the_handover(photos):
    loader = Loader(photos, 10, pipelines=PIPELINES, num_workers=1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in loader:
            pass
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["gpubeton: handover"] == 5
    assert counts["gpubeton: wait for a batch"] == 6  # the last one is for the end


@pytest.mark.parametrize("listener", ["/opt/nsight.so", ""])
def test_nvtx_ranges_are_made_when_nsight_listens(photos, monkeypatch, listener):
    pushed, popped = [], []
    loader = Loader(photos, 10, pipelines=PIPELINES, num_workers=1, device="cpu")
    monkeypatch.setenv("NVTX_INJECTION64_PATH", listener)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", pushed.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: popped.append(None))
    list(loader)
    assert len(pushed) == len(popped)
    assert {"gpubeton: handover", "gpubeton: decode"} & set(pushed) == (
        {"gpubeton: handover", "gpubeton: decode"} if listener else set()
    )


def watched(folder):
    """What each loader wrote for `gpubeton doctor`."""
    return [json.loads(path.read_text()) for path in folder.glob("*.json")]


def test_a_loader_that_doctor_watches_writes_its_statistics(photos, tmp_path, monkeypatch):
    monkeypatch.setenv(DOCTOR_VARIABLE, str(tmp_path))
    loader = Loader(photos, 10, pipelines=PIPELINES, num_workers=1)
    for _ in range(2):
        for _ in loader:
            pass
    (numbers,) = watched(tmp_path)
    assert numbers["total"]["images"] >= 50  # all of them when a third epoch begins, or at the end
    facts = numbers["info"]
    assert (facts["files"], facts["samples"], facts["device"], facts["num_workers"]) == ([str(photos)], 50, "cpu", 1)
    image = facts["images"][0]
    assert (image["name"], image["height"], image["width"], image["jpeg_share"]) == ("image", 24, 20, 1)
    assert 40 <= image["stored_height"] < 90
    del loader
    gc.collect()
    (last,) = watched(tmp_path)
    assert LoaderStats.from_dict(last["total"]).images == 100
    assert LoaderInfo.from_dict(last["info"]).to_dict() == LoaderInfo.from_dict(facts).to_dict()


def test_a_long_epoch_is_written_on_its_way(tmp_path, monkeypatch):
    monkeypatch.setenv(DOCTOR_VARIABLE, str(tmp_path))
    record = EpochStats(0, num_workers=1)
    monkeypatch.setattr("gpubeton.loader.stats._SECONDS_BETWEEN_WRITES", -1.0)
    StatsHistory().add(record, LoaderInfo)
    for number in range(3):
        record.receive(8)
        (numbers,) = watched(tmp_path)
        assert numbers["total"]["batches"] == number + 1


def test_statistics_that_cannot_be_written_do_not_end_the_training(photos, tmp_path, monkeypatch):
    monkeypatch.setenv(DOCTOR_VARIABLE, str(tmp_path / "nowhere"))
    loader = Loader(photos, 10, pipelines=PIPELINES, num_workers=1)
    assert len(list(loader)) == len(list(loader)) == 5


def test_facts_name_the_operations_that_are_not_fused(photos):
    for number, image in enumerate([augmented(), [*augmented(), torch.nn.Identity()]]):
        unfused = Loader(photos, 10, pipelines={**PIPELINES, "image": image}, num_workers=1)._describe().unfused
        assert len(unfused) == number
        assert all("Identity" in name for name in unfused)


def test_metrics_are_finite_numbers_whose_names_have_the_prefix_and_a_sum_has_no_epoch(photos):
    loader = Loader(photos, 10, pipelines=PIPELINES, num_workers=1)
    assert loader.stats().to_metrics()["loader/images"] == 0
    for _ in range(2):
        list(loader)
    metrics, total = loader.stats().to_metrics("train/"), loader.stats(total=True).to_metrics()
    assert (metrics["train/epoch"], total["loader/images"], "loader/epoch" in total) == (1, 100, False)
    assert {name.removeprefix("train/") for name in metrics} == loader.stats().to_dict().keys()
    assert all(type(value) is float and math.isfinite(value) for value in [*metrics.values(), *total.values()])
