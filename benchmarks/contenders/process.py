"""ContenderProcess: the other end of `service`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType

from benchmarks.contenders.work import Work
from benchmarks.harness.timing import Lap

__all__ = ["ContenderError", "ContenderProcess"]

_ROOT = Path(__file__).resolve().parent.parent.parent


class ContenderError(RuntimeError):
    """A contender ended instead of answering."""


class ContenderProcess:
    """A contender, started and waiting for its laps.

    Parameters
    ----------
    name : str
        Its name in results and messages.
    python : str
        Its interpreter.
    module : str
        The module below ``benchmarks.contenders``.
    work : Work
        What it has to do.

    Raises
    ------
    ContenderError
        If it cannot start.
    """

    def __init__(self, name: str, python: str, module: str, work: Work) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python, "-m", f"benchmarks.contenders.{module}"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        try:
            self.versions: dict[str, str] = json.loads(self._ask(work.to_json()))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ContenderProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def lap(self) -> Lap:
        """Run a lap.

        Returns
        -------
        Lap
            What it took there.

        Raises
        ------
        ContenderError
            If the contender ended instead.
        """
        return Lap(*json.loads(self._ask("lap")))

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _ask(self, line: str) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise ContenderError(f"{self.name}: it has no pipes")
        try:
            stdin.write(line + "\n")
            stdin.flush()
        except BrokenPipeError:
            pass
        answer = stdout.readline()
        if not answer:
            raise ContenderError(
                f"{self.name}: its process ended with status {self._process.wait()} instead of answering; "
                "what it said stands above"
            )
        return answer
