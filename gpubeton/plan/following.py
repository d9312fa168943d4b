"""Following: which operations move the pixels of images, and how an output that follows another does the same."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from gpubeton.errors import PipelineError
from gpubeton.plan.branch_point import BranchPoint
from gpubeton.plan.leader import Leader
from gpubeton.transforms.affine import RandomAffine
from gpubeton.transforms.chosen_samples import ChosenSamples
from gpubeton.transforms.colour import ColourTransform
from gpubeton.transforms.corner_crop import CornerCrop
from gpubeton.transforms.cutout import Cutout
from gpubeton.transforms.erasing import RandomErasing
from gpubeton.transforms.flip import RandomHorizontalFlip
from gpubeton.transforms.levels import LevelTransform
from gpubeton.transforms.mixing import ImageMixing
from gpubeton.transforms.module import ModuleWrapper
from gpubeton.transforms.normalize import NormalizeImage
from gpubeton.transforms.ops import Convert, ToDevice, ToTensor, ToTorchImage, View
from gpubeton.transforms.pad import Pad
from gpubeton.transforms.policy import Policy
from gpubeton.transforms.random_crop import RandomCrop
from gpubeton.transforms.random_resized_crop import RandomResizedCrop
from gpubeton.transforms.rotation import RandomRotation
from gpubeton.transforms.transform import Transform
from gpubeton.transforms.translate import RandomTranslate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.plan.program import ImageProgram
    from gpubeton.plan.tail import TailStep
    from gpubeton.transforms.fill import Fill

_VIEWS = (ToTensor, ToDevice, ToTorchImage, Convert, View, BranchPoint)
_PAINTS = (NormalizeImage, ColourTransform, LevelTransform, ChosenSamples, ImageMixing, Cutout, RandomErasing)
STILL = (*_VIEWS, *_PAINTS, ModuleWrapper)
"""Operations of the library that leave the pixels of an image where they are; modules are the user's affair."""

_WARPS = (RandomRotation, RandomAffine, Policy)
_FILLED = (RandomTranslate, RandomCrop, Pad, *_WARPS)
_MOVES = (RandomHorizontalFlip, CornerCrop, RandomResizedCrop, *_FILLED)
"""Those that move them in a way that can be followed."""


def moves_alike(operation: Transform, interpolation: str, fill: Fill) -> Transform:
    """Make the operation that moves a follower's pixels as another moves its leader's, given the same draws.

    Parameters
    ----------
    operation : Transform
        The leader's.
    interpolation : str
        The follower's.
    fill : tuple of three numbers
        What the follower has outside its images.

    Returns
    -------
    Transform
        A copy.

    Examples
    --------
    >>> moves_alike(RandomRotation(30, "bilinear"), "nearest", (255, 255, 255))
    RandomRotation(degrees=(-30.0, 30.0), interpolation='nearest', fill=(255, 255, 255), p=1.0)
    """
    copied: Any = copy.copy(operation)
    if isinstance(operation, _FILLED):
        copied.fill = fill
    if isinstance(operation, _WARPS):
        copied.interpolation = "nearest" if interpolation == "nearest" else "bilinear"
    if isinstance(operation, Policy):
        copied.moves_only = copied.takes_any_kind = True
    if isinstance(operation, RandomResizedCrop):
        copied.interpolation = "nearest" if interpolation == "nearest" else "area"
    moved: Transform = copied
    return moved


def leader_of(
    name: str, program: ImageProgram, tail: Sequence[TailStep], heights: NDArray[Any], widths: NDArray[Any]
) -> Leader:
    """Say what moves the pixels of an output.

    Parameters
    ----------
    name : str
        Its name.
    program : ImageProgram
        How its images are made.
    tail : sequence of TailStep
        What is done to them afterwards.
    heights, widths : ndarray of integers, shape (N,)
        Sizes of its stored images, of all samples of the file, in pixels.

    Returns
    -------
    Leader
        What a follower does likewise.

    Raises
    ------
    PipelineError
        If an operation moves pixels in a way that cannot be followed.
    """
    moves: list[tuple[Transform, int | None]] = []
    for step in tail:
        operation = step.operation
        if not isinstance(operation, Transform) or isinstance(operation, STILL):
            continue
        if not isinstance(operation, _MOVES):
            raise PipelineError(
                f"FollowImage({name!r}) cannot follow {operation!r}, which moves pixels after the one pass over the "
                f"image. Flips, translates, crops, paddings, rotations and affine maps can be followed."
            )
        moves.append((operation, step.stream))
    streams = program.streams[len(program.streams) - len(program.steps) :]
    steps = [pair for pair in zip(program.steps, streams, strict=True) if isinstance(pair[0], _MOVES)]
    decoder, stream = program.decoder, program.streams[0] if len(streams) < len(program.streams) else None
    if program.leader is not None:
        # Whoever follows a follower takes its boxes from the same place, without rounding twice.
        first = program.leader
        decoder, stream, heights, widths = first.decoder, first.stream, first.heights, first.widths
    size = program.height, program.width
    return Leader(name, decoder, stream, heights, widths, size, tuple(steps), tuple(moves))
