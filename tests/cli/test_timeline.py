from __future__ import annotations

import itertools

import pytest

from gpubeton._engine.timing import StageTimers
from gpubeton._plan.image_job import Usage
from gpubeton.cli.runs import run_loader
from gpubeton.cli.timeline import ACTIVITIES, Timeline
from tests.cli.test_bench_and_doctor import labels
from tests.small_files import write_photos


def stages(count: int, *, is_recorded: bool = True) -> StageTimers:
    """Batch n is planned in second n, read, submitted, decoded and finished in the next; the loop takes it at n + 4."""
    timers = StageTimers(is_recorded=is_recorded)
    if not is_recorded:
        return timers
    for number in range(count):
        timers.plan.spans.append((number, number + 0.2))
        timers.read.spans.append((number + 1.0, number + 1.1))
        timers.submit.spans.append((number + 1.1, number + 1.2))
        timers.decode.spans.append((number + 2.5, number + 3.0))
        timers.tail.spans.append((number + 3.0, number + 3.3))
        timers.waits.append((number + 3.6, number + 4.0))
        timers.handover.spans.append((number + 4.0, number + 4.1))
        timers.usages.append((number + 3.0, Usage(1.5 * number, 0.5 * number)))
    return timers


def test_the_middle_of_the_longest_epoch_is_shown():
    timeline = Timeline.of_longest([stages(3), stages(30), stages(5)], 2)
    assert [life[-1].batch for life in timeline.batches] == list(range(9, 21))
    assert timeline.seconds == pytest.approx(11 + 0.5)  # from the first wait until the last batch is received
    assert timeline.loop[0] == ("wait", 0.0, pytest.approx(0.4), 9)


def test_time_before_and_after_is_cut_off():
    timeline = Timeline.of_longest([stages(30)], 2)
    for spans in (timeline.loop, timeline.thread, timeline.workers, *timeline.batches):
        assert spans
        assert all(0 <= span.begun < span.ended <= timeline.seconds + 1e-9 for span in spans)


def test_a_batch_is_planned_comes_and_is_decoded_one_after_the_other():
    life = Timeline.of_longest([stages(30)], 2).batches[-4]
    names = ["plan", "coming", "submit", "workers", "copy", "ready", "receive", "step"]
    assert [span.activity for span in life] == names
    takes = [0.2, 0.9, 0.1, 1.8, 0.3, 0.7, 0.1, 0.5]
    assert [span.ended - span.begun for span in life] == pytest.approx(takes)
    assert {span.activity for span in life} <= ACTIVITIES.keys()


def test_workers_are_shown_by_their_share_of_time():
    for span in Timeline.of_longest([stages(30)], 2).workers:
        # 1.5 s busy, 0.5 s of it computing, in 2 s of two threads
        assert (span.computing, span.blocked) == (pytest.approx(0.25), pytest.approx(0.5))
    assert Timeline.of_longest([stages(30)], 0).workers == ()


def test_a_loop_without_batches_has_no_timeline():
    assert Timeline.of_longest([stages(1)], 2) is None
    assert Timeline.of_longest([stages(9, is_recorded=False)], 2) is None


def test_intervals_of_a_loader_follow_each_other(tmp_path):
    loader = labels(write_photos(tmp_path / "photos.beton", 32))
    timeline = run_loader(loader, seconds=0.1, is_recorded=True).timeline
    assert len(timeline.batches) == 8
    for lane in (timeline.loop, timeline.thread):
        assert all(before.ended <= after.begun + 1e-9 for before, after in itertools.pairwise(lane))
    for life in timeline.batches:
        assert [span.begun for span in life] == sorted(span.begun for span in life)
        assert len({span.batch for span in life}) == 1
    assert run_loader(loader, seconds=0.01).timeline is None
