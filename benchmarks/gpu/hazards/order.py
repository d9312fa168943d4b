"""When nvJPEG writes: not before earlier work in its stream, and not after later work."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.gpu.encoded import Encoded
from benchmarks.gpu.hazards.finding import Finding
from benchmarks.gpu.hazards.ways import WAYS, Kind, Way
from benchmarks.gpu.target import Target
from gpubeton.errors import DeviceError
from gpubeton.gpu.cuda import Memory, PinnedMemory, Stream

__all__ = ["does_it_write_early", "is_it_done_when_the_stream_is"]

# No photograph has only this value.
_EMPTY = 0xEE
# Of a trial, until the host is early enough.
_MOST_TRIES = 4


class _Room:
    """Memory for the images of a call, and a copy of what a reader saw."""

    def __init__(self, target: Target, encoded: Encoded, images: int, stack: ExitStack) -> None:
        self.device = target.device
        self.piece = encoded.piece(np.arange(images) % len(encoded))
        self.arena: Memory = self.device.allocate(self.piece.nbytes)
        self.empty: PinnedMemory = self.device.allocate_pinned(self.piece.nbytes)
        self.empty.array[:] = _EMPTY
        self.seen: PinnedMemory = self.device.allocate_pinned(self.piece.nbytes)
        self.decoding: Stream = self.device.make_stream()
        self.reading: Stream = self.device.make_stream()
        for memory in (self.arena, self.empty, self.seen):
            stack.callback(memory.free)
        self.targets = self.piece.targets(self.arena.address)

    def clear(self) -> None:
        self.device.copy(self.arena.address, self.empty.address, self.piece.nbytes, self.reading)
        self.reading.synchronize()
        self.seen.array[:] = 0

    def read(self, stream: Stream) -> None:
        self.device.copy(self.seen.address, self.arena.address, self.piece.nbytes, stream)

    def written(self) -> int:
        """Return in how many images the reader saw any pixel."""
        return sum(bool((pixels != _EMPTY).any()) for pixels in self._images())

    def whole(self) -> int:
        """Return how many images the reader saw complete."""
        before = self.seen.array.copy()
        self.read(self.reading)
        self.reading.synchronize()
        after = self.seen.array
        return sum(
            bool(np.array_equal(before[part], after[part]) and (after[part] != _EMPTY).any()) for part in self._parts()
        )

    def _parts(self) -> list[slice]:
        stops = [*self.piece.offset.tolist()[1:], self.piece.nbytes]
        return [slice(start, stop) for start, stop in zip(self.piece.offset.tolist(), stops, strict=True)]

    def _images(self) -> list[Any]:
        return [self.seen.array[part] for part in self._parts()]


class _Blocker:
    """Keeps a stream busy with copies of device memory for about some milliseconds."""

    def __init__(self, target: Target, milliseconds: float, stack: ExitStack) -> None:
        self._device = target.device
        self._nbytes = (4 << 20) if target.is_simulated else (256 << 20)
        self._memory = [self._device.allocate(self._nbytes) for _ in range(2)]
        for memory in self._memory:
            stack.callback(memory.free)
        stream = self._device.make_stream()
        self._copies = 1
        self.block(stream)
        stream.synchronize()
        self._copies = 16
        start = time.perf_counter()
        self.block(stream)
        stream.synchronize()
        self._copies = max(int(16 * milliseconds / 1000 / (time.perf_counter() - start)), 1)

    def block(self, stream: Stream) -> None:
        """Start the copies in a stream."""
        for number in range(self._copies):
            target, source = self._memory[number % 2], self._memory[1 - number % 2]
            self._device.copy(target.address, source.address, self._nbytes, stream)

    def lengthen(self) -> None:
        """Keep streams busy for twice as long."""
        self._copies *= 2


def does_it_write_early(
    target: Target,
    encoded: Encoded,
    *,
    trials: int = 20,
    milliseconds: float = 30,
    ways: Mapping[str, Kind] = WAYS,
) -> Finding:
    """Check whether nvJPEG writes before earlier work of its stream is done, and whether a wait on the host helps.

    When nvJPEG is called, a reader still has to read the memory; either the stream or the host waits for the reader.
    """
    figures: dict[str, Any] = {}
    with ExitStack() as outer:
        blocker = _Blocker(target, milliseconds, outer)
        for name, kind in ways.items():
            with ExitStack() as stack:
                try:
                    way = kind.make(target, stack)
                    room = _Room(target, encoded, kind.images, stack)
                    figures[name] = {
                        who: _early_trials(way, room, blocker, trials, who == "the host waits")
                        for who in ("the stream waits", "the host waits")
                    }
                except DeviceError as error:
                    figures[name] = {"error": str(error)}
    measured = {name: found for name, found in figures.items() if "error" not in found}
    early = [name for name, found in measured.items() if found["the stream waits"]["early"]]
    unsafe = [name for name, found in measured.items() if found["the host waits"]["early"]]
    verdict = f"Written before the stream's turn: {', '.join(early) or 'nothing'}. " + (
        f"EVEN IF THE HOST WAITS: {', '.join(unsafe)}" if unsafe else "Never, if the host waits first."
    )
    return Finding(
        "early writing", "Does nvJPEG write before its stream's turn?", verdict, figures, bool(measured) and not unsafe
    )


def _early_trials(way: Way, room: _Room, blocker: _Blocker, trials: int, host_waits: bool) -> dict[str, int]:
    early, valid = 0, 0
    event = room.device.make_event()
    room.clear()
    way.decode(room.piece, room.targets, room.decoding)  # late allocations would wait for all streams
    room.decoding.synchronize()
    for _ in range(_MOST_TRIES * trials):
        room.clear()
        blocker.block(room.reading)
        room.read(room.reading)
        event.record(room.reading)
        if host_waits:
            event.synchronize()
        else:
            room.decoding.wait(event)
        was_waiting = not event.is_done
        way.decode(room.piece, room.targets, room.decoding)
        room.decoding.synchronize()
        room.reading.synchronize()
        if was_waiting == host_waits:  # the host came too late, as on a busy machine
            blocker.lengthen()
            continue
        valid += 1
        early += room.written() > 0
        if valid == trials:
            break
    return {"trials": trials, "valid": valid, "early": early}


def is_it_done_when_the_stream_is(
    target: Target, encoded: Encoded, *, trials: int = 50, ways: Mapping[str, Kind] = WAYS
) -> Finding:
    """Check whether work that follows the call, in its stream or after its event, sees the pixels."""
    figures: dict[str, Any] = {}
    for name, kind in ways.items():
        with ExitStack() as stack:
            try:
                way = kind.make(target, stack)
                room = _Room(target, encoded, kind.images, stack)
                figures[name] = {
                    "a stream waits": _late_trials(way, room, trials, host_waits=False),
                    "the host waits": _late_trials(way, room, trials, host_waits=True),
                }
            except DeviceError as error:
                figures[name] = {"error": str(error)}
    measured = {name: found for name, found in figures.items() if "error" not in found}
    late = [name for name, found in measured.items() if any(own["whole"] < own["images"] for own in found.values())]
    verdict = f"NOT READY WHEN ITS EVENT IS: {', '.join(late)}" if late else "All pixels are there when the event is."
    question = "Are the pixels there when the stream has passed the call?"
    return Finding("pixels after the call", question, verdict, figures, bool(measured) and not late)


def _late_trials(way: Way, room: _Room, trials: int, *, host_waits: bool) -> dict[str, int]:
    event = room.device.make_event()
    whole = 0
    for _ in range(trials):
        room.clear()
        way.decode(room.piece, room.targets, room.decoding)
        event.record(room.decoding)
        if host_waits:
            event.synchronize()
        else:
            room.reading.wait(event)
        room.read(room.reading)
        room.reading.synchronize()
        room.decoding.synchronize()
        whole += room.whole()
    return {"trials": trials, "images": trials * len(room.piece.address), "whole": whole}
