"""Call the functions of users' operations and decoders, and allocate the memory that they request."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._plan.batch_ops import declare, python_code
from gpubeton.errors import OperationError
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.error_notes import take_nopython_errors
from gpubeton.pipeline.pixel_type import is_torch_dtype, pixel_type, torch_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton._engine.buffers import ArrayPool
    from gpubeton._engine.sources import FetchedRegions, Source
    from gpubeton.pipeline.operation import Memory, Operation
    from gpubeton.pipeline.state import State

ONE_PARALLEL_REGION = threading.Lock()
"""Numba's default threading layer ends the process when two threads run parallel code at once."""


def call_code(code: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function of a user's operation; parallel functions run one at a time."""
    try:
        if not getattr(python_code(code), "is_parallel", False):
            result = code(*arguments)
        else:
            with ONE_PARALLEL_REGION:
                Compiler.set_num_threads(Compiler.num_threads)  # Numba keeps the number per thread
                result = code(*arguments)
    except Exception as error:
        # An error from compiled code has a fixed text only.
        refusals = take_nopython_errors()
        if refusals:
            raise OperationError("; ".join(refusals)) from error
        raise
    # Parallel code cannot raise.
    refusals = take_nopython_errors()
    if refusals:
        raise OperationError("; ".join(refusals))
    return result


def allocate(memory: Memory, count: int, take: Callable[..., Any] = np.empty) -> Any:
    """Allocate uninitialized memory of shape (count, ...) for each query; `take` makes arrays."""
    if memory is None:
        return None
    if not isinstance(memory, AllocationQuery):
        return tuple(allocate(query, count, take) for query in memory)
    shape = (count, *map(int, memory.shape))  # also of numpy's integers, from a field's metadata
    on_cpu = memory.device is None or str(memory.device).startswith("cpu")
    if on_cpu and not is_torch_dtype(memory.dtype) and pixel_type(memory.dtype).has_numpy:
        return take(shape, memory.dtype)
    import torch

    return torch.empty(shape, dtype=torch_dtype(memory.dtype), device=memory.device)


def read_region(pointer: Any, storage_state: Any) -> Any:
    """Give the bytes of the region at a pointer: the ``memory_read`` of a decoder; empty for an unknown pointer."""
    rows, pointers, sizes, order = storage_state
    flat = rows.reshape(-1)
    at = np.searchsorted(pointers, pointer, side="right") - 1
    if at < 0 or pointers[at] != pointer:
        return flat[:0]
    start = order[at] * rows.shape[1]
    return flat[start : start + sizes[at]]


def brings_own_code(decoder: Operation) -> bool:
    """Tell whether a decoder works by `generate_code`, as FFCV's do, and not by ``decode`` or ``boxes``."""
    # The most derived definition decides: a class derived from the library's decoders may define `generate_code`.
    for each in type(decoder).__mro__:
        if "decode" in vars(each) or "boxes" in vars(each):
            return False
        if "generate_code" in vars(each):
            return True
    return True


class UserDecoder:
    """Calls ``code(indices, destination, metadata, storage_state)``, the function of a user's decoder."""

    def __init__(self, decoder: Operation, state: State) -> None:
        self.state, self._memory = declare(decoder, state)  # the batch after it
        code = decoder.generate_code()
        self._code: Callable[..., Any] = Compiler.compile(code) if self.state.jit_mode else code
        self.is_compiled = self._code is not code

    def decode(self, samples: NDArray[np.uint64], source: Source, regions: FetchedRegions, pool: ArrayPool) -> Any:
        """Decode the samples of a batch."""
        rows = regions.gather(source, source.max_size, pool)
        pointers, sizes = regions.offset(source).reshape(-1), regions.size(source).reshape(-1)
        # An empty region has the pointer of the next one, which sorts after it and is found.
        order = np.lexsort((sizes, pointers))
        storage_state = (rows, pointers[order], sizes[order].astype(np.int64), order)
        destination = allocate(self._memory, len(samples), pool.take)
        return call_code(self._code, samples, destination, source.column, storage_state)
