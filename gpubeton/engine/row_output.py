"""RowOutput: one output of a batch that is not made of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from gpubeton.engine.run_batch_ops import run_batch_ops
from gpubeton.engine.tail_lines import tail_lines
from gpubeton.engine.user_code import UserDecoder, brings_own_code
from gpubeton.errors import PipelineError
from gpubeton.pipeline.operation import Operation, operation_name
from gpubeton.pipeline.state import State
from gpubeton.plan.batch_ops import BatchOps, compile_batch_ops, declare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.engine.arrays import ArrayPool
    from gpubeton.engine.run_batch_ops import Shared
    from gpubeton.engine.sources import Source
    from gpubeton.engine.staged import Staged
    from gpubeton.fields.base import Gather


class Decodes(Protocol):
    """A decoder that works with numpy, as `gpubeton.fields.base.RowDecoder` does."""

    def decode(self, rows: NDArray[Any], gather: Gather) -> NDArray[Any]:
        """Decode the samples of a batch from their metadata and their regions."""
        ...


@dataclass(frozen=True, eq=False)
class RowOutput:
    """An output that is decoded with numpy, or by a decoder of the user's own, and finished by a tail.

    Parameters
    ----------
    name : str
        Name of the output.
    source : Source
        The field that it is made of.
    operation : Operation
        Its decoder.
    decoder : Decodes or UserDecoder
        What does the decoding: the operation itself, or what calls its function.
    tail : BatchOps
        What follows the decoder.
    """

    name: str
    source: Source
    operation: Operation
    decoder: Decodes | UserDecoder
    tail: BatchOps

    @classmethod
    def compile(
        cls, name: str, number: int, source: Source, operations: Sequence[Operation], left_on: str | None = None
    ) -> RowOutput:
        """Prepare an output.

        Parameters
        ----------
        name : str
            Its name.
        number : int
            Keeps its random numbers apart from other outputs'.
        source : Source
            The field that it is made of.
        operations : sequence of Operation
            Decoder and what follows, copies of the user's.
        left_on : str, optional
            The GPU on which a tensor is left at the end.

        Returns
        -------
        RowOutput
            Ready to make batches.

        Raises
        ------
        PipelineError
            If the operations do not fit each other.
        """
        import torch

        operation, *rest = operations
        if hasattr(operation, "accept_extent"):
            operation.accept_extent(source.max_size)
        state = State(jit_mode=True, device=torch.device("cpu"), shape=(), dtype=np.dtype("u1"))
        decoder: Decodes | UserDecoder
        try:
            if brings_own_code(operation):
                decoder = UserDecoder(operation, state)
                state = decoder.state
            else:
                state, _ = declare(operation, state)
                decoder = cast("Decodes", operation)
            ordinal = 1 if getattr(operation, "is_random", False) else 0
            tail = compile_batch_ops(rest, state, field_number=number, ordinal=ordinal, left_on=left_on)
        except PipelineError as error:
            raise PipelineError(f"field {name!r}: {error}") from error
        return cls(name, source, operation, decoder, tail)

    def make(
        self, samples: NDArray[np.uint64], staged: Staged, seed: int, epoch: int, pool: ArrayPool, shared: Shared
    ) -> Any:
        """Decode the samples of a batch and run the tail.

        Parameters
        ----------
        samples : ndarray of uint64, shape (N,)
            Sample ids.
        staged : Staged
            Their bytes.
        seed, epoch : int
            What random parameters depend on, together with the samples.
        pool : ArrayPool
            Memory for the result.
        shared : Shared
            What the outputs of this batch have in common.

        Returns
        -------
        ndarray or torch.Tensor
            What the pipeline leaves behind.
        """

        def gather(width: int) -> NDArray[np.uint8]:
            if len(self.source.regions) == 1:
                return staged.gather(self.source, width, pool)
            raise PipelineError(
                f"field {self.name!r}: {self.operation!r} asks for the bytes of each sample's region, but each has "
                f"{len(self.source.regions)}. Its values stand in the metadata, the rows that decode() is given."
            )

        if isinstance(self.decoder, UserDecoder):
            batch = self.decoder.decode(samples, self.source, staged, pool)
        else:
            batch = self.decoder.decode(self.source.column[samples], gather)
        return run_batch_ops(self.tail, batch, seed, epoch, samples, shared)

    def explain(self) -> str:
        """Describe, a line for each operation, what runs where."""
        how = "numpy"
        if isinstance(self.decoder, UserDecoder):
            how = "compiled" if self.decoder.is_compiled else "plain Python"
        return tail_lines(self.name, [(operation_name(self.operation), how)], self.tail)
