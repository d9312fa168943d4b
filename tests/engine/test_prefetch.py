from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import traceback
import weakref

import pytest

from gpubeton._engine import prefetch
from gpubeton._engine.prefetch import Prefetcher
from gpubeton.errors import LoaderClosedError
from tests.waiting import wait_until


class CountingPipeline:
    """Makes the numbers 0, 1, 2, ..., with planted faults."""

    def __init__(self, length, *, step=None, refusals=0):
        self.length = length
        self.step = step
        self.refusals = refusals
        self.num_started = 0
        self.num_collected = 0
        self.num_completed = 0
        self.was_closed = threading.Event()
        self.was_interrupted = threading.Event()

    @property
    def has_more(self):
        return self.num_started < self.length

    @property
    def num_in_flight(self):
        return self.num_started - self.num_collected

    def start(self, *, may_wait):
        # Waiting would hold up a batch that is in flight, or collected and not complete.
        assert not may_wait or self.num_started == self.num_completed
        if not may_wait and self.refusals:
            self.refusals -= 1
            return False
        self.num_started += 1
        return True

    def collect(self):
        self.num_collected += 1
        return self.num_collected - 1

    def complete(self, collected):
        if self.step is not None:
            self.step(collected)
        self.num_completed += 1
        return collected

    def interrupt(self):
        self.was_interrupted.set()

    def close(self):
        self.was_closed.set()


@pytest.fixture(autouse=True)
def own_threads(own_threads):
    """None is left."""
    yield own_threads
    gc.collect()
    wait_until(lambda: not own_threads())


@pytest.mark.parametrize("num_ahead", [1, 2, 3, 10])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_every_batch_arrives_once_and_in_order(length, num_ahead):
    pipeline = CountingPipeline(length)
    assert list(Prefetcher(pipeline, num_ahead)) == list(range(length))
    assert pipeline.was_closed.is_set()


def test_at_its_end_the_thread_is_gone_and_the_iterator_stays_there(own_threads):
    iterator = Prefetcher(CountingPipeline(1), 1)
    assert list(iterator) == [0]
    assert not own_threads()
    assert list(iterator) == []
    iterator.close()
    assert list(iterator) == []


@pytest.mark.parametrize("num_ahead", [1, 2, 5])
def test_no_more_than_num_ahead_batches_are_in_flight_or_ready(num_ahead):
    pipeline = CountingPipeline(100)
    iterator = Prefetcher(pipeline, num_ahead)
    for received in range(20):
        wait_until(lambda received=received: pipeline.num_started == received + num_ahead)
        time.sleep(0.002)
        assert pipeline.num_started == received + num_ahead
        assert next(iterator) == received
    iterator.close()


def test_a_thread_whose_batches_are_not_taken_rests():
    class Pipeline(CountingPipeline):
        num_looks = 0

        @property
        def has_more(self):
            self.num_looks += 1
            return super().has_more

    pipeline = Pipeline(100)
    iterator = Prefetcher(pipeline, 2)
    wait_until(lambda: pipeline.num_collected == 2)
    before = pipeline.num_looks
    time.sleep(0.05)
    assert pipeline.num_looks - before < 10
    iterator.close()


def test_a_batch_that_would_have_to_wait_does_not_hold_up_one_that_is_in_flight():
    # Batch 1 cannot start without waiting until batch 0 was received.
    pipeline = CountingPipeline(3, refusals=1)
    assert list(Prefetcher(pipeline, 3)) == [0, 1, 2]


def test_a_batch_that_has_to_wait_is_waited_for_where_nothing_is_in_flight():
    assert list(Prefetcher(CountingPipeline(3, refusals=sys.maxsize), 3)) == [0, 1, 2]


def test_an_error_in_the_thread_reaches_the_loop_after_the_batches_before_it():
    def step(number):
        if number == 2:
            raise KeyError("planted")

    iterator = Prefetcher(CountingPipeline(5, step=step), 3)
    assert [next(iterator), next(iterator)] == [0, 1]
    with pytest.raises(KeyError, match="planted") as caught:
        next(iterator)
    assert any(frame.name == "step" for frame in traceback.extract_tb(caught.value.__traceback__))
    assert list(iterator) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), MemoryError(), GeneratorExit()])
