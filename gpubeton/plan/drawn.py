"""Drawn parameters: the random parameters of the operations of a pipeline, by name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gpubeton.pipeline.state import State
from gpubeton.plan.draws import TOP, WIDTH
from gpubeton.plan.philox import uniform_of_rows
from gpubeton.plan.program import ImageProgram, image_state
from gpubeton.transforms.transform import Transform

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.plan.batch_ops import BatchOp

Choice = tuple[Transform, int, State]
"""An operation, the operation number of its random numbers, and the batch that it meets."""


def choices_of_pass(program: ImageProgram) -> list[Choice]:
    """List the random operations of the fused pass, without the decoder."""
    image = image_state(program.height, program.width, "cpu")
    streams = program.streams[len(program.streams) - len(program.steps) :]  # the decoder's comes before them, if any
    mixing = () if program.mixing is None else (program.mixing,)
    drawing = (*zip(program.steps, streams, strict=True), *program.colors, *mixing)
    return [(operation, stream, image) for operation, stream in drawing]


def choices_of_tail(steps: Iterable[BatchOp]) -> list[Choice]:
    """List the random operations after the fused pass."""
    return [
        (step.operation, step.stream, step.before)
        for step in steps
        if isinstance(step.operation, Transform) and step.stream is not None
    ]


def draw_choices(
    choices: Sequence[Choice],
    seed: int,
    epoch: int,
    samples: NDArray[np.uint64],  # (N,)
) -> dict[str, NDArray[Any]]:
    """Draw the parameters of operations for the samples of a batch, as `DrawnParameters` lists them."""
    drawn = {}
    names = _unique_names(type(operation).__name__ for operation, _, _ in choices)
    for name, (operation, stream, state) in zip(names, choices, strict=True):
        numbers = partial(uniform_of_rows, seed, epoch, samples, stream)
        for parameter, values in operation.drawn(numbers, len(samples), state).items():
            drawn[f"{name}.{parameter}" if parameter else name] = values
    return drawn


def draw_crop(
    program: ImageProgram,
    seed: int,
    epoch: int,
    samples: NDArray[np.uint64],  # (N,)
    size: NDArray[np.int32],  # (N, 2) height and width of each stored image in pixels
) -> NDArray[np.int32]:  # (N, 4)
    """Choose the part of each stored image that is resized to the output."""
    return program.draw(seed, epoch, samples, size[:, 0], size[:, 1])[:, TOP : WIDTH + 1]


def _unique_names(names: Iterable[str]) -> Iterator[str]:
    """Number repeated names: flip, flip_2, flip_3."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        yield name if counts[name] == 1 else f"{name}_{counts[name]}"
