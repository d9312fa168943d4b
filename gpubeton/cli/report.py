"""The reports of ``gpubeton doctor`` and ``gpubeton bench`` as HTML, from the same values as the tables."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import gpubeton
from gpubeton.cli.advice import stage_limits
from gpubeton.cli.machine_facts import machine_facts
from gpubeton.cli.screen import printable, size_text
from gpubeton.cli.timeline import ACTIVITIES
from gpubeton.loader.stats import time_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpubeton.cli.advice import LoopFinding, Measurements
    from gpubeton.cli.bench import Rate
    from gpubeton.cli.timeline import Span, Timeline
    from gpubeton.loader import LoaderStats

# Arguments of macros of report.html: the rectangles of a figure, and a row of them.
Box = tuple[str, str, float, float, float, float]
Lane = tuple[str, str, str, list[Box]]
Section = tuple[str, str, Any]  # heading, macro, and its argument

_STEP, _WORKERS, _THREAD, _READING = "training step", "workers: decode, augment", "loader's thread", "reading"
# The part that a bottleneck, by its name, is in.
_LIMITS = {"step": _STEP, "workers": _WORKERS, "pages": _WORKERS, "thread": _THREAD, "reading": _READING}
_WORK = {"decode": "decodes", "augment": "augments", "blocked": "busy, but blocked"}  # by colors of report.css
# The color of an activity, where it has another name.
_COLORS = {"receive": "copy", "submit": "plan", "decode": "wait", "coming": "read", "workers": "decode"}


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
    from gpubeton.cli.bench import RATE_HEADINGS, limit_text, slowest_part

    parts = [(rate.name, rate.images_per_second or rate.images_per_cpu_second or 0.0) for rate in rates]
    limit = {"text": limit_text(rates), "gain": "", "stats": None, **_paces(parts, slowest_part(rates))}
    rows = [(rate.name, *rate.cells, rate.note) for rate in rates]
    sections: list[Section] = [
        ("Time per image of each part", "verdict", limit),
        ("The rates", "rates", {"headings": ("part", *RATE_HEADINGS, "how"), "rows": rows}),
    ]
    run = next((rate.run for rate in rates if rate.run is not None), None)
    if run is not None:
        sections += [
            ("Where the time goes, end to end", "times", _times(run.stats, 0.0)),
            ("Timeline, end to end", "timeline", _timeline(run.timeline, run.stats.num_workers, 0.0)),
        ]
    sections.append(("The machine", "machine", {"facts": machine_facts(), "places": ()}))
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
    stats, limits, augment = measured.stats, stage_limits(measured.stats), measured.augment_share or 0.0
    parts = [(_STEP, limits.step), (_WORKERS, limits.workers), (_THREAD, limits.thread), (_READING, limits.reading)]
    limit, paces = findings[0], _paces(parts, _LIMITS.get(findings[0].name, ""))
    advice, notices = ([finding for finding in findings if finding.weight == word] for word in ("advice", "notice"))
    nothing = "Nothing: no change would make this loop faster."
    return [
        ("What limits the loop", "verdict", {"text": limit.text, "gain": limit.gain_text, "stats": stats, **paces}),
        ("What to change", "findings", {"findings": advice, "nothing": nothing}),
        ("Where the time goes", "times", _times(stats, augment)),
        ("Timeline", "timeline", _timeline(measured.timeline, stats.num_workers, augment)),
        ("Worth knowing", "findings", {"findings": notices, "nothing": "Nothing else was found."}),
        ("The machine", "machine", {"facts": machine_facts(measured.machine, measured.gpu), "places": measured.places}),
    ]


def _paces(parts: Sequence[tuple[str, float]], limiting: str) -> dict[str, Any]:
    """Select the parts with a known rate in images/s."""
    return {"parts": [(name, rate) for name, rate in parts if rate and math.isfinite(rate)], "limiting": limiting}


def _times(stats: LoaderStats, augment: float) -> dict[str, Any]:
    total = stats.seconds or 1.0
    rows = [
        (party, activity, f"{seconds:.2f}", f"{min(1.0, seconds / threads / total):.0%}")
        for party, activity, seconds, threads in time_rows(stats)
    ]
    return {"stats": stats, "total": total, "augment": augment, "rows": rows}


def _timeline(timeline: Timeline | None, num_workers: int, augment: float) -> dict[str, Any] | None:
    """Describe the lanes of the loop, of the loader's thread and of the workers, and the life of each batch."""
    if timeline is None:
        return None
    total = timeline.seconds
    parties = {"Your loop": timeline.loop, "Loader's thread": timeline.thread}
    lanes = [_lane("lane", title, spans, total) for title, spans in parties.items()]
    lives = [_lane("life", f"Batch {life[0].batch}", life, total) for life in timeline.batches if life]
    if timeline.workers:
        lanes.append(_workers_lane(timeline, num_workers, augment))
    step = 10 ** math.floor(math.log10(total / 2)) if total > 0 else 1.0
    step *= next((factor for factor in (1, 2, 5) if total / (factor * step) <= 5), 10)
    ticks = [number * step for number in range(int(total / step) + 1)]
    rows = [
        (who, ACTIVITIES[activity], batch, f"{1000 * begun:.2f}", f"{1000 * (ended - begun):.2f}")
        for who, spans in parties.items()
        for activity, begun, ended, batch in spans
    ]
    return {
        "augment": augment,
        "colors": {color for *_, boxes in (*lanes, *lives) for color, *_ in boxes},
        "lanes": lanes,
        "lives": lives,
        # The last label would pass the right edge.
        "ticks": [(tick / total, _duration(tick)) for tick in ticks if tick < 0.9 * total],
        "num_batches": len(timeline.batches),
        "rows": rows,
    }


def _lane(kind: str, title: str, spans: Sequence[Span], total: float) -> Lane:
    boxes: list[Box] = []
    seconds = dict.fromkeys([span.activity for span in spans], 0.0)
    for activity, begun, ended, batch in spans:
        seconds[activity] += ended - begun
        text = f"batch {batch}: {ACTIVITIES[activity]}, {_duration(ended - begun)}"
        boxes.append((_COLORS.get(activity, activity), text, begun / total, (ended - begun) / total, 0.0, 1.0))
    words = ", ".join(f"{ACTIVITIES[activity]} {spent / total:.0%}" for activity, spent in seconds.items())
    return kind, title, words, boxes


def _workers_lane(timeline: Timeline, num_workers: int, augment: float) -> Lane:
    boxes: list[Box] = []
    busy, total = 0.0, timeline.seconds
    for begun, ended, computing, blocked in timeline.workers:
        low, left, width = 0.0, begun / total, (ended - begun) / total
        busy += (computing + blocked) * (ended - begun)
        shares = computing * (1 - augment), computing * augment, blocked
        for (color, words), share in zip(_WORK.items(), shares, strict=True):
            if share > 0:
                boxes.append((color, f"workers: {words} {share:.0%} of their time", left, width, low, share))
            low += share
    return "area", f"Workers ({num_workers})", f"busy {busy / total:.0%} of the time", boxes


def _duration(seconds: float) -> str:
    """Format a time with three digits or as a whole number: "12.3 ms", "1,000 µs"."""
    factor, unit = (1.0, "s") if seconds >= 1 or seconds == 0 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    value = seconds * factor
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
