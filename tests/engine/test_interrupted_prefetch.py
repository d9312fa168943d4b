"""Ctrl-C within the iterator, at each instruction."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial

import pytest

from gpubeton._engine.prefetch import Prefetcher, _Channel
from gpubeton.errors import LoaderClosedError
from tests.engine.test_prefetch import CountingPipeline, wait_until


def iterator_after(received):
    """An iterator over two batches, of which some were received."""
    iterator = Prefetcher(CountingPipeline(2), 1)
    for _ in range(received):
        next(iterator)
    return iterator


def interrupted(call, code, steps):
    """Call, and raise KeyboardInterrupt after so many instructions of a function; return whether it came so far."""

    def trace(frame, event, argument):
        nonlocal steps
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps -= 1
            if steps == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except (KeyboardInterrupt, StopIteration):
        pass
    finally:
        sys.settrace(before)
    return steps <= 0


@pytest.mark.parametrize("received", [0, 1, 2])
def test_after_ctrl_c_at_any_instruction_the_loop_can_continue_to_its_end(received):
    steps, has_come = 1, True
    while has_come:
        iterator = iterator_after(received)
        wait_until(lambda iterator=iterator: iterator._channel.is_full or not iterator._thread.is_alive())
        has_come = interrupted(partial(next, iterator), Prefetcher.__next__.__code__, steps)
        rest = list(iterator)
        assert rest == [0, 1][2 - len(rest) :]  # one batch may be lost
        assert list(iterator) == []
        steps += 1
    assert steps > 20


@pytest.mark.parametrize("received", [0, 2])
def test_after_ctrl_c_at_any_instruction_of_closing_it_can_be_closed_again(received):
    steps, has_come = 1, True
    while has_come:
        iterator = iterator_after(received)
        has_come = interrupted(iterator.close, _Channel.drop_results.__code__, steps)
        iterator.close()
        with suppress(LoaderClosedError):
            assert list(iterator) == []
        steps += 1
    assert steps > 5
