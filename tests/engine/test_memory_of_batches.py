"""Errors and released batches keep nothing alive."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from gpubeton._engine.prefetch import Prefetcher
from tests.engine.test_prefetch import CountingPipeline, wait_until


@pytest.mark.parametrize("method", ["start", "collect", "complete", "close"])
def test_a_handled_error_keeps_nothing_alive(method):
    pipeline = CountingPipeline(3)

    def fail(*_arguments, **_keywords):
        raise MemoryError("planted")

    setattr(pipeline, method, fail)
    iterator, alive = Prefetcher(pipeline, 2), weakref.ref(pipeline)
    del pipeline
    gc.disable()
    try:
        try:
            list(iterator)
        except MemoryError:
            assert alive() is not None
        del iterator
        assert alive() is None
    finally:
        gc.enable()


def test_closing_frees_batches_that_were_never_received():
    class Batch:
        pass

    class Pipeline(CountingPipeline):
        def complete(self, collected):
            batch = Batch()
            batches.append(weakref.ref(batch))
            return batch

    batches = []
    iterator = Prefetcher(Pipeline(100), 4)
    wait_until(lambda: len(batches) == 4)
    iterator.close()
    gc.collect()
    assert all(batch() is None for batch in batches)


def test_the_thread_does_not_keep_a_batch_that_was_received():
    class Batch:
        pass

    class Pipeline(CountingPipeline):
        def collect(self):
            if super().collect() > 0:
                go.wait()
            return Batch()

    go = threading.Event()
    iterator = Prefetcher(Pipeline(10), 1)
    first = weakref.ref(next(iterator))
    wait_until(lambda: first() is None)  # while the next one is being made
    go.set()
    iterator.close()
