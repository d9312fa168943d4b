"""Shared: what the pipelines of one batch have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.plan.user_code import allocate, call_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton.pipeline.operation import Memory


@dataclass(frozen=True, eq=False)
class SharedMemory:
    """Memory that one object of the user's gets once for each batch, in however many pipelines it stands.

    Parameters
    ----------
    owner : object
        The object.
    query : AllocationQuery, sequence of AllocationQuery, or None
        What it asked for.
    fill : callable
        Its function that fills the memory, compiled where it asked for that.
    """

    owner: Any
    query: Memory
    fill: Callable[..., Any]


class Shared:
    """What the pipelines of one batch have in common: memory, and results from which several go on.

    Used by one thread, for one batch.

    Parameters
    ----------
    take : callable
        ``take(shape, dtype)`` gives memory for arrays, as ``numpy.empty`` does; a loader's is used again once nobody
        refers to the array any more.

    Attributes
    ----------
    take : callable
        The same.
    """

    def __init__(self, take: Callable[..., Any] = np.empty) -> None:
        self.take = take
        # By identity: objects of users may be equal, or have no hash.
        self._memory: dict[int, Any] = {}
        self._results: dict[int, Any] = {}

    def memory(self, wish: SharedMemory, count: int) -> Any:
        """Give the memory of an object, filled.

        Parameters
        ----------
        wish : SharedMemory
            What the object wants; of several wishes for one object, the first counts.
        count : int
            Number of samples N.

        Returns
        -------
        ndarray, torch.Tensor, tuple of them, or None
            Each of shape (N, ...).

        Examples
        --------
        >>> import numpy as np
        >>> from gpubeton.pipeline.allocation_query import AllocationQuery
        >>> wish = SharedMemory("owner", AllocationQuery((), np.dtype("int64")), lambda memory: memory.fill(7))
        >>> shared = Shared()
        >>> shared.memory(wish, 2)
        array([7, 7])
        >>> shared.memory(wish, 2) is shared.memory(wish, 2)
        True
        """
        key = id(wish.owner)
        if key not in self._memory:
            memory = allocate(wish.query, count, self.take)
            call_code(wish.fill, memory)
            self._memory[key] = memory
        return self._memory[key]

    def keep(self, owner: Any, batch: Any) -> None:
        """Keep what an operation left behind, for those pipelines that go on from there.

        Parameters
        ----------
        owner : object
            The user's operation.
        batch : ndarray or torch.Tensor, shape (N, ...)
            What it left behind; it is copied, as the next operation may change it in place.
        """
        self._results[id(owner)] = _copy(batch)

    def result(self, owner: Any, *, is_last: bool) -> Any:
        """Give what an operation left behind.

        Parameters
        ----------
        owner : object
            The user's operation.
        is_last : bool
            Whether nobody else will ask for it.

        Returns
        -------
        ndarray or torch.Tensor, shape (N, ...)
            It belongs to the caller.
        """
        return self._results.pop(id(owner)) if is_last else _copy(self._results[id(owner)])


def _copy(batch: Any) -> Any:
    """A copy with the same memory format, e.g. channels_last."""
    return batch.clone() if hasattr(batch, "clone") else batch.copy(order="K")
