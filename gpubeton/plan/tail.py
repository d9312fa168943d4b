"""Tail: the operations of a pipeline that run one after another on a finished batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import PipelineError
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.dtypes import is_torch_dtype
from gpubeton.pipeline.noting import noting
from gpubeton.pipeline.operation import Memory, Operation, operation_name
from gpubeton.pipeline.ragged import is_ragged
from gpubeton.pipeline.state import State
from gpubeton.plan.branch_point import BranchPoint
from gpubeton.plan.philox import uniform
from gpubeton.plan.shared import Shared, SharedMemory
from gpubeton.plan.snapshot import snapshot
from gpubeton.plan.user_code import allocate, call_code, plain_code
from gpubeton.transforms.transform import BatchKey, Transform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_NO_FIELD = 0xFFFF
"""Field number of the random numbers that operations of several fields share."""


@dataclass(frozen=True, eq=False)
class TailStep:
    """One operation of a tail.

    Parameters
    ----------
    operation : Operation
        A transform, applied as it is, or a user's operation.
    before : State
        The batch that it meets.
    stream : int or None
        Operation number of its random numbers, None if it draws none.
    memory : AllocationQuery, sequence of AllocationQuery, or None
        What a user's operation asked for.
    code : callable or None
        The function of a user's operation, compiled where it asked for that.
    shared_memory : SharedMemory or None
        What a user's operation has in common with its other places in the pipelines.
    """

    operation: Operation
    before: State
    stream: int | None = None
    memory: Memory = None
    code: Callable[..., Any] | None = None
    shared_memory: SharedMemory | None = None

    def run(self, batch: Any, seed: int, epoch: int, samples: NDArray[np.uint64], shared: Shared) -> Any:
        """Carry the operation out.

        Parameters
        ----------
        batch : ndarray or torch.Tensor, shape (N, ...)
            The batch; it may be changed in place.
        seed, epoch : int
            What random parameters depend on, together with the samples.
        samples : ndarray of uint64, shape (N,)
            Sample ids.
        shared : Shared
            What the pipelines of this batch have in common.

        Returns
        -------
        ndarray or torch.Tensor
            The result, often a view of `batch`.
        """
        if isinstance(self.operation, BranchPoint):
            shared.keep(self.operation.copy_of, batch)
            return batch
        if isinstance(self.operation, Transform):
            operation: Any = self.operation
            numbers = None if self.stream is None else partial(uniform_of_rows, seed, epoch, samples, self.stream)
            draw = operation.draw_batch(BatchKey(seed, epoch, samples), numbers, self.before)
            return operation.apply(batch, draw, **({"take": shared.take} if operation.takes_memory else {}))
        if self.code is None:
            raise PipelineError(f"{self.operation!r} has no code")
        arguments = [batch, allocate(self.memory, len(samples), shared.take)]
        if getattr(self.code, "with_indices", False) or getattr(plain_code(self.code), "with_indices", False):
            arguments.append(samples)
        if self.shared_memory is not None:
            arguments.append(shared.memory(self.shared_memory, len(samples)))
        return call_code(self.code, *arguments)

    @property
    def place(self) -> str:
        """The operation, and where the code of a user's stands: an error in compiled code does not say it."""
        name = operation_name(self.operation)
        source = getattr(plain_code(self.code), "__code__", None) if self.code is not None else None
        return name if source is None else f"{name} ({source.co_filename}:{source.co_firstlineno})"

    def __str__(self) -> str:
        if self.code is None:
            return "after, on the finished batch"
        return "after, plain Python" if self.code is plain_code(self.code) else "after, compiled"


@dataclass(frozen=True, eq=False)
class Tail:
    """Operations that run one after another on a finished batch.

    Parameters
    ----------
    steps : tuple of TailStep
        The operations in order.
    state : State
        What the last of them leaves behind.

    Examples
    --------
    >>> from gpubeton.transforms import Squeeze, ToTensor
    >>> state = State(jit_mode=True, device="cpu", shape=(1,), dtype=np.dtype("int64"))
    >>> tail = compile_tail([ToTensor(), Squeeze()], state, field_number=1)
    >>> tail.run(np.array([[3], [4]]), seed=0, epoch=0, samples=np.arange(2, dtype="u8"))
    tensor([3, 4])
    """

    steps: tuple[TailStep, ...]
    state: State

    def run(self, batch: Any, seed: int, epoch: int, samples: NDArray[np.uint64], shared: Shared | None = None) -> Any:
        """Carry all operations out.

        Parameters
        ----------
        batch : ndarray or torch.Tensor, shape (N, ...)
            The finished batch; operations may change it in place and may return views of it.
        seed, epoch : int
            What random parameters depend on, together with the samples.
        samples : ndarray of uint64, shape (N,)
            Sample ids.
        shared : Shared, optional
            What the pipelines of this batch have in common; by default there is no other.

        Returns
        -------
        ndarray or torch.Tensor
            The batch as the pipeline leaves it.
        """
        shared = Shared() if shared is None else shared
        for step in self.steps:
            with noting(f"in {step.place}"):
                batch = step.run(batch, seed, epoch, samples, shared)
        return batch


