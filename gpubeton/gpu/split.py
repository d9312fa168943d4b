"""Split: shares images between the JPEG engines and the GPU's processors, by how long each has to do."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gpubeton.gpu.device import Event
    from gpubeton.plan.lanes import Lane

# Part of a new measurement in the running mean.
_NEWEST = 0.2

# A lane that nobody chooses is not measured either, and what is known of it gets old: by this much it is thought to be
# faster each time that it is passed over, until it is tried again.
_OLDER = 0.99


class _Begun(NamedTuple):
    nbytes: int
    event: Event
    seconds: float


class Split:
    """Chooses a lane for the next images, so that all lanes come to the end of a batch together.

    What every lane takes for a byte is measured while it works. A lane that was never tried is tried as soon as the
    first choice has something to do.

    Parameters
    ----------
    lanes : collection of Lane
        Lanes to choose from, in the order of preference.
    clock : callable
        Gives seconds.
    """

    def __init__(self, lanes: Collection[Lane], clock: Callable[[], float] = time.perf_counter) -> None:
        self._lanes = list(lanes)
        self._clock = clock
        self._begun: dict[Lane, deque[_Begun]] = {lane: deque() for lane in self._lanes}
        self._seconds_per_byte: dict[Lane, float] = {}
        self._last_done: dict[Lane, float] = {}
        self._last_look = clock()

    def choose(self, nbytes: dict[Lane, int], remaining: int) -> Lane:
        """Choose who gets the next piece.

        Pieces differ in size, so that the one that is done first is not the right one: it goes to the lane that can
        begin first, of those that do not take longer for it than the others for all that remains.

        Parameters
        ----------
        nbytes : dict of Lane to int
            Compressed bytes of the piece that each lane would get; lanes that are missing are not to be chosen.
        remaining : int
            Compressed bytes of all that remains of the batch, the piece included.

        Returns
        -------
        Lane
            Who gets it.
        """
        self._look()
        candidates = [lane for lane in self._lanes if lane in nbytes]
        preferred = candidates[0]
        unknown = [lane for lane in candidates if lane not in self._seconds_per_byte]
        if unknown:
            untried = [lane for lane in unknown if not self._begun[lane] and lane is not preferred]
            return untried[0] if untried and self._begun[preferred] else preferred
        in_time = [
            lane
            for lane in candidates
            if all(self._end(lane, nbytes[lane]) <= self._end(other, remaining) for other in candidates)
        ]
        if in_time:
            chosen = min(in_time, key=lambda lane: self._end(lane, 0))
        else:
            chosen = min(candidates, key=lambda lane: self._end(lane, nbytes[lane]))
        for lane in candidates:
            if lane is not chosen and not self._begun[lane]:
                self._seconds_per_byte[lane] *= _OLDER
        return chosen

    def begun(self, lane: Lane, nbytes: int, event: Event) -> None:
        """Note that a lane was given a piece.

        Parameters
        ----------
        lane : Lane
            Who got it.
        nbytes : int
            Its compressed bytes.
        event : Event
            Behind its decoding, and never recorded again.
        """
        self._begun[lane].append(_Begun(nbytes, event, self._clock()))

    def _end(self, lane: Lane, nbytes: int) -> float:
        """Seconds until a lane would be done with what it has and so many bytes more."""
        waiting = sum(one.nbytes for one in self._begun[lane])
        return (waiting + nbytes) * self._seconds_per_byte[lane]

    def _look(self) -> None:
        """See which pieces are done."""
        now = self._clock()
        for lane in self._lanes:
            self._measure(lane, now)
        self._last_look = now

    def _measure(self, lane: Lane, now: float) -> None:
        begun = self._begun[lane]
        nbytes, first = 0, 0.0
        while begun and begun[0].event.is_done:
            piece = begun.popleft()
            first = first if nbytes else piece.seconds
            nbytes += piece.nbytes
        if nbytes == 0:
            return
        # It began when it was given the piece, or when it was done with the one before; it was done between the look
        # before and this one. If that is long ago, because the loop has kept all waiting, little is learnt.
        start = max(first, self._last_done.get(lane, first))
        self._last_done[lane] = now
        least, most = max(self._last_look - start, 0.0) / nbytes, max(now - start, 1e-6) / nbytes
        known = self._seconds_per_byte.get(lane, most)
        self._seconds_per_byte[lane] = known + _NEWEST * (min(max(known, least), most) - known)
