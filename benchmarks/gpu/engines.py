"""Usage of the JPEG engines and of the rest of the GPU, from NVIDIA's management library.

Hopper and newer GPUs report the share of busy time of each engine between two samples. Others report one value for all
engines, over the last fraction of a second.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import Any

__all__ = ["EngineWatch"]

# NVML_GPM_METRIC_... of the newest library; older drivers know some of them.
_METRICS = {
    "sm_percent": 2,  # SM_UTIL
    "sm_occupancy_percent": 3,
    "memory_bandwidth_percent": 10,  # DRAM_BW_UTIL
    "pcie_to_host_mib_per_second": 20,
    "pcie_from_host_mib_per_second": 21,
    **{f"nvjpg_{number}_percent": 40 + number for number in range(8)},
}

_POLL_SECONDS = 0.1


class EngineWatch:
    """Watches the engines while its ``with`` block runs."""

    def __init__(self, device: int = 0) -> None:
        self._number = device
        self._library: Any = None
        self._device: Any = None
        self._samples: list[Any] = []
        self._polled: list[int] = []
        self._is_over = threading.Event()
        self._poller: threading.Thread | None = None
        self.found: dict[str, Any] = {}

    def __enter__(self) -> EngineWatch:
        try:
            self._library = import_module("pynvml")
            self._library.nvmlInit()
            self._device = self._find_device()
        except Exception as error:  # noqa: BLE001 - without library, driver or permission the loop is still measured
            self.found["error"] = f"{type(error).__name__}: {error}"
            return self
        try:
            if not self._library.nvmlGpmQueryDeviceSupport(self._device).isSupportedDevice:
                raise RuntimeError("this GPU does not count")
            self._samples = [self._sample()]
        except Exception as error:  # noqa: BLE001 - as above; the other value may exist
            self.found["error"] = f"{type(error).__name__}: {error}"
        self._poller = threading.Thread(target=self._poll, name="nvml", daemon=True)
        self._poller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._poller is not None:
            self._is_over.set()
            self._poller.join()
            if self._polled:
                self.found["jpg_utilization_percent"] = sum(self._polled) / len(self._polled)
        if self._samples:
            try:
                self.found |= self._between(self._samples[0], self._sample())
            except Exception as failed:  # noqa: BLE001 - as above
                self.found["error"] = f"{type(failed).__name__}: {failed}"

    def _find_device(self) -> Any:
        """Find the same GPU in the library, because CUDA may hide or renumber GPUs."""
        try:
            import torch

            return self._library.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(self._number).uuid}")
        except Exception:  # noqa: BLE001 - an old torch, or none with CUDA
            return self._library.nvmlDeviceGetHandleByIndex(self._number)

    def _sample(self) -> Any:
        return self._library.nvmlGpmSampleGet(self._device, self._library.nvmlGpmSampleAlloc())

    def _between(self, first: Any, second: Any) -> dict[str, float]:
        """Return the counts between two samples that the driver supports."""
        asked = self._library.c_nvmlGpmMetricsGet_t()
        asked.version = self._library.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(_METRICS)
        asked.sample1, asked.sample2 = first, second
        for place, number in enumerate(_METRICS.values()):
            asked.metrics[place].metricId = number
        answered = self._library.nvmlGpmMetricsGet(asked)
        results = {
            name: round(answered.metrics[place].value, 2)
            for place, name in enumerate(_METRICS)
            if answered.metrics[place].nvmlReturn == 0
        }
        engines = [results[name] for name in results if name.startswith("nvjpg_") and results[name] > 0]
        if engines:
            results["nvjpg_percent"] = round(sum(engines) / len(engines), 2)
            results["nvjpg_engines_at_work"] = len(engines)
        return results

    def _poll(self) -> None:
        with suppress(Exception):  # unknown to an old driver
            while not self._is_over.wait(_POLL_SECONDS):
                self._polled.append(int(self._library.nvmlDeviceGetJpgUtilization(self._device)[0]))
