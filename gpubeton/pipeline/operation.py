"""Operation: one step of a pipeline, the base of every step that a user writes, and its random numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gpubeton.pipeline.allocation_query import AllocationQuery

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.pipeline.state import State

Memory = AllocationQuery | Sequence[AllocationQuery] | None
"""What an operation may ask for: nothing, one array, or several."""


class Uniform(Protocol):
    """Uniform random numbers of the samples of one batch, for one operation."""

    # Asking twice gives the same numbers twice: column k of sample n depends only on the seed, the epoch, the sample
    # and the operation.
    def __call__(self, count: int, rows: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        """Return the first `count` numbers of each sample."""
        # `rows` of the batch: intp (R,), by default all N; returns float64 (R, count), at least 0 and less than 1
        ...


class Operation(ABC):
    """A step of a pipeline: declares what it makes of a batch, and gives the function that does it.

    Derive from it to write an operation. `generate_code` returns ``code(batch, memory)``, or
    ``code(batch, memory, indices)`` if the function has a true attribute ``with_indices``; ``is_parallel`` lets a
    compiled function use ``Compiler.get_iterator()`` over several threads. The function is compiled with Numba if the
    new state has ``jit_mode=True``, and otherwise called as it is.

    Examples
    --------
    >>> import numpy as np
    >>> class Invert(Operation):
    ...     def generate_code(self):
    ...         def invert(images, memory):
    ...             memory[:] = 255 - images
    ...             return memory
    ...         return invert
    ...     def declare_state_and_memory(self, previous_state):
    ...         return previous_state, AllocationQuery(previous_state.shape, previous_state.dtype)
    >>> Invert().generate_code()(np.array([[1]], "uint8"), np.empty((1, 1), "uint8"))
    array([[254]], dtype=uint8)
    """

    field: Any = None
    """The field whose pipeline this is, set by `accept_field`."""

    metadata: Any = None
    """Structured ndarray (N,): the rows of the whole file, set by `accept_globals`."""

    memory_read: Any = None
    """A function (offset -> bytes of that region as uint8 ndarray), set by `accept_globals`."""

    copy_of: Any = None
    """The object in the user's pipeline of which a loader made this copy, set by the loader."""

    generation: int | None = None
    """What ``Compiler.generation`` was when the loader made this copy, set by the loader."""

    def accept_field(self, field: Any) -> None:
        """Learn the field whose pipeline this operation is part of.

        Parameters
        ----------
        field : gpubeton.fields.Field
            The field, as read from the file.
        """
        self.field = field

    def accept_globals(self, metadata: Any, memory_read: Callable[..., Any]) -> None:
        """Learn what decoders need: the file's metadata and a way to read its regions.

        Parameters
        ----------
        metadata : structured ndarray, shape (N,)
            One row per sample of the file.
        memory_read : callable
            Gives the bytes of a region; may be called in compiled code.
        """
        self.metadata = metadata
        self.memory_read = memory_read

    @abstractmethod
    def generate_code(self) -> Callable[..., Any]:
        """Return the function that carries the operation out on a batch."""

    @abstractmethod
    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        """Declare the state after the operation and the memory that it needs.

        Parameters
        ----------
        previous_state : State
            The state after the operation before.

        Returns
        -------
        tuple of State and (AllocationQuery, sequence of AllocationQuery, or None)
            The new state and the memory wanted.
        """

    def declare_shared_memory(self, previous_state: State) -> Memory:
        """Declare the memory that this object needs once for a batch, in however many pipelines it is.

        Parameters
        ----------
        previous_state : State
            The state after the operation before, in the first of the pipelines.

        Returns
        -------
        AllocationQuery, sequence of AllocationQuery, or None
            The memory wanted.
        """
        return None

    def generate_code_for_shared_state(self) -> Callable[..., Any] | None:
        """Return the function that fills the shared memory, once for each batch.

        It is called as ``fill(shared)``. The function of `generate_code` then gets `shared` as a further argument, the
        last: ``code(batch, memory, shared)`` or ``code(batch, memory, indices, shared)``. So one object in the
        pipelines of images and of labels can use the same random numbers in both.

        Returns
        -------
        callable or None
            Compiled if the operation is; None, as by default, if nothing is shared.
        """
        return None


def operation_name(operation: Operation) -> str:
    """Name an operation for people."""
    return type(operation).__name__ if type(operation).__repr__ is object.__repr__ else repr(operation)
