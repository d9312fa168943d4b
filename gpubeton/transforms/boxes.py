"""TransformBoxes: boxes follow their image through its crops and its flips."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton.errors import PipelineError
from gpubeton.pipeline.pixel_type import is_torch_dtype
from gpubeton.pipeline.ragged import Ragged, is_ragged
from gpubeton.pipeline.validation import check_choice, check_number
from gpubeton.transforms.checks import given_draw
from gpubeton.transforms.placements import PLACEMENT_COLUMNS, SOURCE, AxesPlacement, FollowingTransform, follow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.state import State

_ROUNDING = 2.0**-30
"""Share of a box's area that mirroring and shifting may take away by rounding, and much more."""

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

    Raises
    ------
    OptionError
        If an argument is none of these.

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
