from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from benchmarks.contenders.process import ContenderError
from benchmarks.gpu import race
from benchmarks.gpu.contenders import service
from benchmarks.gpu.contenders.process import GpuContender
from benchmarks.gpu.contenders.service import Ready, run_lap
from benchmarks.gpu.contenders.work import GpuWork
from benchmarks.gpu.photos import make_photos
from benchmarks.gpu.race import ENTRIES, Entry, Race
from benchmarks.gpu.record import Record
from benchmarks.gpu.simulation import VARIABLE


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return make_photos(tmp_path_factory.mktemp("photos"), 16, 90)


@pytest.fixture
def work(photos, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    return GpuWork(photos.beton, photos.folder, 16, 1, 8, side=32, seconds=0.05)


class Batches:
    """Batches of 10 images, a second each by its clock; notes when it is begun and closed."""

    def __init__(self, length):
        self.length = length
        self.seen = []

    def perf_counter(self):
        return sum(isinstance(event, int) for event in self.seen)

    def __call__(self):
        self.seen.append("begun")
        try:
            for number in range(self.length):
                self.seen.append(number)
                yield 10
        finally:
            self.seen.append("closed")


def test_a_lap_counts_images_once_the_pipeline_is_full_and_goes_on_with_another_epoch(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    batches = Batches(1000)
    monkeypatch.setattr(service, "time", batches)
    lap = run_lap(Ready(batches, lambda: batches.seen.append("settled"), 3, {}), 5)
    first = batches.seen.index("settled")
    assert batches.seen[:first] == ["begun", 0, 1, 2]
    assert batches.seen[first:] == ["settled", 3, 4, 5, 6, 7, "settled", "closed"]
    assert (lap["images"], lap["wall_seconds"]) == (50, 5)
    short = Batches(4)
    monkeypatch.setattr(service, "time", short)
    assert run_lap(Ready(short, lambda: None, 2, {}), 5)["images"] == 50
    assert short.seen.count("begun") == short.seen.count("closed") == 2


def test_nvjpeg_and_gpubeton_race_on_the_simulated_gpu(work, tmp_path):
    names = ["nvJPEG alone, engines", "gpubeton, engines", "gpubeton, own kernels", "gpubeton, own kernels, resident"]
    entries = [entry for entry in ENTRIES if entry.name in names]
    record = Record(tmp_path / "race.json")
    Race(Console(quiet=True), "one core", work).run(entries, 2, record)
    result = json.loads((tmp_path / "race.json").read_text())["one core"]
    assert result["left_out"] == {}
    assert list(result["contenders"]) == names
    for contender in result["contenders"].values():
        assert len(contender["laps"]) == 2
        assert all(lap["images"] > 0 for lap in contender["laps"])
        assert contender["versions"]["python"] == sys.version.split()[0]


def test_a_contender_that_is_missing_or_fails_is_left_out_and_the_others_race(work):
    missing = Entry("Missing", "bare_nvjpeg", "a_missing_package", "GPUBETON_MISSING_PYTHON", variant="engines")
    wrong = Entry("Wrong", "bare_nvjpeg", variant="a variant that does not exist")
    good = Entry("Good", "bare_nvjpeg", variant="engines")
    race_of_three = Race(Console(quiet=True), "three", work)
    race_of_three.run([missing, wrong, good], 1, Record(None))
    assert "GPUBETON_MISSING_PYTHON" in race_of_three.found["left_out"]["Missing"]
    assert "ended with status 1" in race_of_three.found["left_out"]["Wrong"]
    assert list(race_of_three.found["contenders"]) == ["Good"]
    assert len(race_of_three.found["contenders"]["Good"]["laps"]) == 1


def test_a_contender_that_does_not_answer_is_given_up(work):
    with pytest.raises(ContenderError, match=r"slow: .* 0 seconds"):
        GpuContender("slow", sys.executable, "benchmarks.gpu.contenders.bare_nvjpeg", work, patience=0.01)


def test_hardware_queues_are_set_in_the_contenders_process_only(work, monkeypatch):
    seen = []
    monkeypatch.setattr(race, "GpuContender", lambda *_, environment: seen.append(environment))
    for entry in ENTRIES:
        Race(Console(quiet=True), "all cores", work)._start(replace(entry, needs="json", variable=""))
    assert [variables for variables in seen if variables] == [
        {"CUDA_DEVICE_MAX_CONNECTIONS": number} for number in ("8", "32")
    ]
