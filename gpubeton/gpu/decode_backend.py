"""DecodeBackend: a JPEG decoder as the feeder calls it, with its requests and their handles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gpubeton.plan.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.gpu.cuda import Device, Event


class DecodeRequest(NamedTuple):
    """Images for one call of a backend."""

    address: NDArray[np.uint64]  # (M,): compressed bytes in pinned memory, unchanged until the batch is collected
    size: NDArray[np.uint64]  # (M,)
    target: NDArray[np.uint64]  # (M,): address of the first pixel in the arena
    pitch: NDArray[np.int32]  # (M,): bytes from one row of pixels to the next
    height: NDArray[np.int32]  # (M,): in pixels; markers and metadata agree
    width: NDArray[np.int32]  # (M,)
    draws: NDArray[np.int32]  # (M, D): the crops; pixels outside may stay undecoded if one output uses the image

    def part(self, places: Any) -> DecodeRequest:
        """Take some of its images."""
        return DecodeRequest(*(column[places] for column in self))


class DecodeHandle(NamedTuple):
    """A request under way."""

    event: Event | None  # the end of decoding; None if nothing was begun
    failed: dict[int, str]  # the reason for each refused image, by its index in the request
    started: Event | None = None  # timed, as `event` is then: the beginning of decoding


class DecodeBackend(Protocol):
    """A JPEG decoder; `gpubeton.plan.lanes` chooses one for each image."""

    @property
    def most(self) -> int:
        """Most images of a request."""

    def takes(self, request: DecodeRequest, tables: NDArray[np.int32], sampling: NDArray[np.int32]) -> Any:
        """Return for each image whether the backend decodes it, (M,) bool; the CPU decodes the others."""

    def begin(self, request: DecodeRequest) -> DecodeHandle:
        """Begin to decode; may wait until an earlier request is done."""

    def settle(self) -> None:
        """Wait until nothing is under way."""

    def close(self) -> None:
        """Free its resources; nothing may be under way."""


@dataclass(eq=False)
class DecodeBackends:
    """The decode backends of a GPU, and a note on each: its settings, or why it is missing."""

    backends: dict[Lane, DecodeBackend] = field(default_factory=dict)
    notes: dict[Lane, str] = field(default_factory=dict)
    takes_entries: bool = False  # whether our own decoder takes JPEGs with entry points; the others take the rest
    warning: str = ""  # why the engines that the GPU has cannot be used


def with_entries(open_backends: Callable[[Device], DecodeBackends], device: Device) -> DecodeBackends:
    """Open backends, and let our own decoder take the JPEGs with entry points."""
    opened = open_backends(device)
    opened.takes_entries = True
    opened.notes[Lane.OWN] = "baseline JPEGs with entry points or restart markers"
    return opened
