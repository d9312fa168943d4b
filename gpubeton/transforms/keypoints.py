"""TransformKeypoints: points follow their image through everything that moves its pixels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.pixel_type import dtype_name
from gpubeton.pipeline.ragged import Ragged, is_ragged
from gpubeton.pipeline.validation import check_choice, check_whole
from gpubeton.transforms.checks import given_draw
from gpubeton.transforms.placements import SOURCE, FollowingTransform, follow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.state import State


class TransformKeypoints(FollowingTransform):
    """Move the points of each sample as another output moves its image, also through rotations and perspectives.

    Its place is after the decoder of a field of floats and before ``ToTensor``: an `NDArrayField` of ``(K, 2)``, or a
    `RaggedField` of ``(-1, 2)``, such as polygons, or of ``(-1, K, 2)``, K points for each object; the last two axes
    may also be one. The parameters of the image are drawn again, as for `TransformBoxes`.

    Parameters
    ----------
    image : str
        Name of the output with the image.
    columns : {2, 3}
        Numbers of a point: x and y; or a third as in COCO, which is 0 for points that are absent.
    relative : bool
        Whether x and y are fractions of the image's width and height, instead of pixels of the image as it is stored.
        The result is given likewise.
    centers : bool
        Whether whole numbers of pixels are their middles, as for keypoints of COCO and torchvision, instead of their
        upper left corners, as for boxes.
    outside : {"absent", "keep"}
        What becomes of points that leave the image. Absent points are NaN; with three columns all three are 0. "keep"
        calculates where they are, as polygons need.
    flip_pairs : sequence of pairs of int
        Numbers of points that change places in mirrored images, such as the left and the right eye.

    Raises
    ------
    OptionError
        If an argument is none of these.

    Notes
    -----
    Everything that moves pixels in a known way is followed, anywhere in the pipeline. A mirrored image is mirrored an
    odd number of times, in any direction: left and right stay as they are where it is turned by 180 degrees. Points
    that are NaN stay absent, and so do those outside of the stored image, such as (-1, -1), unless `outside` is "keep".

    All objects are kept, in order; beside a `Mosaic` those of four images, as of `TransformBoxes` with ``keep="all"``.

    Examples
    --------
    >>> from gpubeton.transforms.placements import PlacementList
    >>> placements = PlacementList(1, (40, 60))
    >>> placements.crop(np.array([[0, 10, 40, 20]]), (80, 40))  # 20 pixels across, twice as large, mirrored
    >>> placements.flip(np.array([True]))
    >>> eyes = np.array([[[15.0, 5], [20, 6]]])
    >>> TransformKeypoints(flip_pairs=[(0, 1)]).apply(eyes, placements.placements).tolist()
    [[[20.0, 12.0], [30.0, 10.0]]]
    """

    takes_ragged: ClassVar[bool] = True
    follows_warps: ClassVar[bool] = True

    def __init__(
        self,
        image: str = "image",
        columns: Literal[2, 3] = 2,
        *,
        relative: bool = False,
        centers: bool = False,
        outside: Literal["absent", "keep"] = "absent",
        flip_pairs: Sequence[Sequence[int]] = (),
    ) -> None:
        self.image = image
        self.columns = check_choice("TransformKeypoints: columns", columns, (2, 3))
        self.relative = bool(relative)
        self.centers = bool(centers)
        if self.relative and self.centers:
            raise OptionError("TransformKeypoints: relative and centers are True; expected one of them at most")
        self.outside = check_choice("TransformKeypoints: outside", outside, ("absent", "keep"))
        pairs = np.asarray(flip_pairs, object)
        numbers = [check_whole("TransformKeypoints: flip_pairs", number) for number in pairs.reshape(-1).tolist()]
        if len(set(numbers)) < len(numbers) or (numbers and pairs.shape[1:] != (2,)):
            raise OptionError(f"TransformKeypoints: flip_pairs is {flip_pairs!r}; expected pairs of different numbers")
        self.flip_pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))

    @property
    def takes_mosaics(self) -> bool:
        """Whether a sample may get more objects."""
        return self._is_ragged

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        self._is_ragged, shape = is_ragged(previous_state), tuple(previous_state.shape)[is_ragged(previous_state) :]
        is_array = isinstance(previous_state.dtype, np.dtype) and previous_state.dtype.kind == "f"
        if not (is_array and shape and shape[-1] % self.columns == 0):
            raise PipelineError(
                f"TransformKeypoints works on arrays of floats, (x, y) in the last axis or {self.columns} K numbers, "
                f"but here they have shape {shape} and dtype {dtype_name(previous_state.dtype)}. Put it right after "
                f"the decoder; Convert('float32') makes floats of integers."
            )
        count = self._count(shape)
        if any(number >= count for pair in self.flip_pairs for number in pair):
            raise PipelineError(f"TransformKeypoints: flip_pairs is {self.flip_pairs}, but there are {count} points")
        return previous_state, None

    def apply(self, batch: Any, draw: Any = None) -> Any:
        placements: Any = given_draw(self, draw, "the images' placements")
        values, sample = (batch.values, batch.rows) if isinstance(batch, Ragged) else (batch, np.arange(len(batch)))
        shape, size = values.shape[1:], placements[0].rows[sample][:, None, SOURCE]
        points = values.astype(np.float64).reshape(len(values), math.prod(shape) // self.columns, self.columns)
        unit, offset = size[..., ::-1] if self.relative else 1.0, 0.5 * self.centers
        places = (points[..., :2] * unit + offset)[..., ::-1]
        if self.columns == 3:
            places = np.where(points[..., 2:] == 0, np.nan, places)
        stored = np.stack([np.zeros_like(size[:, 0]), size[:, 0]], axis=1)
        placed, objects = follow(placements, self._cut(places, stored), sample, self._cut)
        size = np.broadcast_to(placements[-1].output, (len(batch), 2))[placed.sample][:, None]
        unit = size[..., ::-1] if self.relative else 1.0
        points = np.concatenate([placed.points[..., ::-1] / unit - offset, points[objects][..., 2:]], axis=2)
        is_absent = np.isnan(points[..., :2]).any(axis=2)
        points[is_absent] = np.nan if self.columns == 2 else 0
        if self.flip_pairs and len(points):
            order, pairs = np.arange(self._count(shape)), np.array(self.flip_pairs)
            order[pairs] = pairs[:, ::-1]
            groups = points.reshape(len(points), -1, len(order), self.columns)
            points = np.where((placed.growth < 0)[:, None, None, None], groups[:, :, order], groups)
        moved = points.reshape(len(points), *shape).astype(values.dtype)
        if not isinstance(batch, Ragged):
            return moved
        return Ragged(moved, np.searchsorted(placed.sample, np.arange(len(batch) + 1)))

    def _count(self, shape: tuple[int, ...]) -> int:
        """Return how many points an object has."""
        return shape[-2] if len(shape) > 1 and shape[-1] == self.columns else shape[-1] // self.columns

    def _cut(self, points: NDArray[np.float64], shown: NDArray[np.float64]) -> NDArray[np.float64]:
        is_inside = ((points >= shown[:, :1]) & (points <= shown[:, 1:])).all(axis=2, keepdims=True)
        return np.where(is_inside | (self.outside == "keep"), points, np.nan)
