"""BatchedLane: many images a call, by the JPEG engines or by the GPU's processors."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import NvjpegError
from gpubeton.gpu.decode_lane import Begun, Piece
from gpubeton.gpu.nvjpeg import IMAGE, Handle, State
from gpubeton.gpu.state_ring import StateRing

if TYPE_CHECKING:
    from gpubeton.gpu.device import Device


class BatchedLane:
    """Many images a call; ``nvjpegDecodeBatched``. May be used by several threads.

    Parameters
    ----------
    device : Device
        Where.
    handle : Handle
        NVIDIA's library with the backend HARDWARE or GPU_HYBRID.
    most : int
        Images of a call, at most.
    least : int
        Images of a call, at least, to be worth it.
    num_states : int
        Calls that may be under way at once. With three, two are always waiting for the engines.
    is_urgent : bool
        Whether its work goes before that of others.

    Attributes
    ----------
    most, least : int
        See above.
    """

    def __init__(
        self, device: Device, handle: Handle, *, most: int, least: int = 1, num_states: int = 3, is_urgent: bool = True
    ) -> None:
        self.most = most
        self.least = least
        self._handle = handle
        self._states: list[State] = []
        self._lock = threading.Lock()
        self._ring: StateRing[State] = StateRing(device, self._make_state, num_states, is_urgent=is_urgent)

    def begin(self, piece: Piece) -> Begun:
        """Begin to decode a piece.

        Parameters
        ----------
        piece : Piece
            Up to `most` images.

        Returns
        -------
        Begun
            If nvJPEG refuses one, all of them failed: it does not say which.
        """
        with self._lock:
            return self._begin(piece)

    def reserve(self, width: int, height: int) -> None:
        """Let the states allocate what images of up to this size need.

        Parameters
        ----------
        width, height : int
            Pixels.
        """
        for state in self._states:
            state.preallocate(self.most, width, height)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        self._ring.settle()

    def close(self) -> None:
        """Free states and handle; nothing may be under way."""
        for state in self._states:
            state.close()
        self._handle.close()

    def _begin(self, piece: Piece) -> Begun:
        count = len(piece.address)
        entry = self._ring.next(count)
        targets = np.zeros(count, IMAGE)
        targets["channel"][:, 0] = piece.target
        targets["pitch"][:, 0] = piece.pitch
        try:
            if entry.batch != count:
                entry.batch = 0
                entry.state.initialise(count)
                entry.batch = count
            entry.keep = piece, targets
            entry.state.decode_batched(piece.address, piece.size, targets, entry.stream.handle)
        except NvjpegError as error:
            # Whatever was begun of it still writes into the arena.
            entry.stream.synchronize()
            entry.batch = 0
            return Begun(None, dict.fromkeys(range(count), str(error)))
        entry.event.record(entry.stream)
        return Begun(entry.event, {})

    def _make_state(self) -> State:
        self._states.append(self._handle.make_state())
        return self._states[-1]
