"""Figures of the reports, as HTML whose colors and hatches are those of ``report.css``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpubeton.cli.html_page import table, text
from gpubeton.diagnosis.timeline import ACTIVITIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpubeton.diagnosis.timeline import Span, Timeline

_LEGEND = {
    "wait": "waits",
    "step": "training step",
    "read": "reads, or queued",
    "decode": "decodes",
    "augment": "augments",
    "copy": "labels, other operations, copies, receiving",
    "plan": "plans, hands over",
    "blocked": "busy, but blocked",
    "ready": "ready",
}
# The color of each activity: a key of the legend.
_COLORS = {
    **{name: name for name in ("plan", "read", "copy", "wait", "step", "ready")},
    "receive": "copy",
    "submit": "plan",
    "decode": "wait",
    "coming": "read",
    "workers": "decode",
}


def legend(colors: Iterable[str]) -> str:
    """List what the colors mean."""
    wanted = set(colors)
    items = "".join(
        f'<li><span class="key {color}"></span>{text(name)}</li>' for color, name in _LEGEND.items() if color in wanted
    )
    return f'<ul class="legend" aria-label="Colors">{items}</ul>\n'


def stacked_bar(title: str, parts: Sequence[tuple[str, str, float]]) -> str:
    """Draw shares of a whole; each part has a color, its activity and its share."""
    shown = [(color, name, share) for color, name, share in parts if share >= 0.0005]
    rectangles, left = [], 0.0
    for color, name, share in shown:
        rectangles.append(_rectangle(color, left, share, f"{name}: {share:.1%}"))
        left += share
    words = ", ".join(f"{name} {share:.0%}" for _, name, share in shown)
    items = "".join(
        f'<li><span class="key {color}"></span>{text(name)} <b>{share:.0%}</b></li>' for color, name, share in shown
    )
    return _lane(title, "".join(rectangles), words, "bar") + f'<ul class="legend">{items}</ul>\n'


def pace_bars(parts: Sequence[tuple[str, float]], limiting: str) -> str:
    """Draw the time per image of each part, by its rate in images/s; the part that limits is marked."""
    known = [(name, rate) for name, rate in parts if rate and math.isfinite(rate)]
    if not known:
        return ""
    slowest = min(rate for _, rate in known)
    items = []
    for name, rate in known:
        mark = ' <span class="limit">the limit</span>' if name == limiting else ""
        width = max(0.4, 100 * slowest / rate)
        times = f'{text(_duration(1 / rate))} per image<span class="comma">, </span>{rate:,.0f} images/s'
        items.append(
            f'<li class="pace{" limiting" if mark else ""}"><span class="name">{text(name)}{mark}</span>'
            f'<span class="track"><span class="fill" style="width:{width:.2f}%"></span></span>'
            f'<span class="value">{times}</span></li>'
        )
    return '<ul class="paces">' + "".join(items) + "</ul>\n"


def timeline_figure(timeline: Timeline, num_workers: int, augment_share: float | None) -> str:
    """Draw the lanes of the loop, of the loader's thread and of the workers, the life of each batch, and a table."""
    total = timeline.seconds
    lanes = [("Your loop", timeline.loop), ("Loader's thread", timeline.thread)]
    drawn = [_lane(title, _spans(spans, total), _shares(spans, total), "lane") for title, spans in lanes]
    colors = {_COLORS[span.activity] for _, spans in lanes for span in spans}
    colors |= {_COLORS[span.activity] for life in timeline.batches for span in life}
    if timeline.workers:
        share = augment_share or 0.0
        bars, busy = [], 0.0
        for each in timeline.workers:
            low = 0.0
            computing = each.computing
            parts = {"decode": computing * (1 - share), "augment": computing * share, "blocked": each.blocked}
            busy += (each.computing + each.blocked) * (each.ended - each.begun)
            for color, height in parts.items():
                if height > 0:
                    title = f"workers: {_LEGEND[color]} {height:.0%} of their time"
                    begun, width = each.begun / total, (each.ended - each.begun) / total
                    bars.append(_rectangle(color, begun, width, title, low, height))
                    colors.add(color)
                low += height
        drawn.append(_lane(f"Workers ({num_workers})", "".join(bars), f"busy {busy / total:.0%} of the time", "area"))
    lives = [
        _lane(f"Batch {life[0].batch}", _spans(life, total), _shares(life, total), "life")
        for life in timeline.batches
        if life
    ]
    rows = [
        (
            who,
            ACTIVITIES[span.activity],
            span.batch,
            f"{1000 * span.begun:.2f}",
            f"{1000 * (span.ended - span.begun):.2f}",
        )
        for who, spans in lanes
        for span in spans
    ]
    listed = table(
        "Intervals of the timeline", ("who", "activity", "batch", "begins, ms", "takes, ms"), rows, numbers=(2, 3, 4)
    )
    return (
        f"{legend(colors)}<h3>At the same time</h3>\n<div class='timeline'>{''.join(drawn)}{_axis(total)}</div>\n"
        f"<h3>The life of each batch</h3>\n<div class='timeline lives'>{''.join(lives)}{_axis(total)}</div>\n"
        f"<details><summary>All {len(rows)} intervals as a table</summary>\n{listed}</details>\n"
    )


def _spans(spans: Sequence[Span], total: float) -> str:
    return "".join(
        _rectangle(
            _COLORS[span.activity],
            span.begun / total,
            (span.ended - span.begun) / total,
            f"batch {span.batch}: {ACTIVITIES[span.activity]}, {_duration(span.ended - span.begun)}",
        )
        for span in spans
    )


def _shares(spans: Sequence[Span], total: float) -> str:
    sums: dict[str, float] = {}
    for span in spans:
        sums[span.activity] = sums.get(span.activity, 0.0) + span.ended - span.begun
    return ", ".join(f"{ACTIVITIES[name]} {seconds / total:.0%}" for name, seconds in sums.items())


def _rectangle(color: str, left: float, width: float, title: str, low: float = 0.0, height: float = 1.0) -> str:
    """Draw a rectangle; its place and size are shares of the figure."""
    place = f"left:{100 * left:.3f}%;width:{100 * width:.3f}%"
    if height < 1:
        place += f";bottom:{100 * low:.1f}%;height:{100 * height:.1f}%"
    return f'<i class="{color}" style="{place}" title="{text(title)}"></i>'


def _lane(title: str, rectangles: str, words: str, kind: str) -> str:
    label = text(f"{title}: {words}")
    return (
        f'<div class="row {kind}"><span class="name">{text(title)}</span>'
        f'<div class="plot" role="img" aria-label="{label}">{rectangles}</div></div>\n'
    )


def _axis(total: float) -> str:
    """Draw times below lanes, at round numbers."""
    step = 10 ** math.floor(math.log10(total / 2)) if total > 0 else 1.0
    step *= next((factor for factor in (1, 2, 5) if total / (factor * step) <= 5), 10)
    # The last label would pass the right edge.
    ticks = [number * step for number in range(int(total / step) + 1) if number * step < 0.9 * total]
    places = "".join(f'<span style="left:{100 * tick / total:.2f}%">{text(_duration(tick))}</span>' for tick in ticks)
    empty = '<span class="name"></span>'
    return f'<div class="row axis" aria-hidden="true">{empty}<span class="ticks">{places}</span></div>\n'


def _duration(seconds: float) -> str:
    """Format a time with three digits or as a whole number: "12.3 ms", "1,000 µs"."""
    factor, unit = (1.0, "s") if seconds >= 1 or seconds == 0 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    value = seconds * factor
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
