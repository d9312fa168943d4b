"""GpuContender: a contender in a process of its own; the other end of `service`."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.contenders.process import ContenderError
from benchmarks.gpu.contenders.work import GpuWork

__all__ = ["GpuContender"]

_ROOT = Path(__file__).resolve().parent.parent.parent.parent


class GpuContender:
    """A contender, started and waiting for its laps.

    Parameters
    ----------
    name : str
        Its name in results and messages.
    python : str
        Its interpreter.
    module : str
        Its module.
    work : GpuWork
        What it has to do.
    patience : float
        Seconds within which it has to answer, besides those of a lap.

    Raises
    ------
    ContenderError
        If it cannot start.
    """

    def __init__(self, name: str, python: str, module: str, work: GpuWork, patience: float = 90) -> None:
        self.name = name
        self._patience = patience
        self._work = work
        # In a group of its own: it is ended with all that it has started.
        self._process = subprocess.Popen(
            [python, "-m", module],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"answers of {name}", daemon=True)
        self._reader.start()
        try:
            self.versions: dict[str, str] = json.loads(self._ask(work.to_json(), patience))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> GpuContender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def lap(self, seconds: float | None = None) -> dict[str, Any]:
        """Run a lap.

        Parameters
        ----------
        seconds : float, optional
            How long, by default as the work says.

        Returns
        -------
        dict
            See `benchmarks.gpu.contenders.service.run_lap`.

        Raises
        ------
        ContenderError
            If the contender ended instead, or did not answer in time.
        """
        long = self._work.seconds if seconds is None else seconds
        lap: dict[str, Any] = json.loads(self._ask(str(long), long + self._patience))
        return lap

    def close(self) -> None:
        """End the process, if need be with force."""
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

    def _ask(self, line: str, seconds: float) -> str:
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
                f"{self.name}: its process ended with status {self._process.wait()} instead of answering; "
                "what it said stands above"
            )
        return answer
