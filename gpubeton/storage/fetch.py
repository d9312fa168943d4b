"""What every storage offers: regions are asked for ahead of time, awaited, used by address and given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Fetch(Protocol):
    """Regions on their way into memory."""

    @property
    def is_ready(self) -> bool:
        """Whether `addresses` would return (or raise) at once."""
        ...

    def addresses(self) -> NDArray[np.uint64]:
        """Wait until every byte is there."""
        # returns uint64 (N,)
        ...

    def release(self) -> None:
        """Say that the bytes are no longer needed. Nobody may use the addresses from now on."""
        ...


class Storage(Protocol):
    """The bytes of the files of a dataset."""

    @property
    def is_pinned(self) -> bool:
        """Whether regions come into page-locked memory, which a GPU reads where it is."""
        ...

    def fetch(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> Fetch:
        """Ask for regions; returns at once."""
        # offset, size: uint64 (N,)
        ...

    def close(self) -> None:
        """End threads and close files. No fetch may be in use any more."""
        ...
