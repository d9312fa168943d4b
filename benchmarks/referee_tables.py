"""Tables for comparisons with others: simulated accelerators, RANDOM, and the machines that results came from."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.timing import Lap, median_rate, ratios
from benchmarks.markdown import provenance, row, rule, spread

__all__ = ["LEAST_UTILIZATION", "draw_accelerators", "draw_imread", "draw_machines", "draw_random", "fed"]

LEAST_UTILIZATION = 0.9  # MLPerf Storage, ResNet-50
_STORED = {"jpg": "JPEG", "imagenet": "JPEG", "evaluation": "JPEG, evaluation", "raw": "raw"}


def fed(rounds: Sequence[dict[Any, float]]) -> tuple[int, dict[int, float]]:
    """Return the largest number of accelerators with enough utilization, and the median of each number."""
    listed: dict[int, list[float]] = defaultdict(list)
    for measured in rounds:
        for count, utilization in measured.items():
            listed[int(count)].append(utilization)
    medians = {count: median(utilizations) for count, utilizations in sorted(listed.items())}
    return max((count for count in medians if medians[count] >= LEAST_UTILIZATION), default=0), medians


def draw_accelerators(result: dict[str, Any]) -> str:
    """Draw how many accelerators each loader feeds."""
    gpus = result["step_seconds"]
    heading = ["photos", "loader", "images/s alone", *(f"{gpu}s fed" for gpu in gpus)]
    lines = ["| " + " | ".join(heading) + " |", row(["---", "---", *["---:"] * (1 + len(gpus))])]
    left_out = {}
    for run in result["runs"]:
        corpus = run["corpus"]
        photos = f"{_STORED[run['storage']]}, {corpus['image_bytes'] / corpus['images'] / 1000:.0f} kB"
        if "left_out" in run:
            left_out[f"{run['loader']} ({photos})"] = run["left_out"]
            continue
        cells = [photos, run["loader"], f"{run['images_per_second']:,.0f}"]
        lines.append(row([*cells, *(_fed_cell(run["utilization"][gpu]) for gpu in gpus)]))
    seconds = " and ".join(f"{second} s ({gpu})" for gpu, second in gpus.items())
    facts = (
        f"Batches of {result['batch_size']}; a step takes {seconds}. Fed: the most simulated accelerators with a "
        f"utilization of {LEAST_UTILIZATION:.0%} or more; in small print utilizations, medians of {result['rounds']} "
        f"rounds of {result['steps']} steps. Random resized crop to 224, flip, normalize. Not a result of MLPerf."
    )
    reasons = "".join(f"\nLeft out: {name}: {reason}." for name, reason in left_out.items())
    return "\n".join([*lines, "", f"{facts} {provenance(result)}{reasons}"])


def _fed_cell(rounds: Sequence[dict[str, float]]) -> str:
    count, medians = fed(rounds)
    shown = {number: f"{number}: {medians[number]:.0%}" for number in (count, count + 1) if number in medians}
    return f"{count or 'less than 1'} <sub>{', '.join(shown.values())}</sub>"


def draw_random(result: dict[str, Any]) -> str:
    """Draw images per second with the landscape's dataset RANDOM."""
    loaders = list(dict.fromkeys(name for run in result["runs"] for name in run["laps"]))
    lines = [row(["workers, batch", *loaders]), rule(len(loaders))]
    for run in result["runs"]:
        laps = {name: [Lap(**lap) for lap in listed] for name, listed in run["laps"].items()}
        rates = {name: spread([lap.images_per_second for lap in its_laps]) for name, its_laps in laps.items()}
        lines.append(row([f"{run['workers']}, {run['batch_size']}", *(rates.get(name, "") for name in loaders)]))
    facts = f"images/s of {result['images']:,} images of noise, 250 × 250; {result['rounds']} epochs in alternation."
    return "\n".join([*lines, "", f"{facts} {provenance(result)}"])


def draw_imread(result: dict[str, Any]) -> str:
    """Draw images per second of decoders alone."""
    laps = {name: [Lap(**lap) for lap in its_laps] for name, its_laps in result["decoders"].items()}
    lines = [row(["decoder", "images/s", "× gpubeton"]), rule(2)]
    for name, its_laps in laps.items():
        rates = spread([lap.images_per_second for lap in its_laps])
        lines.append(
            row([f"{name} {result['versions'][name]}", rates, spread(ratios(its_laps, laps["gpubeton"]), "{:.2f}")])
        )
    corpus = result["corpus"]
    photos = f"{corpus['images']:,} photos of {corpus['image_bytes'] / corpus['images'] / 1000:.0f} kB"
    return "\n".join([*lines, "", f"{photos}, in memory; one thread; {result['runs']} runs. {provenance(result)}"])


def draw_machines(results: Path) -> str:
    """Draw the newest comparison of each machine, ours and those that others sent."""
    newest: dict[tuple[str, int], dict[str, Any]] = {}
    for path in [*results.glob("*-compare-*.json"), *results.glob("sent/*.json")]:
        result = json.loads(path.read_text())
        key = result["machine"]["cpu"], result["machine"]["cores"]
        if result["kind"] == "compare" and result["made"] > newest.get(key, {"made": ""})["made"]:
            newest[key] = {**result, "sent": path.parent != results}
    if not newest:
        return "Not measured yet."
    heading = ["machine", "cores", "photos", "images/s", "× DataLoader", "× FFCV", "gpubeton"]
    lines = [row(heading), row(["---", "---:", "---", *["---:"] * 3, "---"])]
    for key, result in sorted(newest.items()):
        for race in result["races"]:
            laps = {name: [Lap(**lap) for lap in its["laps"]] for name, its in race["contenders"].items()}
            if (ours := laps.get("gpubeton, area")) is None:
                continue
            others = (laps.get(name) for name in ("PyTorch DataLoader, Pillow", "FFCV"))
            beside = [f"{median(ratios(ours, other)):.1f}" if other else "" for other in others]
            version = f"{result['gpubeton']['version']} at {result['gpubeton']['commit'][:9]}, {result['made'][:10]}"
            corpus = race["corpus"]
            photos = f"{_STORED[race['storage']]}, {corpus['image_bytes'] / corpus['images'] / 1000:.0f} kB"
            cells = [key[0], str(key[1]), photos, f"{median_rate(ours):,.0f}", *beside, version]
            lines.append(row([*cells[:-1], f"{cells[-1]}{', sent' if result['sent'] else ''}"]))
    return "\n".join(lines)
