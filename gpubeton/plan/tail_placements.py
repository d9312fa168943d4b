"""Tail placements: where an operation behind the one pass puts the images, as boxes that follow them have to know."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import PipelineError
from gpubeton.plan.following import STILL
from gpubeton.plan.tail import TailStep, uniform_of_rows
from gpubeton.transforms.boxes import PLACEMENT_COLUMNS
from gpubeton.transforms.corner_crop import CornerCrop
from gpubeton.transforms.flip import RandomHorizontalFlip
from gpubeton.transforms.layout import channels_stand_last, image_size
from gpubeton.transforms.pad import Pad
from gpubeton.transforms.random_crop import RandomCrop
from gpubeton.transforms.random_resized_crop import RandomResizedCrop
from gpubeton.transforms.transform import Transform
from gpubeton.transforms.translate import RandomTranslate

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CORNERS = (RandomCrop, CornerCrop)
_FOLLOWED = (RandomHorizontalFlip, RandomTranslate, RandomResizedCrop, Pad, *_CORNERS)


def moves_of(name: str, steps: list[TailStep]) -> tuple[TailStep, ...]:
    """Find what moves the pixels of an output behind its one pass.

    Parameters
    ----------
    name : str
        Name of the output.
    steps : list of TailStep
        All that is done there.

    Returns
    -------
    tuple of TailStep
        Those that boxes have to follow, in order.

    Raises
    ------
    PipelineError
        If one of them moves pixels as no box can that has its sides along the image's.

    Examples
    --------
    >>> from gpubeton.transforms import ToTensor
    >>> from gpubeton.pipeline.state import State
    >>> state = State(False, "cpu", (20, 30, 3), np.dtype("uint8"))
    >>> [step.operation for step in moves_of("image", [TailStep(Pad(4), state), TailStep(ToTensor(), state)])]
    [Pad(padding=(4, 4, 4, 4), fill=(0, 0, 0))]
    """
    moves = []
    for step in steps:
        operation = step.operation
        if not isinstance(operation, Transform) or isinstance(operation, STILL):
            continue
        if not isinstance(operation, _FOLLOWED):
            raise PipelineError(
                f"TransformBoxes(image={name!r}) cannot follow {operation!r}: what it moves stays in no box with "
                f"sides along the image's. Flips, translates, crops and paddings can be followed. Take it out of the "
                f"pipeline of {name!r}, or store masks instead of boxes: FollowImage follows rotations, too."
            )
        moves.append(step)
    return tuple(moves)


def placements_by(step: TailStep, seed: int, epoch: int, samples: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Tell where an operation puts the images that it meets.

    Parameters
    ----------
    step : TailStep
        One that `moves_of` has found.
    seed, epoch : int
        The loader's seed and the number of the epoch.
    samples : ndarray of uint64, shape (N,)
        Sample ids.

    Returns
    -------
    ndarray of float64, shape (N, PLACEMENT_COLUMNS)
        A row for each, see `gpubeton.transforms.boxes.PLACEMENT_COLUMNS`; the source is the image before the operation.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> state = State(False, "cpu", (20, 30, 3), np.dtype("uint8"))
    >>> placements_by(TailStep(Pad(4), state), 0, 0, np.arange(1, dtype="u8")).astype(int).tolist()
    [[-4, -4, 28, 38, 0, 0, 0, 20, 30, 28, 38]]
    """
    operation: Any = step.operation
    source = image_size(operation, step.before, any_channels=True)
    draw: Any = None
    if step.stream is not None:
        numbers = partial(uniform_of_rows, seed, epoch, samples, step.stream)
        draw = operation.draw(numbers, len(samples), step.before)
    rows = np.zeros((len(samples), PLACEMENT_COLUMNS))
    rows[:, 2:4] = rows[:, 7:9] = rows[:, 9:11] = source
    if isinstance(operation, RandomHorizontalFlip):
        rows[:, 4] = draw[:, 0]
    elif isinstance(operation, RandomTranslate):
        rows[:, 5:7] = draw - operation.padding
    elif isinstance(operation, RandomResizedCrop):
        rows[:, :4], rows[:, 9:11] = draw, operation.size
    elif isinstance(operation, _CORNERS):
        rows[:, :2], rows[:, 2:4], rows[:, 9:11] = draw, operation.size, operation.size
    else:
        left, top, _, _ = operation.padding
        shape = operation.declare_state_and_memory(step.before)[0].shape
        padded = shape[:2] if channels_stand_last(shape) else shape[1:]
        rows[:, :2], rows[:, 2:4], rows[:, 9:11] = (-top, -left), padded, padded
    return rows
