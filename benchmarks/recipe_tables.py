"""The tables of `benchmarks.recipes`: recipes, single operations, other loaders."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.harness.timing import Lap, median_rate, ratios
from benchmarks.markdown import provenance, row, rule, spread

__all__ = ["added_us", "beside_plain", "draw_operations", "draw_opponents", "draw_recipes"]


def beside_plain(run: dict[str, Any]) -> dict[str, list[float]]:
    """Compare the epochs of a case with those of the plain recipe, round by round."""
    pairs = list(zip(run["laps"], run["plain"], strict=True))
    rates = {"× plain": [lap["images_per_second"] / plain["images_per_second"] for lap, plain in pairs]}
    threads = {"× thread": [lap["thread_ms"] / plain["thread_ms"] for lap, plain in pairs]}
    return {**rates, **threads}


def _plain_us(runs: Sequence[dict[str, Any]], threads: int) -> float:
    """Return the processor time of the plain recipe: the least beside each case, of which the median."""
    # A machine that others slow makes laps slower, never faster. Beside each case, plain has as many laps as the case.
    least = [min(float(lap["cpu_us"]) for lap in run["plain"]) for run in runs if run["threads"] == threads]
    return median(least)


def added_us(runs: Sequence[dict[str, Any]]) -> list[float]:
    """Return how much more processor time cases take, at least, than the plain recipe with as many threads."""
    return [min(lap["cpu_us"] for lap in run["laps"]) - _plain_us(runs, run["threads"]) for run in runs]


def draw_recipes(result: dict[str, Any]) -> str:
    """Draw the recipes, with each number of threads."""
    runs = [run for run in result["runs"] if run["is_recipe"]]
    heading = [
        "recipe",
        "threads",
        "images/s",
        "× plain",
        "CPU µs per image",
        "loader's thread, ms per batch",
        "× plain",
    ]
    lines = [row(heading), rule(len(heading) - 1)]
    for threads in dict.fromkeys(run["threads"] for run in runs):
        own = [run for run in runs if run["threads"] == threads]
        plain = [lap for run in own for lap in run["plain"]]
        lines.append(row(["plain", str(threads), _rate(plain), "1", _cpu(plain), _thread(plain), "1"]))
        for run in own:
            beside = beside_plain(run)
            cells = [_rate(run["laps"]), spread(beside["× plain"], "{:.2f}"), _cpu(run["laps"]), _thread(run["laps"])]
            lines.append(row([run["name"], str(threads), *cells, spread(beside["× thread"], "{:.2f}")]))
    return "\n".join([*lines, "", f"{_facts(result)} {provenance(result)}{_left_out(result)}"])


def draw_operations(result: dict[str, Any]) -> str:
    """Draw what single operations add to the plain recipe, with the least number of threads."""
    operations = [run for run in result["runs"] if not run["is_recipe"]]
    least = min((run["threads"] for run in operations), default=1)
    runs = [run for run in operations if run["threads"] == least]
    if not runs:
        return "No operation was measured."
    heading = ["operation", "CPU µs per image, added", "images/s × plain", "loader's thread, ms per batch", "× plain"]
    lines = [row(heading), rule(len(heading) - 1)]
    for run, added in zip(runs, added_us(runs), strict=True):
        beside = beside_plain(run)
        cells = [f"{added:.0f}", spread(beside["× plain"], "{:.2f}"), _thread(run["laps"])]
        lines.append(row([f"`{run['name']}`", *cells, spread(beside["× thread"], "{:.2f}")]))
    times = f"Processor times are the least of the rounds; the plain recipe takes {_plain_us(runs, least):,.0f} µs."
    return "\n".join([*lines, "", f"{_facts(result)} {times} {provenance(result)}"])


def draw_opponents(result: dict[str, Any]) -> str:
    """Draw images per second of other loaders, and how many times as fast gpubeton is."""
    names = list(dict.fromkeys(name for race in result["races"] for name in race["laps"]))
    lines = [row(["images/s, and how many times as fast gpubeton is", *names]), rule(len(names))]
    for race in result["races"]:
        laps = {name: [Lap(**lap) for lap in listed] for name, listed in race["laps"].items()}
        ours = laps[names[0]]
        cells = [f"{median_rate(ours):,.0f}"]
        for name in names[1:]:
            times = spread(ratios(ours, laps[name]), "{:.1f}") if name in laps else ""
            cells.append(f"{median_rate(laps[name]):,.0f}: × {times}" if name in laps else "")
        lines.append(row([race["name"], *cells]))
    versions = {name: version for race in result["races"] for name, version in race["versions"].items()}
    listed = "; ".join(
        f"{name}: {', '.join(f'{what} {of}' for what, of in its.items())}" for name, its in versions.items()
    )
    where = f"{result['races'][0]['threads']} cores. {provenance(result)}"
    return "\n".join([*lines, "", f"{where}\nVersions: {listed}."])


def _rate(laps: list[dict[str, float]]) -> str:
    return spread([lap["images_per_second"] for lap in laps])


def _cpu(laps: list[dict[str, float]]) -> str:
    return f"{median(lap['cpu_us'] for lap in laps):,.0f}"


def _thread(laps: list[dict[str, float]]) -> str:
    return f"{median(lap['thread_ms'] for lap in laps):.2f}"


def _facts(result: dict[str, Any]) -> str:
    crop = f"crop to {result['side']} with `{result['interpolation']}`" if result["interpolation"] else "crop"
    return (
        f"Photos stored as JPEG, with entry points; {crop}, flip, normalize to float16; batches of "
        f"{result['batch_size']}; {result['rounds']} rounds in alternation with the plain recipe."
    )


def _left_out(result: dict[str, Any]) -> str:
    return "".join(f"\nLeft out: {name}: {reason}." for name, reason in result["left_out"].items())
