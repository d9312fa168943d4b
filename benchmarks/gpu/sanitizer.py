"""Run the tests of our own decoder under NVIDIA's compute-sanitizer, which is a part of the CUDA toolkit.

python -m benchmarks.gpu.sanitizer
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.gpu.record import Record, exit_on_sigterm
from benchmarks.gpu.simulation import is_simulated

__all__ = ["TOOLS", "find_sanitizer", "run_tool"]

TOOLS = ("memcheck", "racecheck", "synccheck")

_ROOT = Path(__file__).resolve().parent.parent.parent
# In this process, which the tools watch. They make kernels up to a hundred times slower.
_TESTS = ["-m", "pytest", "tests/gpu/test_entry_decoder.py", "-k", "to_the_bit or power_on", "-q",
          "-p", "no:cacheprovider", "-W", "default", "-n", "0", "--timeout=0"]  # fmt: skip
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (.*)")
_FAULTS = 99


def main(
    seconds: Annotated[float, typer.Option(help="How long all tools may take.")] = 300,
    out: Annotated[Path | None, typer.Option(help="File for the result.")] = None,
) -> None:
    """Run the tests of our own decoder under memcheck, racecheck and synccheck."""
    exit_on_sigterm()
    console, record, program = Console(), Record(out), find_sanitizer()
    if is_simulated() or program is None:
        why = "compute-sanitizer is missing: it comes with the CUDA toolkit, and has to be in PATH"
        record.add("skipped", "the simulated GPU's kernels run on the CPU" if is_simulated() else why)
        console.print(f"skipped: {record.found['skipped']}", soft_wrap=True)
        record.complete()
        return
    end = time.monotonic() + seconds
    for number, tool in enumerate(TOOLS):
        record.add(tool, run_tool(program, tool, (end - time.monotonic()) / (len(TOOLS) - number)))
        console.print(f"{tool}: {record.found[tool]['verdict']}", soft_wrap=True)
    record.complete()
    if not all(record.found[tool]["passed"] for tool in TOOLS):
        raise typer.Exit(1)


def find_sanitizer() -> str | None:
    """Return the path of compute-sanitizer: in PATH, or in the CUDA toolkit; None if it is missing."""
    toolkit = Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda") / "bin"
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=toolkit)


def run_tool(program: str, tool: str, seconds: float) -> dict[str, Any]:
    """Run the tests under one tool until its time is up; return its result and the end of its output."""
    limit = ["timeout", "--signal=INT", "--kill-after=10", f"{max(seconds, 1):.0f}"]
    options = ["--tool", tool, "--target-processes", "all", "--error-exitcode", str(_FAULTS)]
    begin = time.perf_counter()
    done = subprocess.run(
        [*limit, program, *options, sys.executable, *_TESTS],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    summaries = _SUMMARY.findall(done.stdout)
    ends = {0: "passed", _FAULTS: "faults were found", 124: "its time was up", 137: "its time was up"}
    verdict = ends.get(done.returncode, f"ended with status {done.returncode}")
    return {
        "passed": done.returncode == 0,
        "verdict": "; ".join([verdict, *summaries]),
        "seconds": round(time.perf_counter() - begin, 1),
        "output": done.stdout[-10_000:],
    }


if __name__ == "__main__":
    typer.run(main)
