"""The maximum rate of nvJPEG: loops that only decode.

Loaders are compared with this ceiling on the same bytes. Compressed images are in page-locked memory, states and memory
are allocated before, and several calls run at once, so that no engine waits for the host.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.encoded import Encoded
from benchmarks.gpu.nvjpeg_parts import Backend
from benchmarks.gpu.target import Target
from gpubeton._gpu.cuda import Event, Memory, Stream
from gpubeton._gpu.nvjpeg import INTERPOLATED, Handle, State

__all__ = ["BareLoop", "Setting"]


@dataclass(frozen=True)
class Setting:
    """How a loop decodes."""

    backend: Backend
    per_call: int  # images
    states: int = 3  # calls that run at once


@dataclass(eq=False)
class _Turn:
    """A state with its stream and memory."""

    state: State
    stream: Stream
    event: Event
    memory: Memory
    targets: list[NDArray[np.void]]


class BareLoop:
    """Decodes the same images repeatedly, and does nothing else."""

    def __init__(self, target: Target, encoded: Encoded, setting: Setting) -> None:
        self._setting = setting
        self._encoded = encoded  # keeps the memory that is read
        self._pieces = encoded.pieces(setting.per_call)
        self._opened = ExitStack()
        with ExitStack() as undo:
            self._handle: Handle = Handle(target.library, setting.backend, INTERPOLATED)
            undo.callback(self._handle.close)
            self._turns = [self._make_turn(target, encoded, undo) for _ in range(setting.states)]
            self._opened = undo.pop_all()

    def __enter__(self) -> BareLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for all calls, and free everything."""
        self.settle()
        self._opened.close()

    def settle(self) -> None:
        """Wait for all calls."""
        for turn in self._turns:
            turn.stream.synchronize()

    def begin(self, number: int) -> None:
        """Wait for the next state and begin call `number`."""
        turn, which = self._turns[number % len(self._turns)], number % len(self._pieces)
        piece, targets = self._pieces[which], turn.targets[which]
        turn.event.synchronize()
        turn.state.decode_batched(piece.address, piece.size, targets, turn.stream.handle)
        turn.event.record(turn.stream)

    def _make_turn(self, target: Target, encoded: Encoded, undo: ExitStack) -> _Turn:
        state = State(self._handle)
        undo.callback(state.close)
        state.preallocate(self._setting.per_call, int(encoded.width.max()), int(encoded.height.max()))
        state.initialize(self._setting.per_call)
        memory = target.device.allocate(max(piece.nbytes for piece in self._pieces))
        undo.callback(memory.free)
        targets = [piece.targets(memory.address) for piece in self._pieces]
        return _Turn(state, target.device.make_stream(), target.device.make_event(), memory, targets)