def compile_tail(operations: Sequence[Any], state: State, *, field_number: int, ordinal: int = 0) -> Tail:
    """Prepare the operations that follow what has been fused, or the decoder of a field without images.

    Parameters
    ----------
    operations : sequence of Operation or torch.nn.Module
        The operations in order; they are copied.
    state : State
        The batch that the first of them meets.
    field_number : int
        Number of the field in the file, which keeps its random numbers apart from other fields'.
    ordinal : int
        How many random operations stand before them in the pipeline.

    Returns
    -------
    Tail
        Ready to run.

    Raises
    ------
    PipelineError
        If an operation does not fit what stands before it.
    """
    steps, streams = [], Streams(field_number, ordinal)
    for operation in snapshot(operations):
        step, state = compile_step(operation, state, streams.next(operation))
        steps.append(step)
    return Tail(tuple(steps), state)


class Streams:
    """Deals out the operation numbers under which the operations of one pipeline draw their random numbers.

    Parameters
    ----------
    field_number : int
        Number of the field in the file.
    ordinal : int
        How many random operations stand before the first that is asked for.

    Examples
    --------
    >>> from gpubeton.transforms import ImageMixup, RandomHorizontalFlip, ToTensor
    >>> streams = Streams(field_number=1)
    >>> [streams.next(one) for one in (RandomHorizontalFlip(), ToTensor(), RandomHorizontalFlip())]
    [65536, None, 65537]
    >>> streams.next(ImageMixup(1.0, False)) == Streams(field_number=2).next(ImageMixup(1.0, False))
    True
    """

    def __init__(self, field_number: int, ordinal: int = 0) -> None:
        self._field_number = field_number
        self._ordinal = ordinal

    def next(self, operation: Operation) -> int | None:
        """Give the number of the next operation of the pipeline.

        Parameters
        ----------
        operation : Operation
            The operation.

        Returns
        -------
        int or None
            Its own number; that of its kind, whatever the field, if it shares its random numbers; None if it draws
            none.
        """
        if not getattr(operation, "is_random", False):
            return None
        shared: int | None = getattr(operation, "shared_numbers", None)
        if shared is not None:
            return stream_number(_NO_FIELD, shared)
        self._ordinal += 1
        return stream_number(self._field_number, self._ordinal - 1)


def stream_number(field_number: int, ordinal: int) -> int:
    """Operation number under which an operation draws its random numbers.

    Parameters
    ----------
    field_number : int
        Number of the field in the file, below 2**16 - 1.
    ordinal : int
        How many random operations stand before it in the field's pipeline, the decoder counted.

    Returns
    -------
    int
        The field number in the upper bits, the ordinal in the lower 16.

    Examples
    --------
    >>> stream_number(1, 2)
    65538
    """
    return field_number << 16 | ordinal


def compile_step(operation: Operation, state: State, stream: int | None) -> tuple[TailStep, State]:
    """Prepare one operation of a tail.

    Parameters
    ----------
    operation : Operation
        The operation; it is asked for its state, memory and code.
    state : State
        The batch that it meets.
    stream : int or None
        Operation number of its random numbers.

    Returns
    -------
    tuple of TailStep and State
        The step, and what it leaves behind.

    Raises
    ------
    PipelineError
        If the operation does not fit there.
    """
    if isinstance(operation, Transform) and is_ragged(state) and not operation.takes_ragged:
        raise PipelineError(
            f"{type(operation).__name__} works on arrays of one shape, but here the batch is a Ragged: its samples "
            f"differ in length. Write an operation that changes ragged.values, or decode with padding."
        )
    after, memory = declare(operation, state)
    if isinstance(operation, Transform):
        return TailStep(operation, state, stream), after
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
            "memory that was asked for: return it without calling it"
        )
    if after.jit_mode:
        code, fill = Compiler.compile(code), None if fill is None else Compiler.compile(fill)
    common = None
    if fill is not None:
        common = SharedMemory(operation.copy_of or operation, operation.declare_shared_memory(state), fill)
    return TailStep(operation, state, stream, memory, code, common), after


def declare(operation: Operation, state: State) -> tuple[State, Memory]:
    """Ask an operation for its state and memory, and bring the state's element type into one form.

    Parameters
    ----------
    operation : Operation
        The operation.
    state : State
        The batch that it meets.

    Returns
    -------
    tuple of State and (AllocationQuery, sequence of AllocationQuery, or None)
        What it leaves behind, with a ``numpy.dtype`` or ``torch.dtype``, and the memory that it wants.

    Raises
    ------
    PipelineError
        If the operation says something else.
    """
    declared: Any = operation.declare_state_and_memory(state)
    if not (isinstance(declared, tuple) and len(declared) == 2 and isinstance(declared[0], State)):
        raise PipelineError(
            f"{type(operation).__name__}.declare_state_and_memory returned {declared!r}; expected two things: the "
            "State that the operation leaves behind, and an AllocationQuery or None"
        )
    after, memory = declared
    if is_torch_dtype(after.dtype):
        return after, memory
    return replace(after, shape=tuple(after.shape), dtype=np.dtype(after.dtype)), memory


def uniform_of_rows(
    seed: int,
    epoch: int,
    samples: NDArray[np.uint64],
    stream: int,
    count: int,
    rows: NDArray[np.intp] | None = None,
) -> NDArray[np.float64]:
    """Random numbers for one operation; with its first four arguments given, a `gpubeton.pipeline.uniform.Uniform`.

    Parameters
    ----------
    seed, epoch : int
        The loader's seed and the number of the epoch.
    samples : ndarray of uint64, shape (N,)
        Sample ids.
    stream : int
        The operation's number.
    count : int
        Numbers per sample.
    rows : ndarray of intp, shape (R,), optional
        Rows of the batch for which they are wanted.

    Returns
    -------
    ndarray of float64, shape (N, count) or (R, count)
        Each at least 0 and less than 1.
    """
    return uniform(seed, epoch, samples if rows is None else samples[rows], stream, count)
