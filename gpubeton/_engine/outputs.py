"""The outputs of a batch: images, other fields, branches of both, and random parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._engine.run_batch_ops import Shared, UserDecoder, finish_images, run_batch_ops
from gpubeton._plan.draw_rows import TOP, WIDTH
from gpubeton._plan.image_job import ImageJob
from gpubeton._plan.philox import BatchNumbers
from gpubeton._plan.program import image_state, note_lines
from gpubeton.errors import PipelineError
from gpubeton.pipeline.draw_ids import sample_ids
from gpubeton.pipeline.operation import Operation, operation_name
from gpubeton.pipeline.pixel_type import dtype_name, pixel_type
from gpubeton.pipeline.state import State
from gpubeton.transforms.ops import ToDevice
from gpubeton.transforms.transform import Transform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from gpubeton._engine.buffers import ArrayPool
    from gpubeton._engine.sources import FetchedRegions, Source
    from gpubeton._plan.batch_ops import BatchOp, BatchOps
    from gpubeton._plan.program import ImageProgram
    from gpubeton.fields.base import RowDecoder


class Inputs(NamedTuple):
    """What the outputs of one batch are made of."""

    seed: int
    epoch: int
    draw_ids: NDArray[np.uint64]  # (N,) see `gpubeton.pipeline.draw_ids`
    regions: FetchedRegions
    images: Callable[[ImageOutput, NDArray[np.int32] | None], Any]  # mixes images and gives them to the next operation
    pool: ArrayPool
    shared: Shared

    @property
    def samples(self) -> NDArray[np.uint64]:
        """The sample ids, (N,)."""
        return sample_ids(self.draw_ids)

    def run(self, ops: BatchOps, batch: Any) -> Any:
        """Run operations on a batch of these samples."""
        return run_batch_ops(ops, batch, self.seed, self.epoch, self.draw_ids, self.shared)


@dataclass(frozen=True, eq=False)
class ImageOutput:
    """An output whose images an executor makes in one pass; operations on the whole batch follow."""

    name: str
    source: Source
    program: ImageProgram

    def plan(
        self, seed: int, epoch: int, draw_ids: NDArray[np.uint64], sizes: tuple[Any, Any], mode: NDArray[np.uint8]
    ) -> ImageJob:
        """Draw the crops and the rest for samples, (N,), with int32 heights and widths of stored images, (N,) each."""
        draws, steps = self.program.draw(seed, epoch, draw_ids, *sizes), self.program.draw_steps(seed, epoch, draw_ids)
        samples = sample_ids(draw_ids)
        return ImageJob(*sizes, mode=mode, draws=draws, steps=steps, samples=samples, source=self.source.name)

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
        mixes = self.program.draw_mixes(inputs.seed, inputs.epoch, inputs.draw_ids)
        images = inputs.images(self, mixes)
        return finish_images(self.program, images, inputs.seed, inputs.epoch, inputs.draw_ids, inputs.shared)

    def explain(self) -> str:
        """Describe each operation and where it runs."""
        return self.program.explain()


@dataclass(frozen=True, eq=False)
class RowOutput:
    """An output that is decoded with numpy, or by a user's decoder."""

    name: str
    source: Source
    operation: Operation  # the decoder
    decoder: RowDecoder | UserDecoder  # the same, or the object that calls its function
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

        batch: Any
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


Choice = tuple[Transform, int, State]
"""An operation, the operation number of its random numbers, and the batch that it meets."""


def choices_of_pass(program: ImageProgram) -> list[Choice]:
    """List the random operations of the fused pass, without the decoder."""
    image = image_state(program.height, program.width, "cpu")
    mixing = () if program.mixing is None else (program.mixing,)
    return [(operation, rng_stream, image) for operation, rng_stream in (*program.folds, *program.steps, *mixing)]


def choices_of_tail(steps: Iterable[BatchOp]) -> list[Choice]:
    """List the random operations after the fused pass."""
    return [
        (step.operation, step.rng_stream, step.before)
        for step in steps
        if isinstance(step.operation, Transform) and step.rng_stream is not None
    ]


@dataclass(frozen=True, eq=False)
class DrawnOutput:
    """An output with the random parameters of another one. It draws them again, and needs no pixels."""

    name: str
    source: Source  # of the other output
    followed: str  # name of the other output
    program: ImageProgram | None  # crops the other output's images; None if it has none
    choices: tuple[Choice, ...]  # random operations after the decoder
    left_on: str | None = None  # GPU for the tensors; None for the CPU

    def make(self, inputs: Inputs) -> dict[str, Any]:
        """Draw the parameters, a tensor of shape (N, ...) for each; see `gpubeton.pipeline.DrawnParameters`."""
        import torch

        drawn = self._draw(inputs.draw_ids, inputs.seed, inputs.epoch)
        tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in drawn.items()}
        if self.left_on is None:
            return tensors
        move = ToDevice(self.left_on)
        return {name: move.apply(tensor) for name, tensor in tensors.items()}

    def explain(self) -> str:
        """Describe each parameter."""
        drawn = self._draw(np.zeros(1, np.uint64), 0, 0)
        width = max(map(len, drawn), default=0)
        lines = [
            f"  {name:<{width}}  {dtype_name(values.dtype)} ({', '.join(['N', *map(str, values.shape[1:])])})"
            for name, values in drawn.items()
        ]
        return "\n".join([f"{self.name}: a dict, what is drawn for {self.followed!r}", *lines])

    def _draw(self, draw_ids: NDArray[np.uint64], seed: int, epoch: int) -> dict[str, NDArray[Any]]:
        drawn: dict[str, NDArray[Any]] = {}
        if self.program is not None:
            sizes = self.source.image_sizes(sample_ids(draw_ids))
            rows = self.program.draw(seed, epoch, draw_ids, *sizes)
            drawn = {"size": np.stack(sizes, axis=1), "crop": rows[:, TOP : WIDTH + 1]}
        names = _unique_names(type(operation).__name__ for operation, _, _ in self.choices)
        for name, (operation, rng_stream, state) in zip(names, self.choices, strict=True):
            numbers = BatchNumbers(seed, epoch, draw_ids, rng_stream)
            for parameter, values in operation.drawn(numbers, len(draw_ids), state).items():
                drawn[f"{name}.{parameter}" if parameter else name] = values
        return drawn


def _unique_names(names: Iterable[str]) -> Iterator[str]:
    """Number repeated names: flip, flip_2, flip_3."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        yield name if counts[name] == 1 else f"{name}_{counts[name]}"
