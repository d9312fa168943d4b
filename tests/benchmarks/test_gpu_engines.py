from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from benchmarks.gpu.engines import EngineWatch


class Metrics:
    """What ``nvmlGpmMetricsGet`` takes and fills in."""

    def __init__(self):
        self.version = self.numMetrics = 0
        self.sample1 = self.sample2 = None
        self.metrics = [SimpleNamespace(metricId=0, value=0.0, nvmlReturn=-1) for _ in range(100)]


def nvml(engines, *, counts=True, knows_utilization=True):
    """NVIDIA's management library, of a GPU whose engines were at work for given shares of the time."""
    samples = []

    def sample(device, _):
        samples.append(device)
        return [len(samples)]

    def metrics(asked):
        assert (asked.sample1, asked.sample2, asked.version) == ([1], [2], 1)
        for metric in asked.metrics[: asked.numMetrics]:
            number = metric.metricId - 40
            metric.value = engines[number] if 0 <= number < len(engines) else 12.5
            metric.nvmlReturn = 0 if number < len(engines) else 3
        return asked

    def utilization(_):
        was_asked.set()
        if not knows_utilization:
            raise RuntimeError("Not Supported")
        return [60, 167_000]

    was_asked = threading.Event()

    return SimpleNamespace(
        NVML_GPM_METRICS_GET_VERSION=1,
        c_nvmlGpmMetricsGet_t=Metrics,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda number: f"GPU {number}",
        nvmlGpmQueryDeviceSupport=lambda _: SimpleNamespace(isSupportedDevice=counts),
        nvmlGpmSampleAlloc=list,
        nvmlGpmSampleGet=sample,
        nvmlGpmMetricsGet=metrics,
        nvmlDeviceGetJpgUtilization=utilization,
        was_asked=was_asked,
    )


@pytest.fixture
def watched(monkeypatch):
    def watch(library):
        monkeypatch.setitem(sys.modules, "pynvml", library)
        monkeypatch.setattr("benchmarks.gpu.engines._POLL_SECONDS", 0.001)
        with EngineWatch() as result:
            if library is not None:
                library.was_asked.wait()
        return result.found

    return watch


def test_the_share_of_each_engine_and_the_mean_of_the_busy_ones_are_reported(watched):
    result = watched(nvml([90.0, 80.0, 0.0, 100.0]))
    assert [result[f"nvjpg_{number}_percent"] for number in range(4)] == [90, 80, 0, 100]
    assert "nvjpg_4_percent" not in result, "the driver does not know it"
    assert (result["nvjpg_percent"], result["nvjpg_engines_at_work"]) == (90, 3)
    assert result["sm_percent"] == 12.5
    assert result["jpg_utilization_percent"] == 60


def test_a_gpu_that_does_not_count_has_one_figure_for_all_engines(watched):
    result = watched(nvml([], counts=False))
    assert result["jpg_utilization_percent"] == 60
    assert "does not count" in result["error"]


def test_without_the_library_or_an_answer_the_loop_continues(watched, monkeypatch):
    assert "ModuleNotFoundError" in watched(None)["error"]
    result = watched(nvml([50.0], knows_utilization=False))
    assert "jpg_utilization_percent" not in result
    assert result["nvjpg_percent"] == 50
