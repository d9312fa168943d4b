"""The outputs of a batch: images, other fields, branches of both, and random parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gpubeton._engine.run_batch_ops import Shared, finish_images, run_batch_ops
from gpubeton._engine.user_code import UserDecoder
from gpubeton._plan.program import note_lines
from gpubeton.errors import PipelineError
from gpubeton.pipeline.operation import Operation, operation_name
from gpubeton.pipeline.pixel_type import dtype_name, pixel_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton._engine.buffers import ArrayPool
    from gpubeton._engine.sources import FetchedRegions, Source
    from gpubeton._plan.batch_ops import BatchOps
    from gpubeton._plan.program import ImageProgram
    from gpubeton.fields.base import Gather


class Inputs(NamedTuple):
    """What the outputs of one batch are made of."""

    seed: int
    epoch: int
    samples: NDArray[np.uint64]  # (N,) sample ids
    regions: FetchedRegions
    images: Callable[[ImageOutput, NDArray[np.int32] | None], Any]  # mixes images and gives them to the next operation
    pool: ArrayPool
    shared: Shared

    def run(self, ops: BatchOps, batch: Any) -> Any:
        """Run operations on a batch of these samples."""
        return run_batch_ops(ops, batch, self.seed, self.epoch, self.samples, self.shared)


@dataclass(frozen=True, eq=False)
class ImageOutput:
    """An output whose images an executor makes in one pass; operations on the whole batch follow."""

    name: str
    source: Source
    program: ImageProgram

    def take_array(self, pool: ArrayPool, count: int) -> NDArray[Any]:
        """Take uninitialized memory for the pass: (count, height, width, channels); numpy has bfloat16 as uint16."""
        shape = (count, self.program.height, self.program.width, self.program.kind.channels)
        return pool.take(shape, pixel_type(self.program.pass_dtype).dtype)

    @property
    def nbytes_per_sample(self) -> int:
        """Bytes that the executor writes for one sample."""
        itemsize = pixel_type(self.program.dtype).dtype.itemsize
        return self.program.height * self.program.width * self.program.kind.channels * itemsize

    def make(self, inputs: Inputs) -> Any:
        """Mix the images of a batch and run the operations after the pass."""
        mixes = self.program.draw_mixes(inputs.seed, inputs.epoch, inputs.samples)
        images = inputs.images(self, mixes)
        return finish_images(self.program, images, inputs.seed, inputs.epoch, inputs.samples, inputs.shared)

    def explain(self) -> str:
        """Describe each operation and where it runs."""
        return self.program.explain()


class Decodes(Protocol):
    """A decoder that works with numpy, as `gpubeton.fields.base.RowDecoder` does."""

    def decode(self, rows: NDArray[Any], gather: Gather) -> NDArray[Any]:
        """Decode the samples of a batch from their metadata and their regions."""
        ...


@dataclass(frozen=True, eq=False)
class RowOutput:
    """An output that is decoded with numpy, or by a user's decoder."""

    name: str
    source: Source
    operation: Operation  # the decoder
    decoder: Decodes | UserDecoder  # the same, or the object that calls its function
    ops: BatchOps

    def make(self, inputs: Inputs) -> Any:
        """Decode the samples of a batch and run the operations after the decoder."""

        def gather(width: int) -> NDArray[np.uint8]:
            if len(self.source.regions) == 1:
                return inputs.regions.gather(self.source, width, inputs.pool)
            raise PipelineError(
                f"field {self.name!r}: {self.operation!r} asks for the bytes of each sample's region, but each has "
                f"{len(self.source.regions)}. Its values are in the metadata: the rows that decode() receives."
            )

        if isinstance(self.decoder, UserDecoder):
            batch = self.decoder.decode(inputs.samples, self.source, inputs.regions, inputs.pool)
        else:
            batch = self.decoder.decode(self.source.column[inputs.samples], gather)
        return inputs.run(self.ops, batch)

    def explain(self) -> str:
        """Describe each operation and where it runs."""
        how = "numpy"
        if isinstance(self.decoder, UserDecoder):
            how = "compiled" if self.decoder.is_compiled else "plain Python"
        return explain_ops(self.name, [(operation_name(self.operation), how)], self.ops)


@dataclass(frozen=True, eq=False)
class BranchOutput:
    """An output that continues from the result of an operation in another output's pipeline."""

    name: str
    source: Source  # of the other output
    parent: str  # name of the other output
    operation: Any  # the user's operation
    is_last: bool  # whether no output that is made later continues from the same operation
    ops: BatchOps

    def make(self, inputs: Inputs) -> Any:
        """Run the operations on the result that the other output has kept."""
        return inputs.run(self.ops, inputs.shared.result(self.operation, is_last=self.is_last))

    def explain(self) -> str:
        """Describe each operation and where it runs."""
        return explain_ops(self.name, [(operation_name(self.operation), f"in {self.parent!r}")], self.ops)


PipelineOutput = ImageOutput | RowOutput | BranchOutput
"""An output with a pipeline."""


def explain_ops(name: str, first: Sequence[tuple[str, str]], ops: BatchOps) -> str:
    """Describe an output: a headline, then each operation and where it runs; those in `first` come first."""
    lines = [*first, *((operation_name(step.operation), str(step)) for step in ops.steps)]
    shape = ", ".join(map(str, ("N", *ops.state.shape)))
    head = f"{name}: shape ({shape}), {dtype_name(ops.state.dtype)}"
    return "\n".join([head, *note_lines(lines)])
