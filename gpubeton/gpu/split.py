"""Split: shares images between the JPEG engines and the GPU's processors, by how long each has to do."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from gpubeton.gpu.device import Event
from gpubeton.plan.lanes import Lane

# Part of a new measurement in the running mean.
_NEWEST = 0.2


class _Begun(NamedTuple):
    nbytes: int
    event: Event
    seconds: float


class Split:
    """Chooses a lane for the next images, so that all lanes come to the end of their work together.

    Every lane's rate, in compressed bytes per second, is measured while it works. A lane that was never tried is
    tried as soon as the first choice has something to do.

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
        self._bytes_per_second: dict[Lane, float] = {}
        self._last_done: dict[Lane, float] = {}

    def choose(self, nbytes: dict[Lane, int]) -> Lane:
        """Choose who gets the next piece.

        Parameters
        ----------
        nbytes : dict of Lane to int
            Compressed bytes of the piece that each lane would get; lanes that are missing are not to be chosen.

        Returns
        -------
        Lane
            The one that would be done first.
        """
        for lane in self._lanes:
            self._measure(lane)
        candidates = [lane for lane in self._lanes if lane in nbytes]
        preferred = candidates[0]
        for lane in candidates[1:]:
            if lane not in self._bytes_per_second and self._begun[preferred] and not self._begun[lane]:
                return lane
        return min(candidates, key=lambda lane: self._seconds(lane, nbytes[lane]))

    def begun(self, lane: Lane, nbytes: int, event: Event) -> None:
        """Note that a lane was given a piece.

        Parameters
        ----------
        lane : Lane
            Who got it.
        nbytes : int
            Its compressed bytes.
        event : Event
            Behind its decoding.
        """
        self._begun[lane].append(_Begun(nbytes, event, self._clock()))

    def _seconds(self, lane: Lane, nbytes: int) -> float:
        """How long a lane would take to be done with a piece."""
        waiting = sum(one.nbytes for one in self._begun[lane])
        rate = self._bytes_per_second.get(lane)
        if rate is None:  # not yet known: as long as it has nothing to do, it is the first choice
            return float(waiting)
        return (waiting + nbytes) / rate

    def _measure(self, lane: Lane) -> None:
        """See which pieces are done."""
        begun = self._begun[lane]
        nbytes, first = 0, 0.0
        while begun and begun[0].event.is_done:
            piece = begun.popleft()
            first = first if nbytes else piece.seconds
            nbytes += piece.nbytes
        if nbytes == 0:
            return
        now = self._clock()
        # It began when it was given the piece, or when it was done with the one before.
        seconds = max(now - max(first, self._last_done.get(lane, first)), 1e-6)
        self._last_done[lane] = now
        known = self._bytes_per_second.get(lane, nbytes / seconds)
        self._bytes_per_second[lane] = known + _NEWEST * (nbytes / seconds - known)
