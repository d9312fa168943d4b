"""UserDecoder: a decoder of the user's own, written as FFCV's are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.dtypes import is_torch_dtype, torch_dtype
from gpubeton.plan.tail import declare
from gpubeton.plan.user_code import call_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton.engine.arrays import ArrayPool
    from gpubeton.engine.sources import Source
    from gpubeton.engine.staged import Staged
    from gpubeton.pipeline.operation import Memory, Operation
    from gpubeton.pipeline.state import State


def read_region(pointer: Any, storage_state: Any) -> Any:
    """Give the bytes of a region; what a decoder receives as ``memory_read``.

    Parameters
    ----------
    pointer : int
        Where the region begins, as the metadata have it.
    storage_state : tuple
        What the decoder's function was called with.

    Returns
    -------
    ndarray of uint8
        The bytes; none for a pointer to no region of the field in this batch.
    """
    rows, pointers, sizes, order = storage_state
    flat = rows.reshape(-1)
    at = np.searchsorted(pointers, pointer, side="right") - 1
    if at < 0 or pointers[at] != pointer:
        return flat[:0]
    start = order[at] * rows.shape[1]
    return flat[start : start + sizes[at]]


def brings_own_code(decoder: Operation) -> bool:
    """Tell whether a decoder does its work by `generate_code`, as FFCV's do.

    Parameters
    ----------
    decoder : Operation
        The decoder.

    Returns
    -------
    bool
        False for the library's decoders, and for those derived from them, or written like them, with ``decode`` or
        ``boxes``. True for all others: also for a class derived from the library's that has a `generate_code` of its
        own.

    Examples
    --------
    >>> from gpubeton.fields.decoders import IntDecoder
    >>> class Twice(IntDecoder):
    ...     def generate_code(self):
    ...         raise NotImplementedError
    >>> brings_own_code(IntDecoder()), brings_own_code(Twice())
    (False, True)
    """
    for each in type(decoder).__mro__:
        if "decode" in vars(each) or "boxes" in vars(each):
            return False
        if "generate_code" in vars(each):
            return True
    return True


class UserDecoder:
    """Calls ``code(indices, destination, metadata, storage_state)``, the function of a user's decoder.

    Parameters
    ----------
    decoder : Operation
        The decoder, which knows its field and its globals already.
    state : State
        What stands before it.

    Attributes
    ----------
    state : State
        What it leaves behind.
    is_compiled : bool
        Whether its function was compiled.
    """

    def __init__(self, decoder: Operation, state: State) -> None:
        self.state, self._memory = declare(decoder, state)
        code = decoder.generate_code()
        self._code: Callable[..., Any] = Compiler.compile(code) if self.state.jit_mode else code
        self.is_compiled = self._code is not code

    def decode(self, samples: NDArray[np.uint64], source: Source, staged: Staged, pool: ArrayPool) -> Any:
        """Decode the samples of a batch.

        Parameters
        ----------
        samples : ndarray of uint64, shape (N,)
            Sample ids.
        source : Source
            Their field.
        staged : Staged
            Their bytes.
        pool : ArrayPool
            Memory for what the decoder asked for.

        Returns
        -------
        ndarray
            Whatever the decoder's function returns.
        """
        rows = staged.gather(source, source.max_size, pool)
        pointers, sizes = staged.offset(source).reshape(-1), staged.size(source).reshape(-1)
        # Empty regions share their pointer with the one behind them, which sorts after them and is found.
        order = np.lexsort((sizes, pointers))
        storage_state = (rows, pointers[order], sizes[order].astype(np.int64), order)
        destination = _allocate(self._memory, len(samples), pool)
        return call_code(self._code, samples, destination, source.column, storage_state)


def _allocate(memory: Memory, count: int, pool: ArrayPool) -> Any:
    if memory is None:
        return None
    if not isinstance(memory, AllocationQuery):
        return tuple(_allocate(query, count, pool) for query in memory)
    shape = (count, *map(int, memory.shape))  # also of numbers from the metadata, which are numpy's
    if is_torch_dtype(memory.dtype):
        import torch

        return torch.empty(shape, dtype=torch_dtype(memory.dtype), device=memory.device)
    return pool.take(shape, memory.dtype)
