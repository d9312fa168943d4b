"""StateRing: the states of one lane, used in turn, each with a stream of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton.gpu.device import Device, Event, Stream

S = TypeVar("S")


@dataclass(eq=False)
class StateEntry(Generic[S]):
    """A state of nvJPEG, and where its work goes.

    Parameters
    ----------
    state : S
        The state.
    stream : Stream
        Where its work goes.
    event : Event
        Behind its latest work; a new one for each, because others may still ask the one before.
    batch : int
        Images that it was initialised for; 0 if it was not.
    keep : object
        What its latest work reads.
    """

    state: S
    stream: Stream
    event: Event
    batch: int = 0
    keep: object = None


class StateRing(Generic[S]):
    """States used in turn: the device works on the others while one is prepared.

    Parameters
    ----------
    device : Device
        Whose streams.
    make_state : callable
        Makes a state.
    count : int
        How many.
    is_urgent : bool
        Whether their streams go before those of others.
    """

    def __init__(self, device: Device, make_state: Callable[[], S], count: int, *, is_urgent: bool = True) -> None:
        self._device = device
        self._entries = [
            StateEntry(make_state(), device.make_stream(is_urgent=is_urgent), device.make_event()) for _ in range(count)
        ]

    def next(self, batch: int = 0) -> StateEntry[S]:
        """Wait for a state that has nothing to do.

        Parameters
        ----------
        batch : int
            Images that it is wanted for. A free state that is initialised for them goes before others.

        Returns
        -------
        StateEntry
            The state, from now on the youngest. The calling thread, and not a stream, has waited for its work: nvJPEG
            asks for that before a state is initialised anew.
        """
        free = [entry for entry in self._entries if entry.batch == batch and entry.event.is_done]
        entry = free[0] if free else self._entries[0]
        entry.event.synchronize()
        entry.event = self._device.make_event()
        entry.keep = None
        self._entries.remove(entry)
        self._entries.append(entry)
        return entry

    def settle(self) -> None:
        """Wait until nothing is under way."""
        for entry in self._entries:
            entry.stream.synchronize()
            entry.keep = None
