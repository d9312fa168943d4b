from __future__ import annotations

from collections import deque

import pytest

from gpubeton.gpu.feeder import LoadBalancer
from gpubeton.plan.lanes import Lane

HARDWARE, SM = Lane.HARDWARE, Lane.SM


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Done:
    """An event that is done from a moment on."""

    def __init__(self, clock, moment=float("inf")):
        self.clock, self.moment = clock, moment

    @property
    def is_done(self):
        return self.clock.now >= self.moment


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def split(clock):
    return LoadBalancer([HARDWARE, SM], clock)


ENDLESS = 10**12


def learnt(split, clock, seconds):
    """See each lane take so many seconds for a megabyte."""
    for lane, duration in seconds.items():
        clock.now += 1000
        split.choose({lane: 1}, 1)
        split.begun(lane, 1_000_000, Done(clock, clock.now + duration))
        clock.now += duration - 1e-9
        split.choose({lane: 1}, 1)
        clock.now += 2e-9
        split.choose({lane: 1}, 1)


def test_the_first_piece_goes_to_the_engines(split):
    assert split.choose({HARDWARE: 10, SM: 1}, 100) == HARDWARE


def test_a_lane_alone_is_chosen_whatever_is_known_of_it(split, clock):
    assert split.choose({SM: 10}, 10) == SM
    assert split.choose({HARDWARE: 10}, 10) == HARDWARE
    learnt(split, clock, {HARDWARE: 9, SM: 1})
    assert split.choose({HARDWARE: 10}, 10) == HARDWARE


def test_a_lane_that_was_never_tried_is_tried_once_the_first_has_something_to_do(split, clock):
    split.begun(HARDWARE, 1000, Done(clock))
    assert split.choose({HARDWARE: 1000, SM: 1000}, ENDLESS) == SM
    split.begun(SM, 1000, Done(clock))
    assert split.choose({HARDWARE: 900, SM: 900}, ENDLESS) == HARDWARE, "one trial is enough until its end is seen"


def test_of_two_lanes_that_are_in_time_the_one_that_can_begin_first_gets_the_piece(split, clock):
    learnt(split, clock, {HARDWARE: 1, SM: 3})
    assert split.choose({HARDWARE: 1000, SM: 2000}, ENDLESS) == HARDWARE
    split.begun(HARDWARE, 1000, Done(clock))
    assert split.choose({HARDWARE: 1000, SM: 2000}, ENDLESS) == SM
    split.begun(SM, 2000, Done(clock))  # 6 parts
    for _ in range(5):
        assert split.choose({HARDWARE: 1000, SM: 2000}, ENDLESS) == HARDWARE
        split.begun(HARDWARE, 1000, Done(clock))
    split.begun(HARDWARE, 1001, Done(clock))
    assert split.choose({HARDWARE: 1000, SM: 2000}, ENDLESS) == SM


def test_a_slow_lane_gets_nothing_that_it_would_finish_after_the_rest_of_the_batch(split, clock):
    learnt(split, clock, {HARDWARE: 1, SM: 3})
    split.begun(HARDWARE, 1000, Done(clock))
    assert split.choose({HARDWARE: 500, SM: 1000}, 2100) == SM  # 3 parts for it, against 3.1 for all
    assert split.choose({HARDWARE: 500, SM: 1000}, 1900) == HARDWARE


def test_when_little_remains_it_goes_where_it_is_done_first(split, clock):
    learnt(split, clock, {HARDWARE: 1, SM: 3})
    split.begun(HARDWARE, 1000, Done(clock))
    split.begun(SM, 1000, Done(clock))
    assert split.choose({HARDWARE: 100, SM: 100}, 100) == HARDWARE
    split.begun(HARDWARE, 3000, Done(clock))
    assert split.choose({HARDWARE: 100, SM: 100}, 100) == SM


def test_what_is_waiting_counts_and_what_is_done_does_not(split, clock):
    learnt(split, clock, {HARDWARE: 1, SM: 1})
    split.begun(HARDWARE, 5_000_000, Done(clock, clock.now + 5))
    assert split.choose({HARDWARE: 100, SM: 100}, ENDLESS) == SM
    clock.now += 5
    assert split.choose({HARDWARE: 100, SM: 100}, ENDLESS) == HARDWARE


def test_pieces_that_were_waiting_for_others_are_not_thought_to_be_slow(split, clock):
    """A lane works on one piece at a time: the second begins when the first is done."""
    for end in (1, 2, 3, 4):
        split.begun(HARDWARE, 1000, Done(clock, end))
    for moment in (1, 2, 3, 4):
        clock.now = moment
        split.choose({HARDWARE: 1}, 1)
    assert split._end(HARDWARE, 1000) == pytest.approx(1)