def test_even_an_error_that_is_no_exception_reaches_the_loop(error):
    def step(number):
        raise error

    with pytest.raises(type(error)):
        next(Prefetcher(CountingPipeline(1, step=step), 1))


def test_a_stop_iteration_of_an_operation_is_not_taken_for_the_end():
    def step(number):
        next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(Prefetcher(CountingPipeline(3, step=step), 1))


def test_an_error_while_starting_collecting_or_closing_reaches_the_loop():
    for method in ("start", "collect", "close"):
        pipeline = CountingPipeline(2)

        def fail(*args, method=method, **kwargs):
            raise OSError(method)

        setattr(pipeline, method, fail)
        with pytest.raises(OSError, match=method):
            list(Prefetcher(pipeline, 2))


def test_an_error_while_closing_does_not_hide_the_one_before_it():
    class Pipeline(CountingPipeline):
        def collect(self):
            raise ArithmeticError("first")

        def close(self):
            super().close()
            raise MemoryError("planted")

    pipeline = Pipeline(5)
    with pytest.raises(ArithmeticError, match="first"):
        next(Prefetcher(pipeline, 2))
    assert pipeline.was_closed.is_set()


def test_leaving_the_loop_early_closes_the_pipeline_at_once(own_threads, monkeypatch):
    monkeypatch.setattr(prefetch, "_PATIENCE_SECONDS", 600)
    pipeline = CountingPipeline(1000)
    for batch in Prefetcher(pipeline, 3):
        if batch == 4:
            break
    assert pipeline.was_closed.is_set()
    assert not own_threads()


def test_leaving_a_loop_of_another_thread_closes_the_pipeline_at_once(monkeypatch):
    class Pipeline(CountingPipeline):
        def close(self):
            time.sleep(0.05)  # longer than the thread of the loop takes, if it does not wait
            super().close()

    def loop():
        for _ in Prefetcher(pipeline, 3):
            break
        closed.append(pipeline.was_closed.is_set())

    monkeypatch.setattr(prefetch, "_PATIENCE_SECONDS", 600)
    pipeline, closed = Pipeline(1000), []
    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    assert closed == [True]


class Unclosable(CountingPipeline):
    """Fails when it is closed, as a GPU that does not answer."""

    def close(self):
        super().close()
        raise OSError("stuck")


@pytest.mark.parametrize("length", [0, 1000])
def test_an_error_that_was_never_raised_keeps_nothing(length, own_threads):
    pipeline = Unclosable(length)
    closed, alive = pipeline.was_closed, weakref.ref(pipeline)
    iterator = Prefetcher(pipeline, 1)
    if not length:
        closed.wait()
    iterator.close()
    del pipeline, iterator
    gc.collect()
    wait_until(lambda: not own_threads())
    gc.collect()
    assert closed.is_set()
    assert alive() is None


def test_deleting_the_iterator_closes_the_pipeline_even_if_nothing_was_received(monkeypatch):
    monkeypatch.setattr(prefetch, "_PATIENCE_SECONDS", 600)
    pipeline = CountingPipeline(1000)
    iterator = Prefetcher(pipeline, 3)
    del iterator
    assert pipeline.was_closed.is_set()


def test_an_iterator_in_a_cycle_that_is_collected_in_another_thread_closes_the_pipeline():
    pipeline = CountingPipeline(1000)
    cycle = [Prefetcher(pipeline, 3)]
    cycle.append(cycle)
    del cycle
    collector = threading.Thread(target=gc.collect)
    collector.start()
    collector.join()
    wait_until(pipeline.was_closed.is_set)


def test_an_iterator_that_its_own_thread_collects_does_not_wait_for_itself():
    reached, go = threading.Event(), threading.Event()

    def step(number):
        if number == 1:
            reached.set()
            go.wait()
            gc.collect()

    gc.disable()
    try:
        pipeline = CountingPipeline(1000, step=step)
        cycle = [Prefetcher(pipeline, 1)]
        cycle.append(cycle)
        next(cycle[0])
        reached.wait()
        alive = weakref.ref(cycle[0])
        del cycle
        go.set()
        wait_until(pipeline.was_closed.is_set)
        wait_until(lambda: alive() is None)
    finally:
        gc.enable()


