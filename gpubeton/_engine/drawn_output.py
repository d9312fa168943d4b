"""The output with the random parameters of another output's pipeline, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._plan.draw_rows import TOP, WIDTH
from gpubeton._plan.philox import BatchNumbers
from gpubeton._plan.program import image_state
from gpubeton.pipeline.pixel_type import dtype_name
from gpubeton.pipeline.state import State
from gpubeton.transforms.ops import ToDevice
from gpubeton.transforms.transform import Transform

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from gpubeton._engine.outputs import Inputs
    from gpubeton._engine.sources import Source
    from gpubeton._plan.batch_ops import BatchOp
    from gpubeton._plan.program import ImageProgram

Choice = tuple[Transform, int, State]
"""An operation, the operation number of its random numbers, and the batch that it meets."""


def choices_of_pass(program: ImageProgram) -> list[Choice]:
    """List the random operations of the fused pass, without the decoder."""
    image = image_state(program.height, program.width, "cpu")
    mixing = () if program.mixing is None else (program.mixing,)
    return [(operation, rng_stream, image) for operation, rng_stream in (*program.steps, *program.colors, *mixing)]


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

        drawn = self._draw(inputs.samples, inputs.seed, inputs.epoch)
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

    def _draw(self, samples: NDArray[np.uint64], seed: int, epoch: int) -> dict[str, NDArray[Any]]:
        drawn: dict[str, NDArray[Any]] = {}
        if self.program is not None:
            sizes = self.source.image_sizes(samples)
            rows = self.program.draw(seed, epoch, samples, *sizes)
            drawn = {"size": np.stack(sizes, axis=1), "crop": rows[:, TOP : WIDTH + 1]}
        names = _unique_names(type(operation).__name__ for operation, _, _ in self.choices)
        for name, (operation, rng_stream, state) in zip(names, self.choices, strict=True):
            numbers = BatchNumbers(seed, epoch, samples, rng_stream)
            for parameter, values in operation.drawn(numbers, len(samples), state).items():
                drawn[f"{name}.{parameter}" if parameter else name] = values
        return drawn


def _unique_names(names: Iterable[str]) -> Iterator[str]:
    """Number repeated names: flip, flip_2, flip_3."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        yield name if counts[name] == 1 else f"{name}_{counts[name]}"
