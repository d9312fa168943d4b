"""Storage and Fetch: what every way to bring the bytes of files into memory offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Fetch(Protocol):
    """Regions on their way into memory."""

    @property
    def is_ready(self) -> bool:
        """Whether `addresses` would return at once. If it would raise, the batches before it are finished first."""
        ...

    def addresses(self) -> NDArray[np.uint64]:
        """Wait until every byte is there; give the address of each region, uint64 (N,), good until `release`."""
        ...

    def release(self) -> None:
        """Release the memory. The addresses must not be used any more."""
        ...


class Storage(Protocol):
    """The bytes of the files of a dataset."""

    @property
    def is_pinned(self) -> bool:
        """Whether regions come into page-locked memory, which a GPU reads where it is."""
        ...

    def fetch(self, offset: NDArray[np.uint64], size: NDArray[np.uint64], batch: int | None = None) -> Fetch:
        """Request regions by global offset and size, uint64 (N,) each; returns at once.

        `batch` is the number of the batch whose regions they are, if they are all of one; batches come in order.
        """
        ...

    @property
    def is_remote(self) -> bool:
        """Whether regions come anew each time that they are fetched, from another machine or from its cache here."""
        ...

    def reload(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> bool:
        """Let damaged regions, (N,) each, come anew at the next fetch; False if they come from this machine alone."""
        ...

    def interrupt(self) -> None:
        """End the waiting for other machines, with `LoaderClosedError`; called from any thread."""
        ...

    def close(self) -> None:
        """End threads and close files. No fetch may be in use any more."""
        ...
