"""The table of `benchmarks.remote`."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.harness.timing import Lap, median_cpu, median_rate, ratios
from benchmarks.markdown import provenance, row, rule, spread

__all__ = ["draw_in_place", "draw_remote"]

_HEADINGS = (
    "images/s",
    "× local",
    "CPU s / 1000 images",
    "CPU s / GB more than local",
    "server's CPU s / GB",
    "requests / 1000 images",
    "fetched / used",
    "MiB more than local",
)


def draw_remote(result: dict[str, Any]) -> str:
    """Draw speed, processor time, requests and memory."""
    parts = [_race(race) for race in result["races"]]
    facts = (
        f"{result['images']:,} photos in {result['file_bytes'] / 1e9:.1f} GB, window order; nginx on the same cores. "
        "Median of the rounds, in alternation."
    )
    return "\n\n".join([*parts, f"{facts}\n{provenance(result)}"])


def draw_in_place(result: dict[str, Any]) -> str:
    """Draw speed, processor time and requests of kinds of files, beside the first of them."""
    kinds = {name: kind["laps"] for name, kind in result["kinds"].items()}
    first = next(iter(kinds))
    headings = ["HTTP", "images/s", f"× {first}", "CPU s / 1000 images", "requests / 1000 images", "fetched / used"]
    lines = [row(headings), rule(len(headings) - 1)]
    for name, laps in kinds.items():
        times, images = _times(laps), laps[0]["images"]
        cells = [spread([lap.images_per_second for lap in times], "{:,.0f}")]
        cells += [spread(ratios(times, _times(kinds[first])), "{:.2f}"), f"{median_cpu(times):.2f}"]
        cells += [f"{1000 * _median(laps, lambda lap: lap['requests']) / images:.1f}"]
        cells += [f"{_median(laps, lambda lap: lap['sent_bytes'] / lap['used_bytes']):.3f}"]
        lines.append(row([name, *cells]))
    facts = (
        f"{result['images']:,} photos in {result['corpus']['file_bytes'] / 1e9:.1f} GB, window order, entry points in "
        f"the index; threads that decode: {result['workers']}; nginx on the same cores. Median of "
        f"{len(kinds[first])} epochs each, in alternation."
    )
    return "\n".join([*lines, "", f"{facts} {provenance(result)}"])


def _race(race: dict[str, Any]) -> str:
    kinds = race["kinds"]
    lines = [row([f"threads that decode: {race['workers']}", *_HEADINGS]), rule(len(_HEADINGS))]
    lines += [_kind(name, kind["laps"], kinds["local"]["laps"]) for name, kind in kinds.items()]
    in_use = kinds["local"]["pages_in_use"] / 2**20
    return "\n".join(
        [*lines, "", f"By the formula, pages take {in_use:,.0f} MiB and 128 to 256 MiB that are asked for ahead."]
    )


def _kind(name: str, laps: list[dict[str, Any]], local: list[dict[str, Any]]) -> str:
    times, base = _times(laps), _times(local)
    images, fetched = laps[0]["images"], [lap["sent_bytes"] for lap in laps]
    cells = [f"{median_rate(times):,.0f}", spread(ratios(times, base), "{:.2f}"), f"{median_cpu(times):.2f}"]
    if any(fetched):
        more = [
            (lap["cpu_seconds"] - other["cpu_seconds"]) / (lap["sent_bytes"] / 1e9)
            for lap, other in zip(laps, local, strict=True)
        ]
        cells += [spread(more, "{:.2f}"), _server_time(laps)]
        cells += [f"{1000 * _median(laps, lambda lap: lap['requests']) / images:.1f}"]
        cells += [f"{_median(laps, lambda lap: lap['sent_bytes'] / lap['used_bytes']):.3f}"]
    else:
        cells += ["", "", "0", ""]
    memory = _median(laps, lambda lap: lap["peak_bytes"]) - _median(local, lambda lap: lap["peak_bytes"])
    return row([name, *cells, f"{memory / 2**20:,.0f}"])


def _server_time(laps: list[dict[str, Any]]) -> str:
    if not all("server_cpu_seconds" in lap for lap in laps):
        return ""  # of older results
    # Of all rounds: requests ahead for the next epoch are counted in the round before.
    served = sum(lap["served_bytes"] for lap in laps) / 1e9
    return f"{sum(lap['server_cpu_seconds'] for lap in laps) / served:.2f}" if served else ""


def _times(laps: list[dict[str, Any]]) -> list[Lap]:
    return [Lap(lap["images"], lap["wall_seconds"], lap["cpu_seconds"]) for lap in laps]


def _median(laps: list[dict[str, Any]], figure: Callable[[dict[str, Any]], float]) -> float:
    return statistics.median(map(figure, laps))
