"""Processes that answer each line on stdin with a line on stdout, and the contenders that run in them."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from benchmarks.contenders.work import Work
from benchmarks.harness.processes import watched_memory
from benchmarks.harness.timing import Lap

if TYPE_CHECKING:
    from typing_extensions import Self  # typing.Self is younger than Python 3.10

__all__ = ["Contender", "ContenderError", "ContenderProcess", "LineProcess"]

_ROOT = Path(__file__).resolve().parent.parent.parent


class ContenderError(RuntimeError):
    """A process ended or did not answer in time."""


@dataclass(frozen=True)
class Contender:
    """A loader that can take part in a comparison."""

    name: str  # in the results
    module: str  # in the package of contenders
    needs: str = "torch"  # a package of its interpreter
    variable: str = ""  # environment variable with its interpreter; default: this one

    @property
    def python(self) -> str:
        """The interpreter that runs it."""
        return os.environ.get(self.variable) or sys.executable

    def check_installed(self) -> None:
        """Raise ContenderError if its interpreter cannot import its packages."""
        command = [self.python, "-c", f"import {self.needs}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            last = (result.stderr.strip().splitlines() or ["no interpreter"])[-1]
            advice = f"; name its interpreter in {self.variable}" if self.variable else ""
            raise ContenderError(f"not installed ({last}){advice}")


class LineProcess:
    """A process that answers each line with a line."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path = _ROOT, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        # A new session: the process can be killed together with its children.
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"answers of {name}", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, line: str, seconds: float | None = None) -> str:
        """Write a line and return the answer; fail after some seconds, or if the process ends."""
        stdin = self._process.stdin
        if stdin is None:
            raise ContenderError(f"{self.name}: it has no pipe")
        with suppress(BrokenPipeError):
            stdin.write(line + "\n")
            stdin.flush()
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise ContenderError(f"{self.name}: no answer within {seconds:.0f} seconds") from None
        if not answer:
            raise ContenderError(
                f"{self.name}: its process ended with status {self._process.wait()} without an answer; its output is "
                "above"
            )
        return answer

    def close(self) -> None:
        """End the process; kill it if it does not end by itself."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(timeout=5)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put("")


class ContenderProcess(LineProcess):
    """A contender in its own process, ready to run laps; its module is in ``benchmarks.contenders``."""

    def __init__(
        self, name: str, python: str, module: str, work: Work, environment: Mapping[str, str] | None = None
    ) -> None:
        begin = time.perf_counter()
        super().__init__(name, [python, "-m", f"benchmarks.contenders.{module}"], environment=environment)
        try:
            self.versions: dict[str, str] = json.loads(self.ask(work.to_json()))
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.perf_counter() - begin  # until it was ready to run a lap

    def lap(self) -> Lap:
        """Run a lap."""
        lap = Lap(*json.loads(self.ask("lap")))
        if not lap.images:
            raise ContenderError(f"{self.name}: it gave no images; its output is above")
        return lap

    def watched_lap(self) -> tuple[Lap, int]:
        """Run a lap; also return the most bytes of memory that the process and its children had."""
        with watched_memory(self._process.pid) as seen:
            lap = self.lap()
        return lap, max(seen)

    def feed(self, accelerators: int, step_seconds: float, steps: int) -> float:
        """Let simulated accelerators take its batches; return the seconds of their steps, on average."""
        task = {"accelerators": accelerators, "step_seconds": step_seconds, "steps": steps}
        return float(self.ask(json.dumps(task)))
