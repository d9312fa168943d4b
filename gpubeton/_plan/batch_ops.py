"""BatchOps: operations that run one after another on a whole batch, after the pass over the pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._plan.philox import RngStreams
from gpubeton._plan.snapshot import BranchPoint, snapshot
from gpubeton.errors import PipelineError
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.operation import Memory, Operation, operation_name
from gpubeton.pipeline.pixel_type import is_torch_dtype
from gpubeton.pipeline.ragged import is_ragged
from gpubeton.pipeline.state import State
from gpubeton.transforms.ops import ToDevice
from gpubeton.transforms.transform import Transform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, eq=False)
class SharedMemory:
    """Memory that a user's object gets once for each batch, however many pipelines contain it."""

    owner: Any
    query: Memory
    fill: Callable[..., Any]  # fills the memory; compiled if the operation asked for that


@dataclass(frozen=True, eq=False)
class BatchOp:
    """One operation on a whole batch: a transform, or a user's operation with its code."""

    operation: Operation
    before: State  # the batch before it
    rng_stream: int | None = None  # of its random numbers, if it draws any
    memory: Memory = None  # requested by a user's operation
    code: Callable[..., Any] | None = None  # of a user's operation, compiled if it asked for that
    shared_memory: SharedMemory | None = None

    @cached_property
    def needs_batch_only(self) -> bool:
        """Whether it is a transform that needs nothing but the batch."""
        operation = self.operation
        if not isinstance(operation, Transform) or isinstance(operation, BranchPoint):
            return False
        return (
            self.rng_stream is None
            and not operation.takes_memory
            and type(operation).draw_batch is Transform.draw_batch
        )

    def place(self) -> str:
        """Name the operation and where its code is, for a note: an error in compiled code does not name it."""
        name = operation_name(self.operation)
        source = getattr(python_code(self.code), "__code__", None) if self.code is not None else None
        return f"in {name}" if source is None else f"in {name} ({source.co_filename}:{source.co_firstlineno})"

    def __str__(self) -> str:
        if self.code is None:
            return "after, on the finished batch"
        return "after, plain Python" if self.code is python_code(self.code) else "after, compiled"


@dataclass(frozen=True, eq=False)
class BatchOps:
    """Operations that run one after another on a whole batch; `gpubeton._engine.run_batch_ops` runs them."""

    steps: tuple[BatchOp, ...]
    state: State  # the batch after the last of them


def compile_batch_ops(
    operations: Sequence[Any], state: State, *, field_number: int, ordinal: int = 0, left_on: str | None = None
) -> BatchOps:
    """Prepare the operations after the decoder, which follow `ordinal` random ones; for `left_on` see `move_to`."""
    steps, rng_streams = [], RngStreams(field_number, ordinal)
    for operation in snapshot(operations):
        step, state = compile_batch_op(operation, state, rng_streams.next(operation))
        steps.append(step)
    if move := move_to(left_on, state):
        step, state = compile_batch_op(move, state, None)
        steps.append(step)
    return BatchOps(tuple(steps), state)


def move_to(device: str | None, state: State) -> ToDevice | None:
    """Give the last operation of a pipeline whose tensors are left on a GPU; None if they are not, or are there."""
    if device is None or not is_torch_dtype(state.dtype) or state.device.type != "cpu":
        return None
    return ToDevice(device)


def compile_batch_op(operation: Operation, state: State, rng_stream: int | None) -> tuple[BatchOp, State]:
    """Prepare one operation: ask it for its state, memory and code; return also the state after it."""
    if isinstance(operation, Transform) and is_ragged(state) and not operation.takes_ragged:
        raise PipelineError(
            f"{type(operation).__name__} works on arrays of one shape, but here the batch is a Ragged: its samples "
            f"differ in length. Write an operation that changes ragged.values, or decode with padding."
        )
    after, memory = declare(operation, state)
    if isinstance(operation, Transform):
        return BatchOp(operation, state, rng_stream), after
    if after.jit_mode and is_ragged(state):
        raise PipelineError(
            f"{type(operation).__name__} is a compiled operation (jit_mode=True), but the batch is a Ragged here, "
            f"which compiled code cannot read. Declare a state with jit_mode=False."
        )
    if after.jit_mode and is_torch_dtype(state.dtype):
        raise PipelineError(
            f"{type(operation).__name__} is a compiled operation (jit_mode=True) and reads numpy arrays, but the batch "
            f"is a torch tensor here. Put it before ToTensor."
        )
    code, fill = operation.generate_code(), operation.generate_code_for_shared_state()
    if not callable(code):
        raise PipelineError(
            f"{type(operation).__name__}.generate_code returned {code!r}; expected a function of a batch and the "
            "requested memory: return it without calling it"
        )
    if after.jit_mode:
        code, fill = Compiler.compile(code), None if fill is None else Compiler.compile(fill)
    common = None
    if fill is not None:
        common = SharedMemory(operation.copy_of or operation, operation.declare_shared_memory(state), fill)
    return BatchOp(operation, state, rng_stream, memory, code, common), after


def declare(operation: Operation, state: State) -> tuple[State, Memory]:
    """Ask an operation for its state, with a ``numpy.dtype`` or ``torch.dtype``, and for its memory."""
    declared: Any = operation.declare_state_and_memory(state)
    if not (isinstance(declared, tuple) and len(declared) == 2 and isinstance(declared[0], State)):
        raise PipelineError(
            f"{type(operation).__name__}.declare_state_and_memory returned {declared!r}; expected two things: the "
            "State after the operation, and an AllocationQuery or None"
        )
    after, memory = declared
    if is_torch_dtype(after.dtype):
        return after, memory
    return replace(after, shape=tuple(after.shape), dtype=np.dtype(after.dtype)), memory


def python_code(code: Callable[..., Any]) -> Callable[..., Any]:
    """Give the Python function that was compiled; it has the attributes that the user set."""
    plain: Callable[..., Any] = getattr(code, "py_func", code)
    return plain
