"""Block: memory that grows to what the largest batch needs, and stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from gpubeton.gpu.device import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

M = TypeVar("M", bound=Memory)

_STEP = 1 << 20


class Block(Generic[M]):
    """Device or pinned memory that grows when a batch needs more, by an eighth more than that.

    So after the first batches nothing is allocated any more; allocating device memory stops everything on the GPU.

    Parameters
    ----------
    allocate : callable
        Allocates a number of bytes: `Device.allocate` or `Device.allocate_pinned`.
    """

    def __init__(self, allocate: Callable[[int], M]) -> None:
        self._allocate = allocate
        self._memory: M | None = None

    def reserve(self, nbytes: int) -> M:
        """Have at least so much memory. What was in it is lost if it grows; nobody may be using it.

        Parameters
        ----------
        nbytes : int
            Bytes wanted.

        Returns
        -------
        Memory
            At least so much.

        Raises
        ------
        DeviceError
            If there is not enough.
        """
        if self._memory is None or self._memory.nbytes < nbytes:
            self.free()
            wanted = max(nbytes + nbytes // 8, 1)
            self._memory = self._allocate(-(-wanted // _STEP) * _STEP)
        return self._memory

    def free(self) -> None:
        """Free the memory; nobody may be using it."""
        if self._memory is not None:
            self._memory.free()
            self._memory = None

    @property
    def nbytes(self) -> int:
        """Bytes that it has now."""
        return 0 if self._memory is None else self._memory.nbytes
