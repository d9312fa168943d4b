"""DecodeBackend: one way to decode JPEGs into the arena, as the feeder calls it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.gpu.device import Event
    from gpubeton.plan.lanes import Lane


class DecodeRequest(NamedTuple):
    """Images for one call of a decoder.

    Parameters
    ----------
    address, size : ndarray of uint64, shape (M,)
        Their bytes, in pinned memory; to stay as they are until the piece is done.
    target : ndarray of uint64, shape (M,)
        Where in the arena each one's first pixel goes.
    pitch : ndarray of int32, shape (M,)
        Bytes from one row of pixels to the next.
    height, width : ndarray of int32, shape (M,)
        Their sizes in pixels, as their markers and the file's metadata have it.
    """

    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    target: NDArray[np.uint64]
    pitch: NDArray[np.int32]
    height: NDArray[np.int32]
    width: NDArray[np.int32]

    def part(self, places: Any) -> DecodeRequest:
        """Give some of its images.

        Parameters
        ----------
        places : slice or ndarray of int
            Which ones.

        Returns
        -------
        Piece
            A smaller piece.
        """
        return DecodeRequest(*(column[places] for column in self))


class DecodeHandle(NamedTuple):
    """What became of a piece.

    Parameters
    ----------
    event : Event or None
        Behind the decoding; None if nothing of it was begun.
    failed : dict of int to str
        Images that were refused, by their place in the piece, and why.
    """

    event: Event | None
    failed: dict[int, str]


class DecodeBackend(Protocol):
    """One way to decode JPEGs."""

    @property
    def most(self) -> int:
        """Images of a piece, at most."""
        ...

    @property
    def least(self) -> int:
        """Images of a piece, at least, to be worth it."""
        ...

    def begin(self, piece: DecodeRequest) -> DecodeHandle:
        """Begin to decode a piece; may wait until an earlier one is done."""
        ...

    def settle(self) -> None:
        """Wait until nothing is under way."""
        ...

    def close(self) -> None:
        """Free what belongs to it; nothing may be under way."""
        ...


@dataclass(eq=False)
class DecodeBackends:
    """The decode backends of a GPU, and a note on each: its settings, or why it is missing."""

    lanes: dict[Lane, DecodeBackend] = field(default_factory=dict)
    notes: dict[Lane, str] = field(default_factory=dict)
