"""Compare a result of `benchmarks.compare` with the last committed one; the exit code is 1 if gpubeton became slower.

A ratio of two runs is noisy: laps differ within a run, and a machine differs from day to day. The other loaders, whose
versions did not change, show how much the machine differs. Their ratio is taken out, and its spread widens the
tolerance, as the spread of the laps does.

    python -m benchmarks.regression                          # the newest result, and the last committed one before it
    python -m benchmarks.regression new.json --before old.json
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness.timing import Lap, median_cpu
from benchmarks.results import RESULTS

__all__ = ["Change", "find_changes", "last_committed"]

_OURS = "gpubeton"
# A difference of so many standard errors is none by chance: with ten figures, about one false alarm in a hundred runs.
_ERRORS = 3.3
_LEAST = 0.03  # smaller differences than this do not matter
_WITHOUT_PEERS = 0.1  # what a machine may differ from day to day, if no other loader shows it


@dataclass(frozen=True)
class Change:
    """Processor time per image of a loader, as a ratio of two results."""

    name: str
    before: float  # CPU seconds for 1000 images
    after: float
    ratio: float  # after / before, without what the machine differs; above 1: slower
    tolerance: float  # how much of it may be noise

    @property
    def verdict(self) -> str:
        """Whether gpubeton became "slower" or "faster", or is the "same"."""
        if abs(self.ratio - 1) <= self.tolerance:
            return "same"
        return "slower" if self.ratio > 1 else "faster"


def find_changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Compare gpubeton in all races of the same work."""
    return [
        change
        for race in after["races"]
        for old in before["races"]
        if (old["storage"], old["work"], old["corpus"]) == (race["storage"], race["work"], race["corpus"])
        for change in _changes_of_race(old, race)
    ]


def _changes_of_race(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    old, new = before["contenders"], after["contenders"]
    both = [name for name in new if name in old]
    peers = [name for name in both if not name.startswith(_OURS) and new[name]["versions"] == old[name]["versions"]]
    logs = [math.log(median_cpu(_laps(new[name])) / median_cpu(_laps(old[name]))) for name in peers]
    drift, drift_noise = statistics.median(logs) if logs else 0.0, _WITHOUT_PEERS / _ERRORS
    if logs:
        # One peer alone shows no spread: its own noise is taken.
        own = math.hypot(*(_noise(_laps(contenders[peers[0]])) for contenders in (old, new)))
        drift_noise = max(own, statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0)
    for name in both:
        if name.startswith(_OURS):
            laps = _laps(old[name]), _laps(new[name])
            once, now = map(median_cpu, laps)
            noise = math.hypot(drift_noise, *map(_noise, laps))
            ratio, tolerance = now / once / math.exp(drift), max(_LEAST, math.expm1(_ERRORS * noise))
            yield Change(f"{after['storage']}: {name}", once, now, ratio, tolerance)


def _laps(contender: dict[str, Any]) -> list[Lap]:
    return [Lap(**lap) for lap in contender["laps"]]


def _noise(laps: Sequence[Lap]) -> float:
    """Return the standard error of the median of the laps, relative to it; outliers count little."""
    times = [lap.cpu_seconds_per_1000 for lap in laps]
    middle = statistics.median(times)
    spread = 1.4826 * statistics.median(abs(seconds - middle) for seconds in times) / middle
    # The median's error is a quarter larger than the mean's. Few laps: as if they differed by a hundredth at least.
    return 1.2533 * max(spread, 0.01) / math.sqrt(len(times))


def last_committed(after: dict[str, Any], folder: Path = RESULTS) -> Path | None:
    """Find the newest committed result of the same kind and type of machine, made before this one."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.json"], cwd=folder, check=True, capture_output=True, text=True)
    results = [(json.loads((folder / name).read_text()), folder / name) for name in listed.stdout.split("\0") if name]
    fitting = [
        (result["made"], path)
        for result, path in results
        if "kind" in result and _place(result) == _place(after) and result["made"] < after["made"]
    ]
    return max(fitting, default=(None, None))[1]


def _place(result: dict[str, Any]) -> tuple[str, str, int]:
    return result["kind"], result["machine"]["cpu"], result["machine"]["cores"]


def main(
    result: Annotated[Path | None, typer.Argument(help="A result; default: the newest.", show_default=False)] = None,
    before: Annotated[Path | None, typer.Option(help="Compare with this one.", show_default=False)] = None,
) -> None:
    """Compare a result of `benchmarks.compare` with the last committed one of the same type of machine."""
    console = Console(soft_wrap=True)
    result = result or max(RESULTS.glob("*-compare-*.json"), key=lambda path: path.name)
    after = json.loads(result.read_text())
    before = before or last_committed(after)
    if before is None:
        console.print(f"{result.name}: there is no earlier committed result of {after['machine']['cpu']}")
        return
    changes = find_changes(json.loads(before.read_text()), after)
    table = Table("CPU seconds for 1000 images", "before", "after", "ratio", "tolerance", "")
    for change in changes:
        numbers = f"{change.before:.3f}", f"{change.after:.3f}", f"{change.ratio:.3f}", f"±{change.tolerance:.3f}"
        table.add_row(change.name, *numbers, change.verdict)
    console.print(f"{before.name} -> {result.name}", table if changes else "No race of the same work in both.")
    if any(change.verdict == "slower" for change in changes):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
