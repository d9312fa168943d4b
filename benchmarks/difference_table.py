"""The table of `benchmarks.differences`: how far each step is from its definition, from torchvision and from Pillow."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.markdown import row

__all__ = ["draw_cell", "draw_differences"]

_HEADINGS = {"float64": "exact, rounded", "torchvision": "torchvision v2", "Pillow": "Pillow"}


def draw_differences(result: dict[str, Any]) -> str:
    """Draw a row for each step: the largest difference, the mean one, and the share of equal values."""
    lines = [row(["step", "settings", *_HEADINGS.values()]), row(["---", "---", *["---:"] * len(_HEADINGS)])]
    for step in result["steps"]:
        cells = [draw_cell(step["beside"].get(peer)) for peer in _HEADINGS]
        lines.append(row([step["name"], step["settings"], *cells]))
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    facts = f"{result['photos']} photos of {result['side']} × {result['side']}"
    own = f"gpubeton {result['gpubeton']['version']} at {result['gpubeton']['commit']}"
    return "\n".join([*lines, "", f"{facts}. {result['made'][:10]}; {versions}; {own}."])


def draw_cell(difference: dict[str, float] | None) -> str:
    """Draw the largest difference, the mean one, and the share of equal values."""
    if difference is None:
        return ""
    if difference["largest"] == 0:
        return "equal"
    # Rounded down: not all of them are equal.
    share = math.floor(difference["equal"] * 10_000) / 100
    return f"{difference['largest']:.0f} · {difference['mean']:.4f} · {share:.2f} %"
