"""The tables of orders: how well they mix, what mixtures cost, and what caches of hosts give."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from benchmarks.accuracy.equivalence import interval
from benchmarks.harness.timing import Lap, median_cpu
from benchmarks.markdown import provenance, row, rule, spread

__all__ = ["draw_hosts", "draw_label_pairs", "draw_mixing", "draw_mixture"]

_NAMES = {
    "sequential": "SEQUENTIAL",
    "quasi_random": "QUASI_RANDOM, 512 pages in use",
    "window, 1 stream of 16 pages": "WINDOW, 1 stream of 16 pages",
    "window": "WINDOW, 64 streams",
    "window, 64 virtual nodes": "WINDOW, 64 virtual nodes",
    "window, nodes": "WINDOW, 64 virtual nodes",
    "random": "RANDOM",
}


def draw_mixing(result: dict[str, Any]) -> str:
    """Draw how far batches are from the file, and what networks learn from them."""
    heading = ["order", "distance of a batch", "right, of the test", "beside RANDOM", "90 % interval"]
    lines, accuracy = [row(heading), rule(4)], result["accuracy"]
    for name, distance in sorted(result["distances"].items(), key=lambda item: -item[1]):
        cells = [""] * 3
        if name in accuracy:
            cells[0] = spread(accuracy[name], "{:.1f} %")
        if name in accuracy and name != "random":
            differences = [right - other for right, other in zip(accuracy[name], accuracy["random"], strict=False)]
            mean, low, high = interval(differences, differences)
            cells[1:] = f"{mean:+.2f}", f"{low:+.2f} to {high:+.2f}"
        lines.append(row([_NAMES[name], f"{distance:.3f}", *cells]))
    facts = (
        f"{len(accuracy['random'])} trainings with each order, {len(accuracy['sequential'])} with SEQUENTIAL, from the "
        f"same weights by seed; {result['train']:,} images, {result['epochs']} epochs, {result['test']:,} to test. "
        "Differences are in points, of pairs with the same seed."
    )
    return "\n".join([*lines, "", f"{facts} {provenance(result)}"])


def draw_label_pairs(result: dict[str, Any]) -> str:
    """Draw how many pairs of samples in a batch have the same label."""
    pairs: Mapping[str, Mapping[str, float]] = result["pairs"]
    heading = ["order", *pairs["random"]]
    lines = [row([_NAMES[name], *(f"{share:.2%}" for share in shares.values())]) for name, shares in pairs.items()]
    return "\n".join([row(heading), rule(len(heading) - 1), *lines, "", provenance(result)])


def draw_hosts(result: dict[str, Any]) -> str:
    """Draw the bytes that hosts ask for in each epoch, and the share that comes from their caches."""
    lines = [row(["order", "hosts", "first epoch", "second epoch", "third epoch"]), rule(4)]
    for (order, hosts), epochs in itertools.groupby(result["epochs"], lambda epoch: (epoch["order"], epoch["hosts"])):
        cells = []
        for epoch in epochs:
            sent, cached = sum(epoch["sent"]), sum(epoch["cached"])
            cells.append(f"{sent / 1e6:,.1f} MB, caches {cached / (cached + sent):.1%}")
        lines.append(row([f"`{order}`", str(hosts), *cells]))
    return "\n".join([*lines, "", provenance(result)])


def draw_mixture(result: dict[str, Any]) -> str:
    """Draw speed and requests of a mixture beside its files alone."""
    heading = ["", "images/s", "CPU s / 1000 images", "requests / 1000 images", "fetched / used", "× alone"]
    lines = [row(heading), rule(len(heading) - 1)]
    for name, seen in result["kinds"].items():
        laps = [Lap(*list(lap.values())[:3]) for lap in seen]
        cells = [spread([lap.images_per_second for lap in laps]), f"{median_cpu(laps):.3f}"]
        cells += [spread([lap["requests_per_1000"] for lap in seen], "{:.1f}")]
        cells += [spread([lap["fetched_per_used"] for lap in seen], "{:.3f}")]
        cells += [spread(result["ratios"], "{:.3f}") if name == "mixture" else "1"]
        lines.append(row([{"mixture": "the mixture", "alone": "its files, one after the other"}[name], *cells]))
    facts = (
        f"{result['images']:,} photos as JPEG in four files, {result['streams']} streams of {result['width']} pages "
        f"in all; {len(result['ratios'])} rounds in alternation."
    )
    return "\n".join([*lines, "", f"{facts} {provenance(result)}"])
