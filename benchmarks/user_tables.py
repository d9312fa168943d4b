"""The tables of `benchmarks.user_terms`: size, writing and reading, by write mode and resolution."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.harness.timing import Lap, median_cpu, median_rate

__all__ = ["draw_reading", "draw_size", "draw_writing"]


def draw_size(result: dict[str, Any]) -> str:
    """Draw how large files are.

    Parameters
    ----------
    result : dict
        The result of `benchmarks.user_terms`.

    Returns
    -------
    str
        Markdown.
    """

    def cell(setting: dict[str, Any]) -> str:
        return f"{setting['image_bytes'] / setting['images'] / 1000:,.0f}"

    heading = "kB an image, which is GB for a million"
    return "\n".join([*_grid(result, heading, cell), "", f"{_photos(result)}. {_modes(result)}", _provenance(result)])


def draw_writing(result: dict[str, Any]) -> str:
    """Draw how long writing takes.

    Parameters
    ----------
    result : dict
        The result of `benchmarks.user_terms`.

    Returns
    -------
    str
        Markdown.
    """

    def cell(setting: dict[str, Any]) -> str:
        laps = _laps(setting["writing"])
        return f"{median_rate(laps):,.0f} <sub>{median_cpu(laps):.1f} ms</sub>"

    rounds = len(result["settings"][0]["writing"])
    what = (
        f"One process, which waits at the end until the disk has everything; in small print processor time for an "
        f"image. Median of {rounds} rounds by turns. {_photos(result)}."
    )
    return "\n".join([*_grid(result, "images/s written", cell), "", what, _provenance(result)])


def draw_reading(result: dict[str, Any]) -> str:
    """Draw how many images come out with each number of cores.

    Parameters
    ----------
    result : dict
        The result of `benchmarks.user_terms`.

    Returns
    -------
    str
        Markdown.
    """
    counts = list(result["settings"][0]["reading"])
    cores = [f"images/s, {count} core{'' if count == '1' else 's'}" for count in counts]
    heading = ["stored", "median size", "ms of processor time an image", *cores]
    lines = [_row(heading), _row(["---", "---:", *["---:"] * (len(heading) - 2)])]
    for setting in result["settings"]:
        laps = {count: _laps(setting["reading"][count]) for count in counts}
        cells = [
            f"`{setting['mode']}`, {_resolution(setting['max_resolution'])}",
            f"{setting['median_width']} × {setting['median_height']}",
            f"{median_cpu(laps[counts[0]]):.2f}",
            *(_spread([lap.images_per_second for lap in laps[count]]) for count in counts),
        ]
        lines.append(_row(cells))
    first = result["settings"][0]["reading"][counts[0]]
    rounds, images = len(first), first[0]["images"]
    what = f"Median of {rounds} rounds by turns of {images:,} images, with the slowest and the fastest in small print."
    return "\n".join([*lines, "", what, _provenance(result)])


def _grid(result: dict[str, Any], heading: str, cell: Callable[[dict[str, Any]], str]) -> list[str]:
    """Draw a table with a row for each write mode and a column for each resolution."""
    modes = list(dict.fromkeys(setting["mode"] for setting in result["settings"]))
    resolutions = list(dict.fromkeys(setting["max_resolution"] for setting in result["settings"]))
    cells = {(setting["mode"], setting["max_resolution"]): cell(setting) for setting in result["settings"]}
    lines = [_row([heading, *map(_resolution, resolutions)]), _row(["---", *["---:"] * len(resolutions)])]
    lines += [_row([f"`{mode}`", *(cells[mode, resolution] for resolution in resolutions)]) for mode in modes]
    return lines


def _laps(stored: list[dict[str, Any]]) -> list[Lap]:
    return [Lap(**lap) for lap in stored]


def _resolution(most: int | None) -> str:
    return "as it is" if most is None else f"`max_resolution={most}`"


def _photos(result: dict[str, Any]) -> str:
    whole = next(setting for setting in result["settings"] if setting["max_resolution"] is None)
    size = f"median {whole['median_width']} × {whole['median_height']}"
    return f"{whole['images']:,} photos, {size}, JPEG of quality {result['work']['quality']}"


def _modes(result: dict[str, Any]) -> str:
    """Say what the settings of two modes were, and what they came to."""
    shares = {
        mode: [round(100 * setting["share_of_jpeg"]) for setting in result["settings"] if setting["mode"] == mode]
        for mode in ("smart", "proportion")
    }
    threshold = result["work"]["smart_threshold"] / 1000
    return (
        f"`smart` with a threshold of {threshold:,.0f} kB stored {', '.join(map(str, shares['smart']))} % as JPEG, "
        f"`proportion` half of them."
    )


def _provenance(result: dict[str, Any]) -> str:
    machine, made = result["machine"], result["made"][:10]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB, {machine['kernel']}"
    return f"{made}, {where}; gpubeton {result['gpubeton']['version']} at {result['gpubeton']['commit']}."


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} <sub>{min(values):,.0f}–{max(values):,.0f}</sub>"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
