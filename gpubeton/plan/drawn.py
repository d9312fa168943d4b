"""Drawn: what the operations of a pipeline draw, under names."""

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
    """List the operations of the one pass over the pixels that draw, but for the decoder.

    Parameters
    ----------
    program : ImageProgram
        The program.

    Returns
    -------
    list of tuple of (Transform, int, State)
        Each with its operation number and the batch that it meets.
    """
    image = image_state(program.height, program.width, "cpu")
    streams = program.streams[len(program.streams) - len(program.steps) :]  # before them stands the decoder's, if any
    mixing = () if program.mixing is None else (program.mixing,)
    drawing = (*zip(program.steps, streams, strict=True), *program.colours, *mixing)
    return [(operation, stream, image) for operation, stream in drawing]


def choices_of_tail(steps: Iterable[BatchOp]) -> list[Choice]:
    """List the operations of a tail that draw.

    Parameters
    ----------
    steps : iterable of BatchOp
        The tail, or a part of it.

    Returns
    -------
    list of tuple of (Transform, int, State)
        Each with its operation number and the batch that it meets.
    """
    return [
        (step.operation, step.stream, step.before)
        for step in steps
        if isinstance(step.operation, Transform) and step.stream is not None
    ]


def draw_choices(
    choices: Sequence[Choice], seed: int, epoch: int, samples: NDArray[np.uint64]
) -> dict[str, NDArray[Any]]:
    """Draw what operations draw for the samples of a batch.

    Parameters
    ----------
    choices : sequence of tuple of (Transform, int, State)
        The operations, with their numbers and the batches that they meet.
    seed, epoch : int
        The loader's seed and the number of the epoch.
    samples : ndarray of uint64, shape (N,)
        Sample ids of the batch as it is handed on, in order.

    Returns
    -------
    dict of str to ndarray, each of shape (N, ...)
        Under the operations' names, as `gpubeton.pipeline.DrawnParameters` lists them.

    Examples
    --------
    >>> import numpy as np
    >>> from gpubeton.transforms import RandomHorizontalFlip
    >>> image = image_state(8, 8, "cpu")
    >>> flips = [(RandomHorizontalFlip(1.0), 0, image), (RandomHorizontalFlip(0.0), 1, image)]
    >>> drawn = draw_choices(flips, seed=0, epoch=0, samples=np.arange(2, dtype="u8"))
    >>> {name: values.tolist() for name, values in drawn.items()}
    {'RandomHorizontalFlip': [True, True], 'RandomHorizontalFlip_2': [False, False]}
    """
    drawn = {}
    names = _unique_names(type(operation).__name__ for operation, _, _ in choices)
    for name, (operation, stream, state) in zip(names, choices, strict=True):
        numbers = partial(uniform_of_rows, seed, epoch, samples, stream)
        for parameter, values in operation.drawn(numbers, len(samples), state).items():
            drawn[f"{name}.{parameter}" if parameter else name] = values
    return drawn


def draw_crop(
    program: ImageProgram, seed: int, epoch: int, samples: NDArray[np.uint64], size: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Choose the part of each stored image that is resized to the output.

    Parameters
    ----------
    program : ImageProgram
        The program.
    seed, epoch : int
        The loader's seed and the number of the epoch.
    samples : ndarray of uint64, shape (N,)
        Sample ids.
    size : ndarray of int32, shape (N, 2)
        Height and width of each stored image in pixels.

    Returns
    -------
    ndarray of int32, shape (N, 4)
        Top, left, height and width in stored pixels.
    """
    return program.draw(seed, epoch, samples, size[:, 0], size[:, 1])[:, TOP : WIDTH + 1]


def _unique_names(names: Iterable[str]) -> Iterator[str]:
    """The names; behind one that was there before, how often that is so by now."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        yield name if counts[name] == 1 else f"{name}_{counts[name]}"
