"""The ways to call nvJPEG, with one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.encoded import Piece
from benchmarks.gpu.nvjpeg_steps import (
    Backend,
    Buffer,
    DecodeParams,
    Decoder,
    DecoderState,
    Flags,
    JpegStream,
    decode_batched_ex,
    decode_one,
)
from benchmarks.gpu.target import Target
from gpubeton.gpu.cuda import Event, Stream
from gpubeton.gpu.nvjpeg import RGBI, Handle, Resource, State

__all__ = ["WAYS", "Batched", "Single", "StepByStep", "Way"]

R = TypeVar("R", bound=Resource)


class Way(ABC):
    """One way to call nvJPEG."""

    def __init__(self, target: Target, backend: Backend, flags: Flags = Flags.UPSAMPLING_WITH_INTERPOLATION) -> None:
        self.target = target
        self._opened = ExitStack()
        self.handle = self.own(Handle(target.library, backend, flags))

    def own(self, resource: R) -> R:
        """Destroy a resource in `close`, before those that were there before it."""
        self._opened.callback(resource.close)
        return resource

    def __enter__(self) -> Way:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free everything; no call may be running."""
        self._opened.close()

    @abstractmethod
    def decode(self, piece: Piece, targets: NDArray[np.void], stream: Stream) -> None:
        """Begin to decode a piece; the previous one must be complete."""


class Batched(Way):
    """``nvjpegDecodeBatched``, or ``nvjpegDecodeBatchedEx`` with parameters that `wish` sets."""

    def __init__(
        self,
        target: Target,
        backend: Backend,
        flags: Flags = Flags.UPSAMPLING_WITH_INTERPOLATION,
        wish: Callable[[DecodeParams], object] | None = None,
    ) -> None:
        super().__init__(target, backend, flags)
        self._state = self.own(State(self.handle))
        self._params: DecodeParams | None = None
        if wish is not None:
            self._params = self.own(DecodeParams(self.handle))
            wish(self._params)

    def decode(self, piece: Piece, targets: NDArray[np.void], stream: Stream) -> None:
        """Begin to decode a piece."""
        if self._state.batch != len(piece.address):
            self._state.initialize(len(piece.address))
        if self._params is None:
            self._state.decode_batched(piece.address, piece.size, targets, stream.handle)
        else:
            params = [self._params] * len(piece.address)
            decode_batched_ex(self._state, piece.address, piece.size, targets, params, stream.handle)


class Single(Way):
    """``nvjpegDecode``, image by image, with states used in turn."""

    def __init__(
        self,
        target: Target,
        backend: Backend,
        flags: Flags = Flags.UPSAMPLING_WITH_INTERPOLATION,
        states: int = 4,
    ) -> None:
        super().__init__(target, backend, flags)
        self._states = [self.own(State(self.handle)) for _ in range(states)]

    def decode(self, piece: Piece, targets: NDArray[np.void], stream: Stream) -> None:
        """Begin to decode a piece."""
        for number, state in enumerate(self._states[: len(piece.address)]):
            address, size = int(piece.address[number]), int(piece.size[number])
            decode_one(state, address, size, targets[number : number + 1], stream.handle)


class _Entry(NamedTuple):
    state: DecoderState
    jpeg: JpegStream
    stream: Stream
    event: Event


class StepByStep(Way):
    """``nvjpegDecodeJpeg`` on one backend, image by image, with states used in turn, as in NVIDIA's sample."""

    def __init__(
        self,
        target: Target,
        backend: Backend,
        flags: Flags = Flags.UPSAMPLING_WITH_INTERPOLATION,
        states: int = 0,
    ) -> None:
        super().__init__(target, backend, flags)
        engines, cores = self.handle.hardware_engines() if not states else (0, 0)
        decoder = self.own(Decoder(self.handle, backend))
        self._params = self.own(DecodeParams(self.handle))
        self._params.set_output_format(RGBI)
        self._entries = []
        for _ in range(states or max(2 * engines * cores, 2)):
            buffers = [self.own(Buffer(self.handle, kind)) for kind in ("Pinned", "Device")]
            jpeg, state = self.own(JpegStream(self.handle)), self.own(DecoderState(decoder))
            for buffer in buffers:
                state.attach(buffer)
            entry = _Entry(state, jpeg, target.device.make_stream(), target.device.make_event())
            self._entries.append(entry)
        self._number = 0

    @property
    def states(self) -> int:
        """Images that can be decoded at once."""
        return len(self._entries)

    def decode(self, piece: Piece, targets: NDArray[np.void], stream: Stream) -> None:
        """Begin to decode a piece in one stream."""
        for number in range(len(piece.address)):
            self.decode_one(piece, targets, number, stream)

    def decode_one(self, piece: Piece, targets: NDArray[np.void], number: int, stream: Stream | None = None) -> Event:
        """Begin to decode one image, by default in the stream of its state; return the event after it."""
        entry = self._entries[self._number % len(self._entries)]
        self._number += 1
        used = stream or entry.stream
        entry.event.synchronize()
        entry.jpeg.parse(int(piece.address[number]), int(piece.size[number]))
        entry.state.decode(entry.jpeg, targets[number : number + 1], self._params, used.handle)
        entry.event.record(used)
        return entry.event

    def settle(self) -> None:
        """Wait for all calls."""
        for entry in self._entries:
            entry.event.synchronize()


def _nothing(_: DecodeParams) -> None:
    """Set no parameters, to use `nvjpegDecodeBatchedEx` as it is."""


class Kind(NamedTuple):
    make: Callable[[Target, ExitStack], Way]
    is_hardware: bool
    images: int


def _kind(make: Callable[[Target], Way], *, is_hardware: bool, images: int) -> Kind:
    return Kind(lambda target, stack: stack.enter_context(make(target)), is_hardware, images)


#: Name of a way: how to make it, whether it uses the engines, and images per call.
WAYS: dict[str, Kind] = {
    "batch, engines": _kind(lambda target: Batched(target, Backend.HARDWARE), is_hardware=True, images=14),
    "batch with wishes, engines": _kind(
        lambda target: Batched(target, Backend.HARDWARE, wish=_nothing), is_hardware=True, images=14
    ),
    "step by step, engines": _kind(
        lambda target: StepByStep(target, Backend.HARDWARE, states=14), is_hardware=True, images=14
    ),
    # nvJPEG decodes smaller batches on the CPU.
    "batch, processors": _kind(lambda target: Batched(target, Backend.GPU_HYBRID), is_hardware=False, images=64),
    "one by one": _kind(lambda target: Single(target, Backend.DEFAULT), is_hardware=False, images=4),
}
