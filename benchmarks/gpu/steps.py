"""The steps of a session on a GPU, each a separate command with a share of the time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

__all__ = ["STEPS", "Scale", "Step", "read_json", "read_tests", "run_step"]

_ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Scale:
    """The size of a step."""

    data: Path  # folder of the images
    is_small: bool  # only show that the step runs
    seconds: float  # limit of the step

    def lap(self, laps: int, most: float) -> float:
        """Return the seconds of one lap, if `laps` laps together take two thirds of the time, at most `most`."""
        return 0.05 if self.is_small else round(min(most, max(self.seconds * 0.66 / laps, 0.5)), 2)


@dataclass(frozen=True)
class Step:
    """A step of a session."""

    name: str  # in the result
    share: float  # of the session's time, relative to the others
    arguments: Callable[[Scale, Path], list[str]]  # of the interpreter
    read: Callable[[Path], dict[str, Any]]


def run_step(step: Step, scale: Scale, folder: Path, log: Path, *, grace: float = 10) -> dict[str, Any]:
    """Run a step until its time is up; return how it ended, its seconds and its result.

    It has `grace` seconds between SIGINT and SIGKILL.
    """
    result = folder / f"{step.name}.json"
    begin = time.perf_counter()
    with log.open("ab", buffering=0) as output:
        output.write(f"\n=== {step.name}, {scale.seconds:.0f} seconds\n".encode())
        process = subprocess.Popen(
            [sys.executable, *step.arguments(scale, result)],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(scale.seconds)
            ended = "done" if status == 0 else f"ended with status {status}"
        except subprocess.TimeoutExpired:
            ended = "stopped: its time was up"
            process.send_signal(signal.SIGINT)  # like Ctrl+C: finished tests are reported
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    try:
        results = step.read(result)
    except (OSError, ValueError, ET.ParseError) as error:
        results = {"error": f"no result: {error}"}
    return {"ended": ended, "seconds": round(time.perf_counter() - begin, 1), "found": results}


def read_json(path: Path) -> dict[str, Any]:
    """Read a result that a step wrote as JSON."""
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def read_tests(path: Path) -> dict[str, Any]:
    """Count the tests in the report of pytest, and list those that failed."""
    cases = list(ET.parse(path.with_suffix(".xml")).getroot().iter("testcase"))
    bad: dict[str, str] = {}
    for case in cases:
        for kind in ("failure", "error", "skipped"):
            for result in case.findall(kind):
                text = result.get("message") or (result.text or "")
                bad[f"{case.get('classname')}::{case.get('name')}"] = f"{kind}: {text[:600]}"
    return {"tests": len(cases), "passed": len(cases) - len(bad), "not_passed": bad}


def _tests(scale: Scale, result: Path) -> list[str]:
    return [
        "-m", "pytest", "tests/gpu", "-q", "-x" if scale.is_small else "--maxfail=1000", "-p", "no:cacheprovider",
        # Other versions of packages may have other warnings; tests/gpu/conftest.py selects those that are errors.
        "-W", "default",
        # In a worker process, so that a crash does not end the other tests.
        "-n", "1", "--timeout=100", f"--junitxml={result.with_suffix('.xml')}", "--durations=10",
    ]  # fmt: skip


def _measuring(
    module: str, small: dict[str, Any], usual: Callable[[Scale], dict[str, Any]]
) -> Callable[..., list[str]]:
    def arguments(scale: Scale, result: Path) -> list[str]:
        options = {**usual(scale), **(small if scale.is_small else {})}
        options |= {"images": 32 if scale.is_small else 2000, "data": scale.data, "out": result}
        return ["-m", module, *(f"--{name.replace('_', '-')}={value}" for name, value in options.items())]

    return arguments


_RACE = "benchmarks.gpu.race"


def _sanitizer(scale: Scale, result: Path) -> list[str]:
    return ["-m", "benchmarks.gpu.sanitizer", f"--seconds={0.9 * scale.seconds:.0f}", f"--out={result}"]


#: The most important first: if time runs short, the last ones are left out.
STEPS = (
    Step("sanitizer", 24, _sanitizer, read_json),
    Step("tests", 34, _tests, read_tests),
    Step(
        "race",
        24,
        _measuring(_RACE, {"batch_size": 16, "rounds": 1}, lambda scale: {"rounds": 3, "seconds": scale.lap(36, 3)}),
        read_json,
    ),
    Step(
        "kernels",
        7,
        _measuring("benchmarks.gpu.kernel_bandwidth", {"batch_size": 4, "side": 32, "repeats": 1}, lambda _: {}),
        read_json,
    ),
    Step(
        "cores",
        22,
        _measuring(
            _RACE,
            {"batch_size": 16, "rounds": 1, "cores": "1"},
            lambda scale: {"cores": "1,2,4", "rounds": 2, "seconds": scale.lap(30, 3)},
        ),
        read_json,
    ),
    Step(
        "training",
        14,
        _measuring(
            "benchmarks.gpu.training",
            {"batch_size": 4, "side": 32, "networks": "resnet8", "rounds": 1, "seconds": 0.05},
            lambda scale: {"rounds": 1, "seconds": scale.lap(12, 4)},
        ),
        read_json,
    ),
)
