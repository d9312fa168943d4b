"""Linked outputs: outputs whose pixels or boxes move like the images of another output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._plan.philox import BatchNumbers
from gpubeton.errors import PipelineError
from gpubeton.transforms.checks import image_size
from gpubeton.transforms.mixup import Mosaic
from gpubeton.transforms.placements import FollowingTransform, Placement, PlacementList
from gpubeton.transforms.transform import BatchKey, Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from gpubeton._plan.batch_ops import BatchOp
    from gpubeton.fields.image_decoders import ImageDecoder
    from gpubeton.pipeline.operation import Uniform


@dataclass(frozen=True, eq=False)
class GeometrySource:
    """How an output crops and moves its images."""

    name: str  # of the output
    decoder: ImageDecoder  # chooses its crop boxes
    rng_stream: int | None  # of the decoder's random numbers, if it draws any
    heights: NDArray[Any]  # (N,) sizes of its stored images, of all samples of the file, in pixels
    widths: NDArray[Any]  # (N,)
    size: tuple[int, int]  # height and width after the pass, in pixels
    steps: tuple[tuple[Transform, int], ...] = ()  # operations of the pass that move pixels, with their streams
    ops: tuple[tuple[Transform, int | None], ...] = ()  # operations after the pass that move pixels

    def boxes(
        self, samples: NDArray[np.uint64], heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None
    ) -> NDArray[np.int32]:
        """Choose the crop boxes, (N, 4) top, left, height and width, of images of the given sizes that follow these."""
        sizes = np.stack([self.heights[samples], self.widths[samples]], axis=1).astype(np.int32)
        boxes = self.decoder.boxes(sizes[:, 0], sizes[:, 1], uniform)
        return scaled_boxes(boxes, sizes, np.stack([heights, widths], axis=1))


def scaled_boxes(boxes: NDArray[Any], source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.int32]:
    """Scale boxes, (N, 4) top, left, height and width, from images of `source` sizes, (N, 2), to those of `target`."""
    # Borders are rounded to the nearest pixel (halves up); an empty box becomes the pixel around its center.
    first = np.asarray(boxes[:, :2], np.int64)
    last = first + boxes[:, 2:]
    whole, other = source.astype(np.int64), target.astype(np.int64)
    middle = (first + last) * other // (2 * whole)
    first, last = ((2 * edge * other + whole) // (2 * whole) for edge in (first, last))
    first = np.where(last > first, first, middle)
    return np.concatenate([first, np.maximum(last - first, 1)], axis=1).astype(np.int32)


def moves_of(follower: FollowingTransform, steps: Iterable[BatchOp]) -> tuple[BatchOp, ...]:
    """Find the operations after the crop of an output and its folds that boxes or points have to follow."""
    name = f"{type(follower).__name__}(image={follower.image!r})"
    moves = moving_ops(name, steps)
    for step in moves:
        if step.operation.moves is not Moves.ALONG_AXES and not follower.follows_warps:
            raise PipelineError(
                f"{name} cannot follow {step.operation!r}: what it moves stays in no box with sides along the "
                f"image's. Flips, quarter turns, translates, crops and paddings can be followed. Take it out of the "
                f"pipeline of {follower.image!r}, or store masks or keypoints instead of boxes: FollowImage and "
                f"TransformKeypoints follow rotations, too."
            )
        if isinstance(step.operation, Mosaic) and not follower.takes_mosaics:
            raise PipelineError(
                f"{name} cannot follow {step.operation!r} with arrays of one shape: samples get the points of four "
                f"images. Store them in a RaggedField, of shape (-1, K, 2)."
            )
    return tuple(moves)


def placements_by(step: BatchOp, seed: int, epoch: int, draw_ids: NDArray[np.uint64]) -> list[Placement]:
    """Return the placements of an operation that `moves_of` found; the source is the image before it."""
    operation: Any = step.operation
    placed = PlacementList(len(draw_ids), image_size(operation, step.before, any_channels=True))
    numbers = None if step.rng_stream is None else BatchNumbers(seed, epoch, draw_ids, step.rng_stream)
    operation.fold(placed, operation.draw_batch(BatchKey(seed, epoch, draw_ids), numbers, step.before))
    return placed.placements


def moving_ops(follower: str, steps: Iterable[BatchOp]) -> list[Any]:
    """Select the steps that move pixels, all in a known way. FFCV's operations of users and torch modules must not."""
    moving: list[Any] = []
    for step in steps:
        moves = step.operation.moves if isinstance(step.operation, Transform) else Moves.NOTHING
        if moves is Moves.UNKNOWN:
            raise PipelineError(
                f"{follower} cannot follow {step.operation!r}, because it may move pixels in any way. If it moves "
                f"none, declare that: PerSample(..., moves_pixels=False), or moves = Moves.NOTHING in your subclass of "
                f"Transform (from gpubeton.transforms.transform import Moves)."
            )
        if moves is not Moves.NOTHING:
            moving.append(step)
    return moving
