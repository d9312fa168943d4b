"""The steps of a session on a GPU, each a command of its own with a share of the time."""

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

__all__ = ["STEPS", "Scale", "Step", "run_step"]

_ROOT = Path(__file__).resolve().parent.parent.parent
# Between being told to end and being ended.
_GRACE_SECONDS = 10


@dataclass(frozen=True)
class Scale:
    """How much is done in a step.

    Parameters
    ----------
    data : Path
        Where images are.
    is_small : bool
        Whether it is only to be shown that the step runs.
    seconds : float
        How long the step may take.
    """

    data: Path
    is_small: bool
    seconds: float

    def lap(self, laps: int, most: float) -> float:
        """Give the length of one of so many laps, that together take two thirds of the time."""
        return 0.05 if self.is_small else round(min(most, max(self.seconds * 0.66 / laps, 0.5)), 2)


@dataclass(frozen=True)
class Step:
    """A step of a session.

    Parameters
    ----------
    name : str
        Its name in the result.
    share : float
        Of the session's time, in relation to the others.
    arguments : callable
        Gives the interpreter's arguments, of the scale and the file for the result.
    read : callable
        Reads the result.
    """

    name: str
    share: float
    arguments: Callable[[Scale, Path], list[str]]
    read: Callable[[Path], dict[str, Any]]


def run_step(step: Step, scale: Scale, folder: Path, log: Path) -> dict[str, Any]:
    """Run a step, and end it when its time is up.

    Parameters
    ----------
    step : Step
        The step.
    scale : Scale
        How much of it.
    folder : Path
        Where its result goes.
    log : Path
        Where it says what it does.

    Returns
    -------
    dict
        How it ended, how long it took, and what it has found until then.
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
            process.send_signal(signal.SIGINT)  # as Ctrl+C does: tests that are done are reported
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    try:
        found = step.read(result)
    except (OSError, ValueError, ET.ParseError) as error:
        found = {"error": f"no result: {error}"}
    return {"ended": ended, "seconds": round(time.perf_counter() - begin, 1), "found": found}


def _read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _read_tests(path: Path) -> dict[str, Any]:
    """Count tests in what pytest wrote, and name those that failed."""
    cases = list(ET.parse(path.with_suffix(".xml")).getroot().iter("testcase"))
    bad: dict[str, str] = {}
    for case in cases:
        for kind in ("failure", "error", "skipped"):
            for found in case.findall(kind):
                text = found.get("message") or (found.text or "")
                bad[f"{case.get('classname')}::{case.get('name')}"] = f"{kind}: {text[:600]}"
    return {"tests": len(cases), "passed": len(cases) - len(bad), "not_passed": bad}


def _tests(scale: Scale, result: Path) -> list[str]:
    return [
        "-m", "pytest", "tests/gpu", "-q", "-x" if scale.is_small else "--maxfail=1000", "-p", "no:cacheprovider",
        # Other versions of other packages may warn of anything; tests/gpu/conftest.py says which of ours are errors.
        "-W", "default",
        # In a process of its own: what ends that does not end the others.
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

#: In the order of their weight: what comes last is left out first if time runs short.
STEPS = (
    Step("tests", 34, _tests, _read_tests),
    Step(
        "hazards",
        26,
        _measuring("benchmarks.gpu.hazards", {"seconds": 4}, lambda scale: {"seconds": 0.85 * scale.seconds}),
        _read_json,
    ),
    Step(
        "race",
        24,
        _measuring(_RACE, {"batch_size": 16, "rounds": 1}, lambda scale: {"rounds": 3, "seconds": scale.lap(30, 3)}),
        _read_json,
    ),
    Step(
        "kernels",
        7,
        _measuring("benchmarks.gpu.kernel_bandwidth", {"batch_size": 4, "side": 32, "repeats": 1}, lambda _: {}),
        _read_json,
    ),
    Step(
        "cores",
        22,
        _measuring(
            _RACE,
            {"batch_size": 16, "rounds": 1, "cores": "1"},
            lambda scale: {"cores": "1,2,4", "rounds": 2, "seconds": scale.lap(30, 3)},
        ),
        _read_json,
    ),
    Step(
        "training",
        14,
        _measuring(
            "benchmarks.gpu.training",
            {"batch_size": 4, "side": 32, "networks": "resnet8", "rounds": 1, "seconds": 0.05},
            lambda scale: {"rounds": 1, "seconds": scale.lap(12, 4)},
        ),
        _read_json,
    ),
)
