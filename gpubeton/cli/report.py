"""The reports of ``gpubeton doctor`` and ``gpubeton bench`` as HTML, from the same values as the tables."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import gpubeton
from gpubeton._machine import read_machine
from gpubeton.cli.advice import stage_limits
from gpubeton.cli.environment import machine_facts
from gpubeton.cli.loops import RATE_HEADINGS, limit_text, slowest_part
from gpubeton.cli.screen import printable, size_text
from gpubeton.loader.gpus import read_gpu
from gpubeton.loader.stats import time_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpubeton.cli.advice import LoopFinding, Measurements
    from gpubeton.cli.loops import Rate
    from gpubeton.loader import LoaderStats

Section = tuple[str, str, Any]  # heading, macro, and its argument

#: Names of the stages that limit a loop.
_STAGES = {
    "step": "training step", "workers": "workers: decode, augment", "thread": "loader's thread", "reading": "reading"
}  # fmt: skip


def write_doctor_report(path: Path, results: Sequence[tuple[Measurements, tuple[LoopFinding, ...]]]) -> None:
    """Write what ``gpubeton doctor`` shows, with figures."""
    names = [", ".join(measured.facts.files) for measured, _ in results]
    is_single = len(results) == 1
    sections = [
        (title if is_single else f"{title}: {name}", macro, content)
        for name, (measured, findings) in zip(names, results, strict=True)
        for title, macro, content in _loop_sections(measured, findings)
    ] or [("What limits the loop", "paragraph", "No statistics of a loader were written.")]
    heading = names[0] if is_single else f"{len(results)} loaders"
    _write(path, "gpubeton doctor", heading, results[0][0].loop if is_single else "", sections)


def write_bench_report(path: Path, file: str, rates: Sequence[Rate]) -> None:
    """Write what ``gpubeton bench`` shows, with figures."""
    parts = [(rate.name, rate.images_per_second or rate.images_per_cpu_second or 0.0) for rate in rates]
    limit = {"text": limit_text(rates), "gain": "", "stats": None, **_paces(parts, slowest_part(rates))}
    rows = [(rate.name, *rate.cells, rate.note) for rate in rates]
    sections: list[Section] = [
        ("Time per image of each part", "verdict", limit),
        ("The rates", "rates", {"headings": ("part", *RATE_HEADINGS, "how"), "rows": rows}),
    ]
    run = next((rate.run for rate in rates if rate.run is not None), None)
    if run is not None:
        sections.append(("Where the time goes, end to end", "times", _times(run.stats)))
    facts = machine_facts(read_machine(), read_gpu())
    sections.append(("The machine", "machine", {"facts": facts, "places": ()}))
    _write(path, "gpubeton bench", file, "", sections)


def _write(path: Path, kind: str, heading: str, subtitle: str, sections: Sequence[Section]) -> None:
    # Names of files may contain anything: all text is escaped, also control characters.
    environment = Environment(
        loader=PackageLoader("gpubeton.cli", "."),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(duration=_duration, percent="{:.0%}".format, size=size_text)
    footer = f"{kind} {gpubeton.__version__}, {time.strftime('%Y-%m-%d %H:%M')}. This file loads nothing else."
    page = environment.get_template("report.html").render(
        kind=kind, heading=heading, subtitle=subtitle, sections=sections, footer=footer
    )
    path.write_text(page, encoding="utf-8")


def _loop_sections(measured: Measurements, findings: Sequence[LoopFinding]) -> list[Section]:
    stats, limit = measured.stats, findings[0]
    parts = [(_STAGES[stage], rate) for stage, rate in stage_limits(stats).items()]
    paces = _paces(parts, _STAGES.get("workers" if limit.name == "pages" else limit.name, ""))
    advice, notices = ([finding for finding in findings if finding.weight == word] for word in ("advice", "notice"))
    nothing = "Nothing: no change would make this loop faster."
    return [
        ("What limits the loop", "verdict", {"text": limit.text, "gain": limit.gain_text, "stats": stats, **paces}),
        ("What to change", "findings", {"findings": advice, "nothing": nothing}),
        ("Where the time goes", "times", _times(stats)),
        ("Worth knowing", "findings", {"findings": notices, "nothing": "Nothing else was found."}),
        ("The machine", "machine", {"facts": machine_facts(measured.machine, measured.gpu), "places": measured.places}),
    ]


def _paces(parts: Sequence[tuple[str, float]], limiting: str) -> dict[str, Any]:
    """Select the parts with a known rate in images/s."""
    return {"parts": [(name, rate) for name, rate in parts if rate and math.isfinite(rate)], "limiting": limiting}


def _times(stats: LoaderStats) -> dict[str, Any]:
    total = stats.seconds or 1.0
    rows = [
        (party, activity, f"{seconds:.2f}", f"{min(1.0, seconds / threads / total):.0%}")
        for party, activity, seconds, threads in time_rows(stats)
    ]
    return {"stats": stats, "total": total, "rows": rows}


def _duration(seconds: float) -> str:
    """Format a time with three digits or as a whole number: "12.3 ms", "1,000 µs"."""
    factor, unit = (1.0, "s") if seconds >= 1 or seconds == 0 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    value = seconds * factor
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
