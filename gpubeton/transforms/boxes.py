"""TransformBoxes: boxes follow their image through its crops and its flips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from gpubeton._batch.place_steps import ACROSS, DIAGONAL, DOWN
from gpubeton.errors import PipelineError
from gpubeton.pipeline.pixel_type import is_torch_dtype
from gpubeton.pipeline.ragged import Ragged, is_ragged
from gpubeton.pipeline.validation import check_choice, check_number
from gpubeton.transforms.checks import given_draw
from gpubeton.transforms.transform import BatchKey, Transform

if TYPE_CHECKING:
    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Memory, Uniform
    from gpubeton.pipeline.state import State

PLACEMENT_COLUMNS = 11
#: Of a placement: box (top, left, height, width), bits of a turn, shift (y, x), size of the source and of the output
#: (y, x).
CROP, TURN, SHIFT, SOURCE, OUTPUT = slice(0, 4), slice(4, 5), slice(5, 7), slice(7, 9), slice(9, 11)

Placements = Callable[[int, int, NDArray[np.uint64]], NDArray[np.float64]]
"""Called with seed, epoch and samples: where their images went, float64 of shape (N, K * PLACEMENT_COLUMNS).

The K placements follow each other: that of the fused pass, then those of the operations that move pixels afterwards.
Each has the result of the one before as its source."""

_ROUNDING = 2.0**-30
"""Share of a box's area that mirroring and shifting may take away by rounding, and much more."""

_FORMATS = ("xyxy", "xywh", "cxcywh")


class PlacementRows:
    """Placements of `count` images of one size; a `Geometry`. Each call adds one."""

    def __init__(self, count: int, size: tuple[int, int]) -> None:
        self.size = size
        self.rows = np.zeros((count, 0))

    def crop(self, boxes: NDArray[Any], size: tuple[int, int]) -> None:
        self._add(CROP, boxes, size)

    def flip(self, flipped: NDArray[Any]) -> None:
        self.turn(np.where(flipped, ACROSS, 0))

    def turn(self, bits: NDArray[Any]) -> None:
        self._add(TURN, bits[:, None], self.size)

    def translate(self, shift: NDArray[Any], fill: Fill) -> None:
        self._add(SHIFT, shift, self.size)

    def paint(self, boxes: NDArray[Any], fill: Fill) -> None:
        """Do nothing: rectangles hide no box."""

    def _add(self, columns: slice, values: NDArray[Any], size: tuple[int, int]) -> None:
        rows = np.zeros((len(self.rows), PLACEMENT_COLUMNS))
        rows[:, 2:4] = rows[:, SOURCE] = self.size
        rows[:, OUTPUT] = self.size = size
        rows[:, columns] = values
        self.rows = np.hstack([self.rows, rows])


class TransformBoxes(Transform):
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
    images that are mixed in, hide no box.

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

    def accept_placements(self, placements: Placements) -> None:
        """Receive the placements of the images from the loader.

        Parameters
        ----------
        placements : callable
            Called with seed, epoch and samples, gives float64 of shape (N, K * PLACEMENT_COLUMNS).
        """
        self._placements = placements

    def draw_batch(self, key: BatchKey, uniform: Uniform | None, state: State) -> NDArray[np.float64]:
        return self._placements(*key)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        rows = given_draw(self, draw, "the images' placements")[batch.rows].astype(np.float64)
        placements = np.split(rows, rows.shape[1] // PLACEMENT_COLUMNS, axis=1)
        # All pairs are (y, x) from here on, as in the placements: corners of shape (M, 2).
        first, last = self._corners(batch.values[:, :4].astype(np.float64), placements[0][:, SOURCE])
        area = np.prod(last - first, axis=1)
        for placement in placements:
            first, last, scale = _placed(first, last, placement)
            area = area * np.prod(scale, axis=1)
        sides, size = last - first, placements[-1][:, OUTPUT]
        enough = self.min_visible * area * (1 - _ROUNDING)
        is_visible = np.all(sides > 0, axis=1) & (np.prod(sides, axis=1) >= enough)
        boxes = np.concatenate([self._written(first, last, size), batch.values[:, 4:]], axis=1)
        if self.keep == "all":
            boxes = np.concatenate([boxes, is_visible[:, None]], axis=1)
            return Ragged(boxes.astype(batch.dtype), batch.offsets)
        offsets = np.concatenate([[0], np.cumsum(is_visible)])[batch.offsets]
        return Ragged(boxes[is_visible].astype(batch.dtype), offsets)

    def _corners(
        self, boxes: NDArray[np.float64], source: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the first and last corner of boxes, in pixels of the source, (y, x)."""
        first, last = boxes[:, 1::-1], boxes[:, :1:-1]
        if self.box_format == "cxcywh":
            first = first - last / 2
        if self.box_format != "xyxy":
            last = first + last
        return (first * source, last * source) if self.relative else (first, last)

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

    def __repr__(self) -> str:
        # Without the placements, which would show the whole pipeline of the image.
        names = ("image", "box_format", "relative", "min_visible", "keep")
        return f"TransformBoxes({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def _placed(
    first: NDArray[np.float64], last: NDArray[np.float64], placement: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners after one placement, clipped at its borders, and the scale of the sides, (y, x)."""
    crop, shift, size = placement[:, CROP], placement[:, SHIFT], placement[:, OUTPUT]
    bits = placement[:, TURN].astype(int)
    scale = size / crop[:, 2:]
    # A crop that reaches past the source is padded there.
    rest = placement[:, SOURCE] - crop[:, :2]
    limit = np.where(crop[:, 2:] > rest, rest * scale, size)
    first, last = (np.clip((corner - crop[:, :2]) * scale, 0, limit) for corner in (first, last))
    mirrored = (bits & np.array([DOWN, ACROSS])) != 0
    first, last = np.where(mirrored, size - last, first), np.where(mirrored, size - first, last)
    first, last = (np.where(bits & DIAGONAL, corner[:, ::-1], corner) for corner in (first, last))
    first, last = (np.clip(corner - shift, 0, size) for corner in (first, last))
    return first, last, scale
