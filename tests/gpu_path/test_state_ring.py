from __future__ import annotations

import threading
from itertools import count

import pytest

from gpubeton.gpu.nvjpeg_backends import StateRing
from tests.simulator.active_device import add, device

__all__ = ["device"]


@pytest.fixture
def ring(device):
    numbers = count()
    return StateRing(device, lambda: next(numbers), 3)


@pytest.fixture
def work(device):
    """Puts work into a state's stream, as lanes do."""
    memory = device.allocate(4)

    def put(entry):
        add(device, memory, memory, 0, 1, entry.stream)
        entry.event.record(entry.stream)
        return entry.event

    return put


def test_states_take_turns_each_with_a_stream_of_its_own(ring):
    entries = [ring.next() for _ in range(6)]
    assert [entry.state for entry in entries] == [0, 1, 2, 0, 1, 2]
    assert len({entry.stream.number for entry in entries[:3]}) == 3


def test_streams_give_way_to_others_if_they_are_not_urgent(device):
    for is_urgent in (True, False):
        ring = StateRing(device, object, 2, is_urgent=is_urgent)
        assert [ring.next().stream.is_urgent for _ in range(2)] == [is_urgent] * 2


@pytest.fixture
def asked(ring, device):
    """Asks for a state in a thread, which may wait; gives the thread and what it got."""

    def ask(batch):
        got = []

        def wait():
            with device.active():
                got.append(ring.next(batch))

        thread = threading.Thread(target=wait)
        thread.start()
        return thread, got

    return ask


def test_whoever_gets_a_state_has_waited_for_its_work(ring, work, faults, asked):
    entries = [ring.next() for _ in range(3)]
    with faults.held(entries[0].stream):
        for entry in entries:
            work(entry)
        thread, got = asked(9)
        thread.join(0.1)
        assert thread.is_alive(), "none is initialised for it, and the oldest one's work has not begun"
    thread.join(20)
    assert got == [entries[0]]


def test_a_free_state_that_is_initialised_for_the_batch_goes_before_older_ones(ring):
    for batch in (5, 7, 5):
        ring.next().batch = batch
    assert ring.next(7).state == 1
    assert ring.next(7).state == 1
    assert ring.next(5).state == 0
    assert ring.next(9).state == 2, "none is: the oldest"


def test_a_state_that_is_busy_is_not_waited_for_while_an_older_one_is_free(ring, work, faults, asked):
    entries = [ring.next(), ring.next(), ring.next()]
    entries[2].batch = 7
    with faults.held(entries[2].stream):
        work(entries[2])
        thread, got = asked(7)
        thread.join(20)
        assert got == [entries[0]]
    thread.join(20)


def test_the_event_of_earlier_work_stays_what_it_is(ring, work, faults):
    """Who measures how long lanes take asks it later."""
    events = [work(ring.next()) for _ in range(3)]
    for event in events:
        event.synchronize()
    entry = ring.next()
    with faults.held(entry.stream):
        again = work(entry)
        assert (events[0].is_done, again.is_done) == (True, False)


def test_what_the_latest_work_reads_is_kept_until_the_state_is_used_again(ring):
    for number in range(3):
        ring.next().keep = number
    assert [ring.next().keep for _ in range(3)] == [None] * 3


def test_settling_waits_for_every_state_and_keeps_nothing(ring, work, faults):
    faults.slow_down(20_000, least=20_000)
    entries = [ring.next() for _ in range(3)]
    for entry in entries:
        entry.keep = "something"
        work(entry)
    ring.settle()
    assert [(entry.stream.is_idle, entry.keep) for entry in entries] == [(True, None)] * 3
