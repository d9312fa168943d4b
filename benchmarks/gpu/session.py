"""Test and measure gpubeton on the GPU of this machine, in a given time, into one file.

    benchmarks/gpu_session.sh                        # everything, in about nine minutes
    benchmarks/gpu_session.sh --steps tests,race
    benchmarks/gpu_session.sh --simulated            # without a GPU: only shows that the steps run

If a step fails or takes too long, the others still run. An existing file of the same GPU and commit keeps the results
of steps that do not run this time.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.gpu.environment import COMMIT_VARIABLE, describe
from benchmarks.gpu.record import write_json
from benchmarks.gpu.simulation import VARIABLE
from benchmarks.gpu.steps import STEPS, Scale, Step, run_step
from benchmarks.gpu.tables import summary
from benchmarks.results import DATA, RESULTS
from gpubeton import __version__

__all__ = ["KIND", "SIMULATED_KIND", "default_path", "main", "run_session"]

#: Kind of result files. Simulated runs have another, so that their figures never appear in a table.
KIND = "gpu"
SIMULATED_KIND = "gpu-simulated"

_ROOT = Path(__file__).resolve().parent.parent.parent
_WARM_UP_SHARE = 0.25


def main(
    out: Annotated[Path | None, typer.Option(help="The result file; by default one in benchmarks/results.")] = None,
    seconds: Annotated[float, typer.Option(help="How long everything may take.")] = 560,
    steps: Annotated[str, typer.Option(help=f"Which, of {','.join(step.name for step in STEPS)}.")] = "",
    commit: Annotated[str, typer.Option(help="The commit that is measured, where the files are no checkout.")] = "",
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    simulated: Annotated[bool, typer.Option("--simulated", "--dry-run", help="Use the simulated GPU.")] = False,
) -> None:
    """Test and measure gpubeton on the GPU of this machine, in a given time, into one file."""
    names = [name for name in steps.split(",") if name]
    unknown = set(names) - {step.name for step in STEPS}
    if unknown:
        raise typer.BadParameter(f"there is no step {', '.join(sorted(unknown))}")
    chosen = [step for step in STEPS if not names or step.name in names]
    run_session(chosen, out, time.monotonic() + seconds, commit, data, simulated=simulated)


def run_session(
    chosen: Sequence[Step],
    out: Path | None,
    end: float,  # on time's monotonic clock
    commit: str,
    data: Path,
    *,
    simulated: bool,
    warms_up: bool = True,
) -> None:
    """Run the steps and write the result file; raise typer.Exit if one of them failed."""
    # A shell that runs this in the background makes it and its steps ignore SIGINT, which ends the steps.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    console = Console()
    os.environ[VARIABLE] = "1" if simulated else "0"
    os.environ["GPUBETON_REQUIRE_GPU"] = "0" if simulated else "1"
    if commit:
        os.environ[COMMIT_VARIABLE] = commit
    environment = describe()
    path = out or default_path(environment)
    result = _begin(path, environment)
    log = path.with_suffix(".log") if out else _ROOT / "build" / f"{path.stem}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    left = end - time.monotonic()
    console.print(f"{environment['gpu'].get('name')}, {left:.0f} seconds; {path} and {log}", soft_wrap=True)
    with tempfile.TemporaryDirectory() as folder:
        if warms_up:
            result["warm_up"] = _warm_up(data, log, simulated, left * _WARM_UP_SHARE)
        write_json(path, result)
        for number, step in enumerate(chosen):
            left = end - time.monotonic()
            share = step.share / sum(other_step.share for other_step in chosen[number:])
            scale = Scale(data, simulated, max(left * share, 1) if not simulated else max(left, 1))
            console.print(f"{step.name}: up to {scale.seconds:.0f} s", soft_wrap=True)
            result["steps"][step.name] = {
                **run_step(step, scale, Path(folder), log),
                "made": _now(),
                "commit": environment["commit"],
            }
            write_json(path, result)
            step_result = result["steps"][step.name]
            try:
                report = summary(step.name, step_result["found"])
            except Exception as error:  # noqa: BLE001 - the other steps run all the same
                report = f"\n  no summary: {type(error).__name__}: {error}"
            console.print(
                f"{step.name}: {step_result['ended']} after {step_result['seconds']:.0f} s{report}",
                soft_wrap=True,
                markup=False,
            )
    console.print(f"Written: {path}", soft_wrap=True)
    failed = [name for name, step in result["steps"].items() if step["ended"] != "done"]
    if failed:
        raise typer.Exit(1)


def _begin(path: Path, environment: dict[str, Any]) -> dict[str, Any]:
    """Begin a result, or continue one of the same GPU and commit."""
    result = {
        "kind": SIMULATED_KIND if environment["simulated"] else KIND,
        "simulated": environment["simulated"],
        "made": _now(),
        "gpubeton": {"version": __version__, "commit": environment["commit"]},
        "machine": environment["machine"],
        "environment": environment,
        "steps": {},
    }
    if path.exists():
        before = json.loads(path.read_text())
        same = [("kind",), ("gpubeton", "commit"), ("environment", "gpu", "name")]
        if all(_at(before, keys) == _at(result, keys) for keys in same):
            result["steps"] = before["steps"]
    return result


def _at(result: dict[str, Any], keys: tuple[str, ...]) -> Any:
    found: Any = result
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def default_path(environment: dict[str, Any]) -> Path:
    """Return the path of today's result."""
    gpu = re.sub(r"[^a-z0-9]+", "-", str(environment["gpu"].get("name", "unknown")).lower()).strip("-")
    name = f"gpu-{gpu}-{datetime.now(timezone.utc):%Y-%m-%d}.json"
    # build/ is not committed.
    return (_ROOT / "build" if environment["simulated"] else RESULTS) / name


def _warm_up(data: Path, log: Path, is_small: bool, seconds: float) -> dict[str, Any]:
    """Make images and compiled code; each step makes missing parts itself."""
    begin = time.perf_counter()
    images, side = (32, 32) if is_small else (2000, 224)
    command = [sys.executable, "-m", "benchmarks.gpu.warm_up", f"--images={images}", f"--side={side}", f"--data={data}"]
    with log.open("ab") as output:
        try:
            done = subprocess.run(command, cwd=_ROOT, stdout=output, stderr=output, timeout=seconds, check=False)
            ended = f"status {done.returncode}"
        except subprocess.TimeoutExpired:
            ended = "stopped: its time was up"
    return {"ended": ended, "seconds": round(time.perf_counter() - begin, 1)}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


if __name__ == "__main__":
    typer.run(main)
