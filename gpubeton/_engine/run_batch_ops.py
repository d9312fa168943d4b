"""Run operations on whole batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._engine.user_code import allocate, call_code
from gpubeton._plan.batch_ops import python_code
from gpubeton._plan.philox import BatchNumbers
from gpubeton._plan.snapshot import BranchPoint
from gpubeton.pipeline.error_notes import add_error_note
from gpubeton.pipeline.pixel_type import pixel_type, torch_dtype
from gpubeton.transforms.transform import BatchKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton._plan.batch_ops import BatchOp, BatchOps, SharedMemory
    from gpubeton._plan.program import ImageProgram


class Shared:
    """Memory and results that the pipelines of one batch share."""

    # Used by one thread, for one batch. Keyed by identity: objects of users may be equal, or have no hash.

    def __init__(self, take: Callable[..., Any] = np.empty) -> None:
        self.take = take  # take(shape, dtype) gives an uninitialized array
        self._memory: dict[int, Any] = {}
        self._results: dict[int, Any] = {}

    def memory(self, wanted: SharedMemory, count: int) -> Any:
        """Give the memory of an object for `count` samples, filled; the first request for an object decides."""
        key = id(wanted.owner)
        if key not in self._memory:
            memory = allocate(wanted.query, count, self.take)
            call_code(wanted.fill, memory)
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
    ops: BatchOps,
    batch: Any,
    seed: int,
    epoch: int,
    samples: NDArray[np.uint64],  # (N,) sample ids
    shared: Shared | None = None,
) -> Any:
    """Run all operations on an array or tensor of shape (N, ...), which they may change in place or return views of."""
    shared = Shared() if shared is None else shared
    for op in ops.steps:
        operation: Any = op.operation
        try:
            if op.needs_batch_only:
                batch = operation.apply(batch, None)
            else:
                batch = _run(op, batch, BatchKey(seed, epoch, samples), shared)
        except Exception as error:
            add_error_note(error, op.place())
            raise
    return batch


def finish_images(
    program: ImageProgram,
    array: Any,  # (N, height, width, channels) array or tensor
    seed: int,
    epoch: int,
    samples: NDArray[np.uint64],  # (N,) sample ids
    shared: Shared | None = None,
) -> Any:
    """Run the operations after the pass over the pixels on the images that an executor wrote."""
    batch, is_numpy = array, isinstance(array, np.ndarray)
    if is_numpy and not pixel_type(program.dtype).has_numpy:
        batch = pixel_type(program.dtype).tensor(array)
    elif program.halves_as_int16:
        batch = array.view(np.int16 if is_numpy else torch_dtype("int16"))
    return run_batch_ops(program.ops, batch, seed, epoch, samples, shared)


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
    return operation.apply(batch, draw, take=shared.take) if operation.takes_memory else operation.apply(batch, draw)


def _copy(batch: Any) -> Any:
    """Copy with the same memory format, e.g. channels_last."""
    return batch.clone() if hasattr(batch, "clone") else batch.copy(order="K")
