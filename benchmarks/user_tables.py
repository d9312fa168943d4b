"""The tables of `benchmarks.user_terms`: size, writing and reading, by write mode and resolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.harness.timing import Lap, median_cpu, median_rate
from benchmarks.markdown import provenance, row, rule, spread

__all__ = ["draw_reading", "draw_size", "draw_writing"]


def draw_size(result: dict[str, Any]) -> str:
    """Draw the sizes of files."""

    def cell(setting: dict[str, Any]) -> str:
        return f"{setting['image_bytes'] / setting['images'] / 1000:,.0f}"

    heading = "kB per image, or GB per million"
    return "\n".join([*_grid(result, heading, cell), "", f"{_photos(result)}. {_modes(result)}", provenance(result)])


def draw_writing(result: dict[str, Any]) -> str:
    """Draw the speed of writing."""

    def cell(setting: dict[str, Any]) -> str:
        laps = _laps(setting["writing"])
        return f"{median_rate(laps):,.0f} <sub>{median_cpu(laps):.1f} ms</sub>"

    rounds = len(result["settings"][0]["writing"])
    what = (
        f"One process, which finally waits until everything is on the disk; in small print the processor time of an "
        f"image. Median of {rounds} rounds in alternation. {_photos(result)}."
    )
    return "\n".join([*_grid(result, "images/s written", cell), "", what, provenance(result)])


def draw_reading(result: dict[str, Any]) -> str:
    """Draw the speed of reading with each number of cores."""
    counts = list(result["settings"][0]["reading"])
    cores = [f"images/s, {count} core{'' if count == '1' else 's'}" for count in counts]
    heading = ["stored", "median size", "ms of processor time per image", *cores]
    lines = [row(heading), rule(len(heading) - 1)]
    for setting in result["settings"]:
        laps = {count: _laps(setting["reading"][count]) for count in counts}
        cells = [
            f"`{setting['mode']}`, {_resolution(setting['max_resolution'])}",
            f"{setting['median_width']} × {setting['median_height']}",
            f"{median_cpu(laps[counts[0]]):.2f}",
            *(spread([lap.images_per_second for lap in laps[count]]) for count in counts),
        ]
        lines.append(row(cells))
    first = result["settings"][0]["reading"][counts[0]]
    rounds, images = len(first), first[0]["images"]
    what = f"Median of {rounds} rounds of {images:,} images, in alternation; slowest and fastest round in small print."
    return "\n".join([*lines, "", what, provenance(result)])


def _grid(result: dict[str, Any], heading: str, cell: Callable[[dict[str, Any]], str]) -> list[str]:
    """Draw a table with a row for each write mode and a column for each resolution."""
    modes = list(dict.fromkeys(setting["mode"] for setting in result["settings"]))
    resolutions = list(dict.fromkeys(setting["max_resolution"] for setting in result["settings"]))
    cells = {(setting["mode"], setting["max_resolution"]): cell(setting) for setting in result["settings"]}
    lines = [row([heading, *map(_resolution, resolutions)]), rule(len(resolutions))]
    lines += [row([f"`{mode}`", *(cells[mode, resolution] for resolution in resolutions)]) for mode in modes]
    return lines


def _laps(stored: list[dict[str, Any]]) -> list[Lap]:
    return [Lap(**lap) for lap in stored]


def _resolution(most: int | None) -> str:
    return "original" if most is None else f"`max_resolution={most}`"


def _photos(result: dict[str, Any]) -> str:
    whole = next(setting for setting in result["settings"] if setting["max_resolution"] is None)
    size = f"median {whole['median_width']} × {whole['median_height']}"
    return f"{whole['images']:,} photos, {size}, JPEG of quality {result['work']['quality']}"


def _modes(result: dict[str, Any]) -> str:
    """Describe the settings of two modes and their results."""
    shares = {
        mode: [round(100 * setting["share_of_jpeg"]) for setting in result["settings"] if setting["mode"] == mode]
        for mode in ("smart", "proportion")
    }
    threshold = result["work"]["smart_threshold"] / 1000
    return (
        f"`smart` with a threshold of {threshold:,.0f} kB stored {', '.join(map(str, shares['smart']))} % as JPEG, "
        f"`proportion` half of them."
    )