def test_close_wakes_up_a_loop_that_waits_in_another_thread():
    go = threading.Event()
    iterator = Prefetcher(CountingPipeline(2, step=lambda _: go.wait()), 1)
    caught = []

    def consume():
        try:
            list(iterator)
        except LoaderClosedError as error:
            caught.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    closer = threading.Thread(target=iterator.close)
    closer.start()
    go.set()
    closer.join()
    consumer.join()
    assert len(caught) == 1


def test_a_closed_iterator_raises_and_may_be_closed_again():
    iterator = Prefetcher(CountingPipeline(10), 3)
    next(iterator)
    iterator.close()
    iterator.close()
    for _ in range(2):
        with pytest.raises(LoaderClosedError, match="closed"):
            next(iterator)


def test_closing_interrupts_a_waiting_thread():
    class Pipeline(CountingPipeline):
        def start(self, *, may_wait):
            self.was_interrupted.wait()
            raise LoaderClosedError("interrupted")

    pipeline = Pipeline(5)
    iterator = Prefetcher(pipeline, 2)
    iterator.close()
    assert pipeline.was_interrupted.is_set()
    assert pipeline.was_closed.is_set()


def test_nothing_is_interrupted_after_the_last_batch():
    pipeline = CountingPipeline(2)
    iterator = Prefetcher(pipeline, 2)
    assert list(iterator) == [0, 1]
    iterator.close()
    assert not pipeline.was_interrupted.is_set()


@pytest.mark.parametrize("num_ahead", [1, 2, 5])
def test_batches_before_one_that_cannot_be_started_arrive(num_ahead):
    class Pipeline(CountingPipeline):
        def start(self, *, may_wait):
            if self.num_started == 6:
                raise MemoryError("planted")
            return super().start(may_wait=may_wait)

    pipeline = Pipeline(10)
    iterator = Prefetcher(pipeline, num_ahead)
    assert [next(iterator) for _ in range(6)] == list(range(6))
    with pytest.raises(MemoryError, match="planted"):
        next(iterator)
    assert pipeline.was_closed.is_set()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_the_error_in_the_child_names_the_fork():
    iterator = Prefetcher(CountingPipeline(1000), 2)
    assert next(iterator) == 0
    child = os.fork()
    if child == 0:
        status = 1
        try:
            next(iterator)
        except LoaderClosedError as error:
            status = 0 if "fork" in str(error) else 2
        finally:
            iterator.close()
            del iterator
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert next(iterator) == 1
    iterator.close()


PROGRAM = """
import sys, threading
sys.path[:0] = {path!r}
from gpubeton._engine.prefetch import Prefetcher

class Pipeline:
    num_in_flight, has_more, is_first, interrupted = 0, True, True, threading.Event()
    def start(self, *, may_wait):
        self.num_in_flight = 1
        return True
    def collect(self):
        self.num_in_flight = 0
        if not self.is_first:
            self.interrupted.wait()
        self.is_first = False
    def complete(self, collected):
        return collected
    def interrupt(self):
        sys.stdout.write("interrupted\\n")
        self.interrupted.set()
    def close(self):
        sys.stdout.write("closed\\n")

iterator = Prefetcher(Pipeline(), 2)
next(iterator)
{ending}
"""


@pytest.mark.parametrize(
    ("ending", "status"),
    [("", 0), ("raise SystemExit(3)", 3), ("raise ValueError", 1), ("raise KeyboardInterrupt", -2)],
)
def test_a_program_that_ends_with_a_live_iterator_closes_its_pipeline(ending, status):
    program = PROGRAM.format(path=sys.path, ending=ending)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.split()) == (status, ["interrupted", "closed"]), result.stderr


BUSY = """
import sys, threading
sys.path[:0] = {path!r}
import torch
from gpubeton._engine import prefetch
from tests.engine.test_prefetch import CountingPipeline

prefetch._PATIENCE_SECONDS = {patience}
reached = threading.Event()

def use_torch(number):
    reached.set()
    numbers = torch.zeros(10_000)
    while True:
        numbers = numbers + 1

iterator = prefetch.Prefetcher(CountingPipeline(5, step=use_torch), 2)
reached.wait()
{ending}
"""


@pytest.mark.parametrize("ending", ["", "threading.Thread(target=globals().pop, args=('iterator',)).start()"])
def test_a_program_ends_as_it_should_while_a_batch_takes_longer_than_anyone_waits(ending):
    program = BUSY.format(path=sys.path, patience=0.1, ending=ending)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
