"""BranchOutput: one output of a batch that goes on from another one's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpubeton.engine.run_batch_ops import run_batch_ops
from gpubeton.engine.tail_lines import tail_lines
from gpubeton.errors import PipelineError
from gpubeton.pipeline.operation import Operation, operation_name
from gpubeton.plan.batch_ops import BatchOps, compile_batch_ops
from gpubeton.plan.branch_point import BranchPoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.engine.run_batch_ops import Shared
    from gpubeton.engine.sources import Source


@dataclass(frozen=True, eq=False)
class BranchOutput:
    """An output that begins with what an operation in another output's pipeline left behind.

    Parameters
    ----------
    name : str
        Name of the output.
    source : Source
        The field that the other output is made of.
    parent : str
        Name of the other output.
    operation : object
        The user's operation.
    is_last : bool
        Whether no output that is made later goes on from it.
    tail : BatchOps
        What follows it.
    """

    name: str
    source: Source
    parent: str
    operation: Any
    is_last: bool
    tail: BatchOps

    @classmethod
    def compile(
        cls,
        name: str,
        number: int,
        parent: str,
        origin: tuple[Source, BatchOps],
        operation: Any,
        operations: Sequence[Operation],
        *,
        is_last: bool,
        left_on: str | None = None,
    ) -> BranchOutput:
        """Prepare an output.

        Parameters
        ----------
        name : str
            Its name.
        number : int
            Keeps its random numbers apart from other outputs'.
        parent : str
            Name of the output that it branches off.
        origin : tuple of Source and BatchOps
            That output's field, and its tail with a `BranchPoint`.
        operation : object
            The user's operation before that.
        operations : sequence of Operation
            What follows in this output, copies of the user's.
        is_last : bool
            Whether no output that is made later goes on from it.
        left_on : str, optional
            The GPU on which a tensor is left at the end.

        Returns
        -------
        BranchOutput
            Ready to make batches.

        Raises
        ------
        PipelineError
            If the operations do not fit each other.
        """
        source, parents_tail = origin
        (state,) = (
            step.before
            for step in parents_tail.steps
            if isinstance(step.operation, BranchPoint) and step.operation.copy_of is operation
        )
        try:
            tail = compile_batch_ops(operations, state, field_number=number, left_on=left_on)
        except PipelineError as error:
            raise PipelineError(f"output {name!r}: {error}") from error
        return cls(name, source, parent, operation, is_last, tail)

    def make(self, samples: NDArray[np.uint64], seed: int, epoch: int, shared: Shared) -> Any:
        """Go on from what the other output has kept.

        Parameters
        ----------
        samples : ndarray of uint64, shape (N,)
            Sample ids.
        seed, epoch : int
            What random parameters depend on, together with the samples.
        shared : Shared
            Has what the other output has kept.

        Returns
        -------
        ndarray or torch.Tensor
            What the pipeline leaves behind.
        """
        batch = shared.result(self.operation, is_last=self.is_last)
        return run_batch_ops(self.tail, batch, seed, epoch, samples, shared)

    def explain(self) -> str:
        """Describe, a line for each operation, what runs where."""
        return tail_lines(self.name, [(operation_name(self.operation), f"in {self.parent!r}")], self.tail)
