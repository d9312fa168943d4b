"""The maximum rate of nvJPEG: loops that only decode.

Loaders are compared with this ceiling on the same bytes. Compressed images are in page-locked memory, states and memory
are allocated before, and several calls run at once, so that no engine waits for the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.encoded import Encoded, Piece
from benchmarks.gpu.nvjpeg_steps import Backend, DecodeParams, Flags, decode_batched_ex
from benchmarks.gpu.target import Target
from gpubeton.gpu.cuda import Event, Memory, Stream
from gpubeton.gpu.nvjpeg import Handle, State
from gpubeton.gpu.nvjpeg_backends import STATES

__all__ = ["BareLoop", "Rate", "Setting", "keep_decoding"]


class Rate(NamedTuple):
    """The result of a loop."""

    images: int
    wall_seconds: float
    cpu_seconds: float  # of the process
    call_seconds: float  # inside the calls that decode
    megapixels: float  # written
    megabytes: float  # read

    def figures(self) -> dict[str, float]:
        """Return the measurements and the rates that follow from them."""
        images = max(self.images, 1)
        return {
            **self._asdict(),
            "images_per_second": self.images / self.wall_seconds,
            "host_microseconds_per_image": 1e6 * self.cpu_seconds / images,
            "call_microseconds_per_image": 1e6 * self.call_seconds / images,
        }


@dataclass(frozen=True)
class Setting:
    """How a loop decodes."""

    backend: Backend
    per_call: int  # images
    states: int = STATES  # calls that run at once
    flags: Flags = Flags.UPSAMPLING_WITH_INTERPOLATION  # of the handle


@dataclass(eq=False)
class _Turn:
    """A state with its stream and memory."""

    state: State
    stream: Stream
    event: Event
    memory: Memory
    targets: list[NDArray[np.void]]


class BareLoop:
    """Decodes the same images repeatedly, and does nothing else.

    With `wish`, which sets the parameters of the images of a call, it uses ``nvjpegDecodeBatchedEx``.
    """

    def __init__(
        self,
        target: Target,
        encoded: Encoded,
        setting: Setting,
        wish: Callable[[DecodeParams, Piece], object] | None = None,
    ) -> None:
        self._setting = setting
        self._encoded = encoded  # keeps the memory that is read
        self._pieces = encoded.pieces(setting.per_call)
        self._opened = ExitStack()
        with ExitStack() as undo:
            self._handle: Handle = Handle(target.library, setting.backend, setting.flags)
            undo.callback(self._handle.close)
            self._params: list[DecodeParams] = []
            for piece in self._pieces if wish else ():
                self._params.append(DecodeParams(self._handle))
                undo.callback(self._params[-1].close)
                wish(self._params[-1], piece) if wish else None
            self._turns = [self._make_turn(target, encoded, undo) for _ in range(setting.states)]
            self._opened = undo.pop_all()

    def __enter__(self) -> BareLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for all calls, and free everything."""
        for turn in self._turns:
            turn.stream.synchronize()
        self._opened.close()

    def run(self, seconds: float, watch: AbstractContextManager[Any] | None = None) -> Rate:
        """Decode for some seconds; `watch` is active while all states are busy."""
        self.calls(2 * len(self._turns))  # nvJPEG allocates some memory late
        with watch or ExitStack():
            return keep_decoding(self.begin, self._pieces, seconds)

    def calls(self, number: int) -> None:
        """Make some calls and wait for them."""
        for call in range(number):
            self.begin(call)
        for turn in self._turns:
            turn.stream.synchronize()

    def begin(self, number: int) -> float:
        """Wait for the next state and begin call `number`; return the seconds inside the call."""
        turn, which = self._turns[number % len(self._turns)], number % len(self._pieces)
        piece, targets = self._pieces[which], turn.targets[which]
        turn.event.synchronize()
        begin = time.perf_counter()
        if self._params:
            wishes = [self._params[which]] * len(piece.address)
            decode_batched_ex(turn.state, piece.address, piece.size, targets, wishes, turn.stream.handle)
        else:
            turn.state.decode_batched(piece.address, piece.size, targets, turn.stream.handle)
        took = time.perf_counter() - begin
        turn.event.record(turn.stream)
        return took

    def _make_turn(self, target: Target, encoded: Encoded, undo: ExitStack) -> _Turn:
        state = State(self._handle)
        undo.callback(state.close)
        state.preallocate(self._setting.per_call, int(encoded.width.max()), int(encoded.height.max()))
        state.initialize(self._setting.per_call)
        memory = target.device.allocate(max(piece.nbytes for piece in self._pieces))
        undo.callback(memory.free)
        targets = [piece.targets(memory.address) for piece in self._pieces]
        return _Turn(state, target.device.make_stream(), target.device.make_event(), memory, targets)


def keep_decoding(begin: Callable[[int], float], pieces: Sequence[Piece], seconds: float) -> Rate:
    """Begin calls for some seconds; as many run at the end as at the start, so none has to be waited for."""
    sums = [
        (len(own.size), int((own.width.astype(np.int64) * own.height).sum()) / 1e6, int(own.size.sum()) / 1e6)
        for own in pieces
    ]
    images, megapixels, megabytes, call_seconds, number = 0, 0.0, 0.0, 0.0, 0
    start, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds or number == 0:
        call_seconds += begin(number)
        more = sums[number % len(sums)]
        images, megapixels, megabytes = images + more[0], megapixels + more[1], megabytes + more[2]
        number += 1
    return Rate(images, time.perf_counter() - start, time.process_time() - cpu, call_seconds, megapixels, megabytes)
