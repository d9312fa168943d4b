"""The reports of ``gpubeton doctor`` and ``gpubeton bench`` as HTML, from the same values as the tables."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import gpubeton
from gpubeton.cli.html_page import facts, page, table, text
from gpubeton.cli.report_figures import pace_bars, stacked_bar, timeline_figure
from gpubeton.cli.screen import size_text
from gpubeton.diagnosis.advice import stage_limits
from gpubeton.diagnosis.machine_facts import machine_facts
from gpubeton.loader.stats import time_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpubeton.diagnosis import LoopFinding, Measurements
    from gpubeton.diagnosis.bench import Rate
    from gpubeton.diagnosis.timeline import Timeline
    from gpubeton.loader import LoaderStats

_STEP, _WORKERS, _THREAD, _READING = "training step", "workers: decode, augment", "loader's thread", "reading"
# The part that a bottleneck, by its name, is in.
_LIMITS = {"step": _STEP, "workers": _WORKERS, "pages": _WORKERS, "thread": _THREAD, "reading": _READING}
_NO_TIMELINE = "There is no timeline: intervals are recorded where the command runs the loop itself (FILE or --loader)."


def write_doctor_report(path: Path, results: Sequence[tuple[Measurements, tuple[LoopFinding, ...]]]) -> None:
    """Write what ``gpubeton doctor`` shows, with figures."""
    sections = []
    for measured, findings in results:
        files = ", ".join(measured.facts.files)
        sections += [
            (title if len(results) == 1 else f"{title}: {files}", content)
            for title, content in _loop_sections(measured, findings)
        ]
    if not results:
        sections.append(("What limits the loop", "<p>No statistics of a loader were written.</p>\n"))
    heading = ", ".join(results[0][0].facts.files) if len(results) == 1 else f"{len(results)} loaders"
    subtitle = results[0][0].loop if len(results) == 1 else ""
    _write(path, "gpubeton doctor", heading, subtitle, sections)


def write_bench_report(path: Path, file: str, rates: Sequence[Rate]) -> None:
    """Write what ``gpubeton bench`` shows, with figures."""
    from gpubeton.diagnosis.bench import RATE_HEADINGS, limit_text, slowest_part

    parts = [(rate.name, rate.images_per_second or rate.images_per_cpu_second or 0.0) for rate in rates]
    run = next((rate.run for rate in rates if rate.run is not None), None)
    rows = [(rate.name, *rate.cells, rate.note) for rate in rates]
    sections = [
        (
            "Time per image of each part",
            f'<p class="verdict">{text(limit_text(rates))}</p>\n' + pace_bars(parts, slowest_part(rates)),
        ),
        ("The rates", table("Rates of the parts", ("part", *RATE_HEADINGS, "how"), rows, numbers=(1, 2, 3))),
    ]
    if run is not None:
        sections += [
            ("Where the time goes, end to end", _times(run.stats, None)),
            ("Timeline, end to end", _timeline(run.timeline, run.stats.num_workers, None)),
        ]
    _write(path, "gpubeton bench", file, "", [*sections, ("The machine", facts(machine_facts()))])


def _write(path: Path, kind: str, heading: str, subtitle: str, sections: Sequence[tuple[str, str]]) -> None:
    footer = f"{kind} {gpubeton.__version__}, {time.strftime('%Y-%m-%d %H:%M')}. This file loads nothing else."
    path.write_text(page(kind, heading, subtitle, sections, footer), encoding="utf-8")


def _loop_sections(measured: Measurements, findings: Sequence[LoopFinding]) -> list[tuple[str, str]]:
    stats, limits = measured.stats, stage_limits(measured.stats)
    advice = [finding for finding in findings if finding.weight == "advice"]
    notices = [finding for finding in findings if finding.weight == "notice"]
    parts = [(_STEP, limits.step), (_WORKERS, limits.workers), (_THREAD, limits.thread), (_READING, limits.reading)]
    places = [
        (
            place.path,
            size_text(place.size),
            "network" if place.is_network else place.file_system,
            "" if place.resident_share is None else f"{place.resident_share:.0%}",
        )
        for place in measured.places
    ]
    files = table("Files", ("file", "size", "file system", "in memory at first"), places, numbers=(1, 3))
    return [
        (
            "What limits the loop",
            _verdict(stats, findings[0])
            + "<h3>Time per image of each part, alone</h3>\n"
            + pace_bars(parts, _LIMITS.get(findings[0].name, "")),
        ),
        ("What to change", _findings(advice, "Nothing: no change would make this loop faster.")),
        ("Where the time goes", _times(stats, measured.augment_share)),
        ("Timeline", _timeline(measured.timeline, stats.num_workers, measured.augment_share)),
        ("Worth knowing", _findings(notices, "Nothing else was found.")),
        ("The machine", facts(machine_facts(measured.machine, measured.gpu)) + (files if places else "")),
    ]


def _verdict(stats: LoaderStats, bottleneck: LoopFinding) -> str:
    numbers = {
        "images/s": f"{stats.images_per_second:,.0f}",
        "of the time waiting": f"{stats.waiting_share:.0%}",
        "of the workers' time busy": f"{stats.worker_share:.0%}",
        "batches watched": f"{stats.batches:,}",
    }
    tiles = "".join(f"<li><b>{text(value)}</b> {text(name)}</li>" for name, value in numbers.items())
    gain = f" <strong>{text(bottleneck.gain_text)}</strong>" if bottleneck.gain_text else ""
    return f'<p class="verdict">{text(bottleneck.text)}{gain}</p>\n<ul class="tiles">{tiles}</ul>\n'


def _findings(findings: Sequence[LoopFinding], nothing: str) -> str:
    if not findings:
        return f"<p>{text(nothing)}</p>\n"
    most = max((finding.gain or 1.0 for finding in findings), default=1.0)
    items = []
    for finding in findings:
        change = f'<p class="change">{text(finding.change)}</p>' if finding.change else ""
        gain = ""
        if finding.gain_text:
            width = 100 * (finding.gain or 1.0) / most
            bar = f'<span class="track"><span class="fill" style="width:{width:.2f}%"></span></span>'
            gain = f'<p class="gain">{bar}<b>{text(finding.gain_text)}</b></p>'
        items.append(f"<li><p>{text(finding.text)}</p>{change}{gain}</li>\n")
    return f'<ol class="findings">{"".join(items)}</ol>\n'


def _times(stats: LoaderStats, augment_share: float | None) -> str:
    """Draw one bar for each of the parties that work at the same time, and the table of the terminal."""
    total = stats.seconds or 1.0
    augment = augment_share or 0.0
    loop = [
        ("wait", "waits", stats.waiting_seconds / total),
        ("copy", "receives", stats.handover_seconds / total),
        ("step", "training step", stats.step_seconds / total),
    ]
    thread = [
        ("plan", "plans, hands over", (stats.plan_seconds + stats.submit_seconds) / total),
        ("read", "waits for the file", stats.read_seconds / total),
        ("wait", "waits for decoding", stats.decode_seconds / total),
        ("copy", "labels, other operations, copies", stats.tail_seconds / total),
        ("ready", "is ahead", stats.ahead_seconds / total),
    ]
    bars = stacked_bar("Your loop", loop) + stacked_bar("Loader's thread", thread)
    if stats.num_workers:
        shared = total * stats.num_workers
        computing = (stats.worker_seconds - stats.stalled_seconds) / shared
        workers = [
            ("decode", "decode" if augment else "decode and augment", computing * (1 - augment)),
            ("augment", "augment", computing * augment),
            ("blocked", "busy, but no core or page", stats.stalled_seconds / shared),
        ]
        bars += stacked_bar(f"Workers ({stats.num_workers})", workers)
    rows = [
        (party, activity, f"{seconds:.2f}", f"{min(1.0, seconds / threads / total):.0%}")
        for party, activity, seconds, threads in time_rows(stats)
    ]
    return (
        f"<div class='bars'>{bars}</div>\n"
        "<p class='muted'>The three work at the same time: only the times of one add up.</p>\n"
        + table("Seconds and shares", ("who", "what", "seconds", "share"), rows, numbers=(2, 3))
    )


def _timeline(timeline: Timeline | None, num_workers: int, augment_share: float | None) -> str:
    if timeline is None:
        return f"<p>{text(_NO_TIMELINE)}</p>\n"
    intro = f"{len(timeline.batches)} batches from the middle of an epoch, as they were measured."
    if augment_share:
        intro += " The share of augmenting in the workers' time is an average, measured separately."
    return f"<p>{text(intro)}</p>\n{timeline_figure(timeline, num_workers, augment_share)}"
