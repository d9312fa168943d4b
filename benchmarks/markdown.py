"""Parts of Markdown tables of results."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

__all__ = ["provenance", "row", "rule", "spread"]


def row(cells: Sequence[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def rule(numbers: int) -> str:
    """Return the row under the headings: a column of text, then columns of numbers."""
    return row(["---", *["---:"] * numbers])


def spread(values: Sequence[float], form: str = "{:,.0f}") -> str:
    """Format the median, with minimum and maximum in small print."""
    low, high = form.format(min(values)), form.format(max(values))
    return f"{form.format(statistics.median(values))} <sub>{low}–{high}</sub>"


def provenance(result: dict[str, Any]) -> str:
    """Return date, machine and commit of a result."""
    machine, date = result["machine"], result["made"][:10]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB, {machine['kernel']}"
    return f"{date}, {where}; gpubeton {result['gpubeton']['version']} at {result['gpubeton']['commit']}."
