"""Placements: where the operations on an image move its points; boxes and keypoints follow them.

Points are float64 of shape (M, K, 2): M objects with K points, (y, x). They lie between pixels, as the borders of boxes
do: (0, 0) is the upper left corner of an image, and the middle of its first pixel is at (0.5, 0.5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubeton._batch.mix import PARTNER, PLACE, TILE_COLUMNS, TILES, WINDOW
from gpubeton._batch.place_steps import ACROSS, DIAGONAL, DOWN
from gpubeton.transforms.transform import BatchKey, Transform

if TYPE_CHECKING:
    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State

PLACEMENT_COLUMNS = 11
#: Of a placement: box (top, left, height, width), bits of a turn, shift (y, x), size of the source and of the output
#: (y, x).
CROP, TURN, SHIFT, SOURCE, OUTPUT = slice(0, 4), slice(4, 5), slice(5, 7), slice(7, 9), slice(9, 11)

_MIRRORS = 1, 2, 4, 7  # bits of the turns that exchange left and right


class Placed(NamedTuple):
    """The points after a placement."""

    points: NDArray[np.float64]  # (M, K, 2)
    shown: NDArray[np.float64]  # (M, 2, 2): first and last corner of the part of the output that shows the image
    growth: NDArray[np.float64]  # (M,) of areas; negative if the image is mirrored. Of a warp only the sign.
    sample: NDArray[np.intp]  # (M,) the row of the batch to which an object belongs, in ascending order
    chosen: Any = slice(None)  # which objects these were


@dataclass(frozen=True, eq=False)
class AxesPlacement:
    """Crops, turns and shifts."""

    rows: NDArray[np.float64]  # (N, PLACEMENT_COLUMNS)

    @property
    def output(self) -> NDArray[np.float64]:
        return self.rows[:, OUTPUT]

    def place(self, points: NDArray[np.float64], sample: NDArray[np.intp]) -> Placed:
        rows = self.rows[sample][:, None]
        crop, size, bits = rows[..., CROP], rows[..., OUTPUT], rows[..., TURN].astype(int)
        scale = size / crop[..., 2:]
        # A crop that reaches past the source is padded there.
        rest = rows[..., SOURCE] - crop[..., :2]
        limit = np.where(crop[..., 2:] > rest, rest * scale, size)
        points = np.concatenate([np.zeros_like(limit), limit, (points - crop[..., :2]) * scale], axis=1)
        points = np.where(bits & np.array([DOWN, ACROSS]), size - points, points)
        points = np.where(bits & DIAGONAL, points[..., ::-1], points) - rows[..., SHIFT]
        shown = np.clip(np.sort(points[:, :2], axis=1), 0, size)
        sign = np.where(np.isin(bits[:, 0, 0], _MIRRORS), -1, 1)
        return Placed(points[:, 2:], shown, sign * scale.prod(axis=(1, 2)), sample)


@dataclass(frozen=True, eq=False)
class WarpPlacement:
    """Warps, which keypoints can follow."""

    maps: NDArray[np.float64]  # (N, 3, 3) from the image to its result, of points (x, y, 1)
    output: tuple[int, int]

    def place(self, points: NDArray[np.float64], sample: NDArray[np.intp]) -> Placed:
        extended = np.concatenate([points[..., ::-1], np.ones((*points.shape[:2], 1))], axis=2)
        moved = extended @ np.swapaxes(self.maps[sample], 1, 2)
        divisor = np.where(moved[..., 2:] > 0, moved[..., 2:], np.nan)  # others are behind the viewer
        shown = np.broadcast_to([(0, 0), self.output], (len(points), 2, 2))
        return Placed((moved[..., :2] / divisor)[..., ::-1], shown, np.sign(np.linalg.det(self.maps))[sample], sample)


@dataclass(frozen=True, eq=False)
class MosaicPlacement:
    """Mosaics: each sample gets the objects of four."""

    tiles: NDArray[np.int32]  # (N, TILES, TILE_COLUMNS)
    output: tuple[int, int]

    def place(self, points: NDArray[np.float64], sample: NDArray[np.intp]) -> Placed:
        tiles = self.tiles.reshape(-1, TILE_COLUMNS)
        bounds = np.searchsorted(sample, np.arange(len(self.tiles) + 1))
        first, last = bounds[tiles[:, PARTNER]], bounds[tiles[:, PARTNER] + 1]
        is_empty = (tiles[:, PLACE][:, :2] == tiles[:, PLACE][:, 2:]).any(axis=1)
        counts = np.where(is_empty, 0, last - first)
        tile = np.repeat(np.arange(len(tiles)), counts)
        chosen = np.arange(len(tile)) + (first - np.cumsum(counts) + counts)[tile]
        shown = tiles[tile][:, PLACE].reshape(-1, 2, 2).astype(np.float64)
        shift = shown[:, :1] - tiles[tile][:, None, WINDOW]
        return Placed(points[chosen] + shift, shown, np.ones(len(tile)), tile // TILES, chosen)


#: How one operation moves the images of a batch; `output` are their sizes afterwards, (2,) or (N, 2).
Placement = AxesPlacement | WarpPlacement | MosaicPlacement


class PlacementList:
    """Placements of `count` images of one size; a `Geometry`. Each call adds one."""

    def __init__(self, count: int, size: tuple[int, int]) -> None:
        self.count, self.size = count, size
        self.placements: list[Placement] = []

    def crop(self, boxes: NDArray[Any], size: tuple[int, int]) -> None:
        self._add(CROP, boxes, size)

    def turn(self, bits: NDArray[Any]) -> None:
        self._add(TURN, bits[:, None], self.size)

    def translate(self, shift: NDArray[Any], fill: Fill) -> None:
        self._add(SHIFT, shift, self.size)

    def paint(self, boxes: NDArray[Any], fill: Fill) -> None:
        """Do nothing: rectangles hide no box and no point."""

    def place(self, placement: Placement) -> None:
        self.placements.append(placement)

    def _add(self, columns: slice, values: NDArray[Any], size: tuple[int, int]) -> None:
        rows = np.zeros((self.count, PLACEMENT_COLUMNS))
        rows[:, 2:4] = rows[:, SOURCE] = self.size
        rows[:, OUTPUT] = self.size = size
        rows[:, columns] = values
        self.placements.append(AxesPlacement(rows))


# Called with seed, epoch and samples: where their images went, one move after the other; first an `AxesPlacement`.
Placements = Callable[[int, int, NDArray[np.uint64]], list[Placement]]


class FollowingTransform(Transform):
    """Moves boxes or points as another output, `image`, moves its image."""

    image: str
    follows_warps: ClassVar[bool] = False  # whether it can follow rotations, too

    @property
    def takes_mosaics(self) -> bool:
        """Whether a sample may get more objects."""
        return True

    def accept_placements(self, placements: Placements) -> None:
        """Receive the placements of the images from the loader.

        Parameters
        ----------
        placements : callable
            Called with seed, epoch and samples, gives a list of placements.
        """
        self._placements = placements

    def draw_batch(self, key: BatchKey, uniform: Uniform | None, state: State) -> Any:
        return self._placements(*key)


def follow(
    placements: Sequence[Placement],
    points: NDArray[np.float64],  # (M, K, 2)
    sample: NDArray[np.intp],  # (M,)
    cut: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],  # (points, shown) -> points
) -> tuple[Placed, NDArray[np.intp]]:  # and which objects these were, (M',)
    """Move points by placements, one after the other; `cut` is called after each."""
    placed, objects = Placed(points, points[:, :0], np.ones(len(points)), sample), np.arange(len(points))
    for placement in placements:
        after = placement.place(placed.points, placed.sample)
        growth = placed.growth[after.chosen] * after.growth
        placed, objects = after._replace(points=cut(after.points, after.shown), growth=growth), objects[after.chosen]
    return placed, objects
