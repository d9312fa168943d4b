"""Run operations on whole batches, and the functions of users' operations and decoders."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._cpu.user_calls import take_nopython_errors
from gpubeton._plan.batch_ops import declare, python_code
from gpubeton._plan.philox import BatchNumbers
from gpubeton._plan.snapshot import BranchPoint
from gpubeton.errors import OperationError, add_error_note
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.pixel_type import is_torch_dtype, pixel_type, torch_dtype
from gpubeton.transforms.step_transform import RowTransform
from gpubeton.transforms.transform import BatchKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton._engine.buffers import ArrayPool
    from gpubeton._engine.sources import FetchedRegions, Source
    from gpubeton._plan.batch_ops import BatchOp, BatchOps, SharedMemory
    from gpubeton._plan.program import ImageProgram
    from gpubeton.pipeline.operation import Memory, Operation
    from gpubeton.pipeline.state import State

# Numba's default threading layer ends the process when two threads run parallel code at once.
ONE_PARALLEL_REGION = threading.Lock()


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
        if refusals := take_nopython_errors():
            raise OperationError("; ".join(refusals)) from error
        raise
    # Parallel code cannot raise.
    if refusals := take_nopython_errors():
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
    for base in type(decoder).__mro__:
        if "decode" in vars(base) or "boxes" in vars(base):
            return False
        if "generate_code" in vars(base):
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


class Shared:
    """Memory and results that the pipelines of one batch share."""

    # Used by one thread, for one batch. Keyed by identity: objects of users may be equal, or have no hash.

    def __init__(self, take: Callable[..., Any] = np.empty, carry_out: Callable[..., bool] | None = None) -> None:
        self.take = take  # take(shape, dtype) gives an uninitialized array
        self.carry_out = carry_out  # carries out step rows where a batch is, if it can
        self._memory: dict[int, Any] = {}
        self._results: dict[int, Any] = {}

    def memory(self, query: SharedMemory, count: int) -> Any:
        """Give the memory of an object for `count` samples, filled; the first request for an object decides."""
        key = id(query.owner)
        if key not in self._memory:
            memory = allocate(query.query, count, self.take)
            call_code(query.fill, memory)
            self._memory[key] = memory
        return self._memory[key]

    def keep(self, owner: Any, batch: Any) -> None:
        """Keep a copy of the result of an operation for the pipelines that continue from there."""
        # A copy, since the next operation may change the batch in place.
        self._results[id(owner)] = _copy(batch)

    def result(self, owner: Any, *, is_last: bool) -> Any:
        """Give the result of an operation to the caller, who may change it."""
        return self._results.pop(id(owner)) if is_last else _copy(self._results[id(owner)])


def run_batch_ops(
    ops: BatchOps, batch: Any, seed: int, epoch: int, draw_ids: NDArray[np.uint64], shared: Shared | None = None
) -> Any:
    """Run all operations on an array or tensor of shape (N, ...), which they may change in place or return views of."""
    shared = Shared() if shared is None else shared
    for op in ops.steps:
        operation: Any = op.operation
        try:
            if op.needs_batch_only:
                batch = operation.apply(batch, None)
            else:
                batch = _run(op, batch, BatchKey(seed, epoch, draw_ids), shared)
        except Exception as error:
            add_error_note(error, op.place(), is_first=True)
            raise
    return batch


def finish_images(
    program: ImageProgram,
    array: Any,  # (N, height, width, channels) array or tensor
    seed: int,
    epoch: int,
    draw_ids: NDArray[np.uint64],  # (N,) see `gpubeton.pipeline.draw_ids`
    shared: Shared | None = None,
) -> Any:
    """Run the operations after the pass over the pixels on the images that an executor wrote."""
    batch, is_numpy = array, isinstance(array, np.ndarray)
    if is_numpy and not pixel_type(program.dtype).has_numpy:
        batch = pixel_type(program.dtype).tensor(array)
    elif program.halves_as_int16:
        batch = array.view(np.int16 if is_numpy else torch_dtype("int16"))
    return run_batch_ops(program.ops, batch, seed, epoch, draw_ids, shared)


def _run(op: BatchOp, batch: Any, key: BatchKey, shared: Shared) -> Any:
    operation: Any = op.operation
    if op.code is not None:
        arguments = [batch, allocate(op.memory, len(key.samples), shared.take)]
        if getattr(op.code, "with_indices", False) or getattr(python_code(op.code), "with_indices", False):
            arguments.append(key.samples)
        if op.shared_memory is not None:
            arguments.append(shared.memory(op.shared_memory, len(key.samples)))
        return call_code(op.code, *arguments)
    # Only transforms have no code. isinstance would ask an abstract class, which takes longer than most of them.
    if type(operation) is BranchPoint:
        shared.keep(operation.copy_of, batch)
        return batch
    numbers = None if op.rng_stream is None else BatchNumbers(*key, op.rng_stream)
    draw = operation.draw_batch(key, numbers, op.before)
    carry_out = shared.carry_out if isinstance(operation, RowTransform) else None
    if carry_out is not None and carry_out(batch, lambda: operation.rows(draw, op.before)):
        return batch
    return operation.apply(batch, draw, take=shared.take) if operation.takes_memory else operation.apply(batch, draw)


def _copy(batch: Any) -> Any:
    """Copy with the same memory format, e.g. channels_last."""
    return batch.clone() if hasattr(batch, "clone") else batch.copy(order="K")
