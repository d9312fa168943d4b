"""Timeline: when each stage of some batches of an epoch began and ended, from the recorded intervals."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton._engine.timing import StageTimers

# As many batches are shown: more could not be distinguished.
_SHOWN = 12


class Span(NamedTuple):
    """An interval, in seconds since the beginning of the timeline."""

    activity: str  # a key of `ACTIVITIES`
    begun: float
    ended: float
    batch: int  # number in the epoch; -1 if it belongs to no batch


class WorkerSpan(NamedTuple):
    """What the CPU's workers did in an interval, each as a share of their time, 0 to 1."""

    begun: float
    ended: float
    computing: float
    blocked: float  # busy, but without a core or a page of the file


ACTIVITIES = {
    "plan": "decides crops and other draws",
    "read": "waits for bytes of the file",
    "submit": "hands a batch to the workers",
    "decode": "waits for decoding and augmenting",
    "copy": "labels, other operations, copies",
    "wait": "waits for a batch",
    "receive": "receives a batch",
    "step": "the training step",
    "coming": "bytes on their way, or queued",
    "workers": "decoded and augmented",
    "ready": "ready, before the loop takes it",
}
"""What a span can be: of the loader's thread, of the loop, then of a batch."""


@dataclass(frozen=True)
class Timeline:
    """Some consecutive batches of an epoch, when it ran steadily."""

    seconds: float
    loop: tuple[Span, ...]
    thread: tuple[Span, ...]
    workers: tuple[WorkerSpan, ...]
    batches: tuple[tuple[Span, ...], ...]  # the life of each batch

    @classmethod
    def of_longest(cls, epochs: Sequence[StageTimers], num_workers: int) -> Timeline | None:
        """Cut the middle out of the epoch with the most batches; None if fewer than two were recorded."""
        stages = max(epochs, key=lambda each: len(each.handover.spans or ()))
        received, waits = stages.handover.spans or [], stages.waits or []
        count = min(len(received), len(waits))
        if count < 2:
            return None
        first = max(0, (count - _SHOWN) // 2)
        last = min(count, first + _SHOWN) - 1
        begin, end = waits[first][0], received[last][1]
        loop = [span for number in range(first, last + 1) for span in _loop_spans(stages, number)]
        names = {"plan": "plan", "read": "read", "submit": "submit", "decode": "decode", "tail": "copy"}
        thread = [
            Span(activity, begun, ended, number)
            for name, activity in names.items()
            for number, (begun, ended) in enumerate(getattr(stages, name).spans or ())
        ]
        batches = [_life(stages, number) for number in range(first, last + 1)]
        return cls(
            end - begin,
            _cut(loop, begin, end),
            _cut(sorted(thread, key=lambda span: span.begun), begin, end),
            _worker_spans(stages, num_workers, begin, end),
            tuple(_cut(life, begin, end) for life in batches),
        )


def _loop_spans(stages: StageTimers, number: int) -> list[Span]:
    waits, received = stages.waits or [], stages.handover.spans or []
    spans = [Span("wait", *waits[number], number), Span("receive", *received[number], number)]
    if number + 1 < len(waits):
        spans.append(Span("step", received[number][1], waits[number + 1][0], number))
    return spans


def _life(stages: StageTimers, number: int) -> list[Span]:
    """Return the spans of a batch, each from the end of the one before it."""
    timers = (stages.plan, stages.read, stages.submit, stages.decode, stages.tail)
    spans = [(timer.spans or [])[number : number + 1] for timer in timers]
    if not all(spans):
        return []
    (plan,), (read,), (submit,), (decode,), (tail,) = spans
    receive, *rest = [span for span in _loop_spans(stages, number) if span.activity != "wait"]
    return [
        Span("plan", *plan, number),
        Span("coming", plan[1], read[1], number),
        Span("submit", *submit, number),
        Span("workers", submit[1], decode[1], number),
        Span("copy", *tail, number),
        Span("ready", tail[1], receive.begun, number),
        receive,
        *rest,
    ]


def _cut(spans: Sequence[Span], begin: float, end: float) -> tuple[Span, ...]:
    """Keep what lies between two times, and count from the first."""
    inside = [span for span in spans if span.ended > begin and span.begun < end and span.ended > span.begun]
    return tuple(
        span._replace(begun=max(span.begun, begin) - begin, ended=min(span.ended, end) - begin) for span in inside
    )


def _worker_spans(stages: StageTimers, num_workers: int, begin: float, end: float) -> tuple[WorkerSpan, ...]:
    """Return what the workers did between one batch and the next, from their clocks."""
    usages, found = stages.usages or [], []
    pairs = [pair for pair in pairwise(usages) if pair[0][0] < end and pair[1][0] > begin]
    if not pairs or not num_workers:
        return ()
    # Processor time is counted at the end of a batch: its share is that of all intervals together.
    (_, first), (_, last) = pairs[0][0], pairs[-1][1]
    cpu, busy = last.cpu_seconds - first.cpu_seconds, last.busy_seconds - first.busy_seconds
    computing = min(1.0, cpu / busy) if busy > 0 else 0.0
    for (begun, before), (ended, after) in pairs:
        seconds = (ended - begun) * num_workers
        share = min(1.0, (after.busy_seconds - before.busy_seconds) / seconds) if seconds > 0 else 0.0
        times = max(begun, begin) - begin, min(ended, end) - begin
        found.append(WorkerSpan(*times, share * computing, share * (1 - computing)))
    return tuple(found)