def test_pieces_that_are_seen_done_together_are_measured_together(split, clock):
    for end in (1, 2, 3, 4):
        split.begun(HARDWARE, 1000, Done(clock, end))
    clock.now = 4
    split.choose({HARDWARE: 1}, 1)
    assert split._end(HARDWARE, 1000) == pytest.approx(1)


def test_what_changes_is_followed(split, clock):
    learnt(split, clock, {HARDWARE: 1})
    for _ in range(20):  # training has begun to use the engines too
        learnt(split, clock, {HARDWARE: 8})
    assert split._end(HARDWARE, 1_000_000) == pytest.approx(8, rel=0.05)


def test_a_pause_of_the_loop_is_not_work_of_a_lane(split, clock):
    learnt(split, clock, {HARDWARE: 1})
    for _ in range(20):
        split.begun(HARDWARE, 1_000_000, Done(clock, clock.now + 1))
        clock.now += 0.9
        split.choose({HARDWARE: 1}, 1)
        clock.now += 1000  # nobody has looked
        split.choose({HARDWARE: 1}, 1)
    assert split._end(HARDWARE, 1_000_000) == pytest.approx(1, rel=0.01)


def test_a_lane_that_was_slow_once_is_tried_again_some_time(split, clock):
    """Its first piece may have waited for memory, or for a kernel to be loaded."""
    learnt(split, clock, {HARDWARE: 1, SM: 30})
    pieces = 0
    while split.choose({HARDWARE: 28_000, SM: 64_000}, 256_000) != SM:
        pieces += 1
        assert pieces < 1000
        split.begun(HARDWARE, 28_000, Done(clock, clock.now + 0.028))
        clock.now += 0.028
    assert pieces > 20


def test_what_takes_no_time_by_the_clock_is_just_fast(split, clock):
    split.begun(HARDWARE, 1000, Done(clock, 0))
    split.begun(SM, 1000, Done(clock, 0))
    split.choose({HARDWARE: 1, SM: 1}, 2)
    assert split.choose({HARDWARE: 1000, SM: 2000}, 9000) == HARDWARE


class Server:
    """A lane that works on one piece after another, and has a few of them at most."""

    def __init__(self, clock, bytes_per_second, num_states):
        self.clock, self.rate, self.free_at = clock, bytes_per_second, 0.0
        self.pieces = deque()
        self.num_states = num_states
        self.nbytes = 0

    def begin(self, nbytes):
        while self.pieces and self.pieces[0] <= self.clock.now:
            self.pieces.popleft()
        if len(self.pieces) == self.num_states:
            self.clock.now = self.pieces.popleft()
        self.free_at = max(self.free_at, self.clock.now) + nbytes / self.rate
        self.pieces.append(self.free_at)
        self.nbytes += nbytes
        return Done(self.clock, self.free_at)


def carry_out(split, servers, num_batches):
    """Share batches of 256 images of 1000 bytes, as the feeder does: engines take 28 at most, processors 51 to 64."""
    for _ in range(num_batches):
        left = 256
        while left:
            sizes = {HARDWARE: min(left, 28)} | ({SM: min(left, 64)} if left >= 51 else {})
            lane = split.choose({lane: 1000 * count for lane, count in sizes.items()}, 1000 * left)
            left -= sizes[lane]
            split.begun(lane, 1000 * sizes[lane], servers[lane].begin(1000 * sizes[lane]))


@pytest.mark.parametrize("rates", [(1e6, 1e6), (3e6, 1e6), (1e6, 3e6), (1e6, 0.4e6)])
def test_over_time_lanes_share_the_work_by_what_they_can_do(split, clock, rates):
    servers = {HARDWARE: Server(clock, rates[0], 3), SM: Server(clock, rates[1], 2)}
    carry_out(split, servers, 100)
    total = sum(server.nbytes for server in servers.values())
    assert servers[HARDWARE].nbytes / total == pytest.approx(rates[0] / sum(rates), abs=0.08)
    assert max(server.free_at for server in servers.values()) < 1.15 * total / sum(rates), "both are nearly always busy"


def test_a_lane_that_is_of_no_use_costs_next_to_nothing(split, clock):
    servers = {HARDWARE: Server(clock, 1e6, 3), SM: Server(clock, 1e4, 2)}
    carry_out(split, servers, 100)
    assert servers[SM].nbytes < 0.02 * servers[HARDWARE].nbytes
