"""A contender on the GPU in its own process; it runs `service`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from benchmarks.contenders.process import LineProcess
from benchmarks.gpu.contenders.work import GpuWork

__all__ = ["GpuContender"]


class GpuContender(LineProcess):
    """A contender in its own process, ready to run laps; it has `patience` seconds for an answer, besides the lap."""

    def __init__(
        self,
        name: str,
        python: str,
        module: str,
        work: GpuWork,
        patience: float = 90,
        environment: Mapping[str, str] | None = None,  # besides the usual variables
    ) -> None:
        super().__init__(name, [python, "-m", module], environment={**os.environ, **(environment or {})})
        self._patience = patience
        self._work = work
        try:
            self.versions: dict[str, str] = json.loads(self.ask(work.to_json(), patience))
        except BaseException:
            self.close()
            raise

    def lap(self, seconds: float | None = None) -> dict[str, Any]:
        """Run a lap, by default as long as the work requires; see `benchmarks.gpu.contenders.service.run_lap`."""
        length = self._work.seconds if seconds is None else seconds
        lap: dict[str, Any] = json.loads(self.ask(str(length), length + self._patience))
        return lap
