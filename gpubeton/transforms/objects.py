"""TransformBoxes and TransformKeypoints: the objects of an image follow it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.pixel_type import dtype_name, is_torch_dtype
from gpubeton.pipeline.ragged import Ragged, is_ragged
from gpubeton.pipeline.validation import check_choice, check_number, check_whole
from gpubeton.transforms.checks import given_draw
from gpubeton.transforms.placements import PLACEMENT_COLUMNS, SOURCE, AxesPlacement, FollowingTransform, follow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.state import State


_ROUNDING = 2.0**-30  # share of a box's area that mirroring and shifting may take away by rounding, and much more
_FORMATS = ("xyxy", "xywh", "cxcywh")


class TransformBoxes(FollowingTransform):
    """Move the boxes of each sample as another output moves its image: crops, paddings, flips and translates.

    Its place is after the `RaggedDecoder` of a field of boxes and before ``ToTensor``. The parameters of the image are
    drawn again, as a function of the seed, the epoch and the sample, so that the two agree in every batch. Boxes are
    clipped at the borders of the image. Columns after the first four, such as a class, stay as they are.

    Parameters
    ----------
    image : str
        Name of the output with the image.
    box_format : {"xyxy", "xywh", "cxcywh"}
        What the first four columns are: two corners, or a corner or the center with width and height.
    relative : bool
        Whether they are fractions of the image's width and height, instead of pixels of the image as it is stored. (It
        may be smaller than the original, if it was written with a ``max_resolution``.) The result is given likewise.
    min_visible : float
        Share of its area that has to be inside for a box to count as visible. Without any area inside it never does.
    keep : {"visible", "all"}
        Whether boxes that are not visible are left out, or all boxes are kept and get a further column, 1 for visible
        and 0 for others: then their order still fits that of other fields.

    Notes
    -----
    ``RandomCrop``, ``CornerCrop``, ``Pad`` and ``RandomResizedCrop`` are followed, flips, quarter turns and translates
    anywhere in the pipeline, and outputs that go on from another one's operation. Rotations, affine maps, perspectives
    and the policies that contain them are refused: rotated objects fit no box with sides parallel to the image's. Your
    modules and operations must leave pixels where they are. Rectangles that are painted over the image, and other
    images that are mixed in, hide no box. In a `Mosaic`, a sample gets the boxes of four images, with their further
    columns: store the class there.

    Examples
    --------
    >>> placement = np.array([[0, 10, 40, 20, 1, 0, 0, 40, 60, 80, 40]])     # 20 x 40 pixels, twice as large, mirrored
    >>> boxes = Ragged(np.array([[5.0, 0, 20, 10], [40, 0, 50, 10]]), np.array([0, 2]))
    >>> TransformBoxes().apply(boxes, placement)[0].tolist()
    [[20.0, 0.0, 40.0, 20.0]]
    """

    takes_ragged: ClassVar[bool] = True

    def __init__(
        self,
        image: str = "image",
        box_format: str = "xyxy",
        *,
        relative: bool = False,
        min_visible: float = 0.0,
        keep: Literal["visible", "all"] = "visible",
    ) -> None:
        self.image = image
        self.box_format = check_choice("TransformBoxes: box_format", box_format, _FORMATS)
        self.relative = bool(relative)
        self.min_visible = check_number("TransformBoxes: min_visible", min_visible, 0, 1)
        self.keep = check_choice("TransformBoxes: keep", keep, ("visible", "all"))

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        if not is_ragged(previous_state) or is_torch_dtype(previous_state.dtype):
            raise PipelineError("TransformBoxes works on the batch of a RaggedDecoder. Put it right after that.")
        shape, dtype = tuple(previous_state.shape), previous_state.dtype
        if len(shape) != 2 or shape[1] < 4 or dtype.kind != "f":
            raise PipelineError(
                f"TransformBoxes works on rows of four or more floats, but here they have shape {shape[1:]} and dtype "
                f"{dtype}. RaggedDecoder('<f4', (-1, 4)) reads boxes; Convert('float32') makes floats of integers."
            )
        return replace(previous_state, shape=(shape[0], shape[1] + (self.keep == "all"))), None

    def apply(self, batch: Any, draw: Any = None) -> Any:
        placements: Any = given_draw(self, draw, "the images' placements")
        if isinstance(placements, np.ndarray):
            parts = np.split(placements.astype(np.float64), placements.shape[1] // PLACEMENT_COLUMNS, axis=1)
            placements = [AxesPlacement(part) for part in parts]
        corners = self._corners(batch.values[:, :4].astype(np.float64), placements[0].rows[batch.rows][:, SOURCE])
        placed, objects = follow(placements, corners, batch.rows, _clipped)
        corners = corners[objects]
        area = np.prod(corners[:, 1] - corners[:, 0], axis=1) * np.abs(placed.growth)
        is_box = np.all(corners[:, 0] < corners[:, 1], axis=1)
        first, last = placed.points[:, 0], placed.points[:, 1]
        sides, size = last - first, np.broadcast_to(placements[-1].output, (len(batch), 2))[placed.sample]
        enough = self.min_visible * area * (1 - _ROUNDING)
        is_visible = is_box & np.all(sides > 0, axis=1) & (np.prod(sides, axis=1) >= enough)
        boxes = np.concatenate([self._written(first, last, size), batch.values[objects, 4:]], axis=1)
        sample = placed.sample
        if self.keep == "all":
            boxes = np.concatenate([boxes, is_visible[:, None]], axis=1)
        else:
            boxes, sample = boxes[is_visible], sample[is_visible]
        return Ragged(boxes.astype(batch.dtype), np.searchsorted(sample, np.arange(len(batch) + 1)))

    def _corners(self, boxes: NDArray[np.float64], source: NDArray[np.float64]) -> NDArray[np.float64]:  # (M, 2, 2)
        """Return the first and last corner of boxes, in pixels of the source, (y, x)."""
        first, last = boxes[:, 1::-1], boxes[:, :1:-1]
        if self.box_format == "cxcywh":
            first = first - last / 2
        if self.box_format != "xyxy":
            last = first + last
        corners = np.stack([first, last], axis=1)
        return corners * source[:, None] if self.relative else corners

    def _written(
        self, first: NDArray[np.float64], last: NDArray[np.float64], size: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the boxes in the user's format."""
        if self.relative:
            first, last = first / size, last / size
        second = last if self.box_format == "xyxy" else last - first
        if self.box_format == "cxcywh":
            first = (first + last) / 2
        return np.concatenate([first[:, ::-1], second[:, ::-1]], axis=1)


def _clipped(corners: NDArray[np.float64], shown: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(np.sort(corners, axis=1), shown[:, :1], shown[:, 1:])


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
    >>> placements.turn(np.array([1]))
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
