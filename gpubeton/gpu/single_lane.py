"""SingleLane: one image a call, for what cannot be decoded many at a time."""

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


class SingleLane:
    """One image a call, with some of the work on the CPU; ``nvjpegDecode``. May be used by several threads.

    Parameters
    ----------
    device : Device
        Where.
    handle : Handle
        NVIDIA's library with the backend DEFAULT, which takes all that nvJPEG knows.
    num_states : int
        Images that may be under way at once.

    Attributes
    ----------
    most, least : int
        Images of a piece. Any number will do; they are decoded one by one.
    """

    def __init__(self, device: Device, handle: Handle, *, num_states: int = 2) -> None:
        self.most = 1 << 30
        self.least = 1
        self._device = device
        self._handle = handle
        self._states: list[State] = []
        self._ring: StateRing[State] = StateRing(device, self._make_state, num_states)
        # All images of a piece have to be waited for, whichever state they were decoded with.
        self._stream = device.make_stream()
        self._lock = threading.Lock()

    def begin(self, piece: Piece) -> Begun:
        """Decode the images of a piece, one by one.

        Parameters
        ----------
        piece : Piece
            Any number of images.

        Returns
        -------
        Begun
            The event is a new one.
        """
        failed: dict[int, str] = {}
        with self._lock:
            for place in range(len(piece.address)):
                reason = self._begin_one(piece.part(slice(place, place + 1)))
                if reason is not None:
                    failed[place] = reason
            event = self._device.make_event()
            event.record(self._stream)
        return Begun(event, failed)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        self._ring.settle()

    def close(self) -> None:
        """Free states and handle; nothing may be under way."""
        for state in self._states:
            state.close()
        self._handle.close()

    def _begin_one(self, one: Piece) -> str | None:
        entry = self._ring.next()
        target = np.zeros(1, IMAGE)
        target["channel"][0, 0] = one.target[0]
        target["pitch"][0, 0] = one.pitch[0]
        entry.keep = one, target
        try:
            entry.state.decode(int(one.address[0]), int(one.size[0]), target, entry.stream.handle)
        except NvjpegError as error:
            entry.stream.synchronize()
            return str(error)
        entry.event.record(entry.stream)
        self._stream.wait(entry.event)
        return None

    def _make_state(self) -> State:
        self._states.append(self._handle.make_state())
        return self._states[-1]
