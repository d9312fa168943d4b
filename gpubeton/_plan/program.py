"""ImageProgram: an image pipeline after fusion, as an executor runs it; and how other outputs follow its images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._plan.batch_ops import BatchOp
from gpubeton._plan.draw_rows import compose
from gpubeton._plan.philox import BatchNumbers, uniforms
from gpubeton.errors import PipelineError
from gpubeton.fields.image_decoders import PadImageDecoder
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.pipeline.draw_ids import sample_ids
from gpubeton.pipeline.interpolation import INTERPOLATIONS, filter_radius
from gpubeton.pipeline.state import State
from gpubeton.transforms.checks import image_size
from gpubeton.transforms.mixup import Mosaic
from gpubeton.transforms.placements import FollowingTransform, Placement, PlacementList
from gpubeton.transforms.transform import BatchKey, Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton._plan.batch_ops import BatchOps
    from gpubeton.fields.image_decoders import ImageDecoder
    from gpubeton.pipeline.interpolation import Interpolation
    from gpubeton.pipeline.operation import Operation, Uniform
    from gpubeton.transforms.mixup import ImageMixing
    from gpubeton.transforms.step_transform import RowTransform


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


@dataclass(frozen=True, eq=False)
class ImageProgram:
    """The operations on the images of one field: one pass over the pixels, then operations on the whole batch."""

    field: str  # name
    field_number: int  # keeps its random numbers apart from those of other fields
    decoder: ImageDecoder  # chooses the crop boxes, unless `followed` is set
    height: int  # of the output in pixels
    width: int
    interpolation: Interpolation  # how crops are resized
    # Operations that fold into a row of draws, with their streams; those of `followed` come first.
    folds: tuple[tuple[Transform, int], ...]
    max_paints: int  # rectangles in a row of draws
    fills: NDArray[np.uint8]  # (F, C) their colors, of the kind's type; at least one
    # (256, 3) for RGB images of 8 bits: output for each value and channel (of bfloat16 the bits, as uint16). None if
    # the values themselves are the output.
    table: NDArray[Any] | None
    dtype: str  # element type that the pass writes: "uint8", "uint16", "float16", "bfloat16" or "float32"
    ops: BatchOps  # operations on the whole batch after the pass
    rng_stream: int | None = None  # of the random crop boxes; None if nothing is random about them
    halves_as_int16: bool = False  # whether `ops` get float16 as int16, as FFCV has it before ``ToTensor``
    notes: tuple[tuple[str, str], ...] = ()  # each operation of the pipeline and where it runs
    # `table` as mean and standard deviation: (value - mean) / std may replace it if the bits are the same.
    mean_std: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    device: str = "cpu"  # where the pass runs: "cpu", or a GPU such as "cuda:0"
    returns_to_cpu: bool = False  # whether the GPU's images are copied to the CPU before `ops`
    # Operations that become step rows, after those that fold; see `gpubeton._batch.step_rows`.
    steps: tuple[tuple[RowTransform, int], ...] = ()
    mixing: tuple[ImageMixing, int] | None = None  # of the batch before the table, with its stream
    followed: GeometrySource | None = None  # the output that these images follow
    padding: Fill | None = None  # color around images that are not resized to the whole output
    kind: ImageKind = RGB

    @property
    def drawing(self) -> tuple[Operation, ...]:
        """The operations whose draws are planned: the decoder, or that of `followed`, and those after it."""
        decoder = self.decoder if self.followed is None else self.followed.decoder
        return decoder, *(operation for operation, _ in (*self.folds, *self.steps))

    def largest_scale(self, height: int, width: int) -> float:
        """Return the most source pixels for an output pixel, times the filter's radius, of images up to a size."""
        radius = filter_radius(INTERPOLATIONS[self.interpolation])
        if self.padding is None:
            return max(height / self.height, width / self.width) * radius
        # The size of a padded image is rounded: down by a third at most. A follower may have other proportions.
        shortest = max(1, 2 * min(self.height, self.width) // 3) if self.followed is None else 1
        return max(height, width) / shortest * radius

    @cached_property
    def num_rows(self) -> int:
        """Step rows of each image."""
        return sum(operation.num_rows for operation, _ in self.steps)

    @cached_property
    def kinds(self) -> frozenset[int]:
        """Kinds of steps that an image may have."""
        return frozenset().union(*(operation.kinds for operation, _ in self.steps))

    @property
    def item_size(self) -> int:
        """Bytes of an output value."""
        return 1 if self.table is None else int(self.table.itemsize)

    @property
    def output_bits(self) -> NDArray[np.uint32]:  # (256, 3)
        """The bits of the output value of each level and channel."""
        if self.table is None:
            return np.repeat(np.arange(256, dtype=np.uint32)[:, None], 3, axis=1)
        return np.ascontiguousarray(self.table).view(f"u{self.item_size}").astype(np.uint32)

    @property
    def pass_dtype(self) -> str:
        """Element type that the pass over single images writes: uint8 if they are mixed afterwards."""
        return "uint8" if self.mixing else self.dtype

    @property
    def state(self) -> State:
        """State after the pipeline: shape of a sample, element type, device."""
        return self.ops.state

    def draw(
        self, seed: int, epoch: int, draw_ids: NDArray[np.uint64], heights: NDArray[Any], widths: NDArray[Any]
    ) -> NDArray[np.int32]:
        """Draw a row for each image, see `gpubeton._plan.draw_rows`; it does not depend on the batch of the sample."""
        columns = uniforms(seed, epoch, draw_ids, self._usual_numbers)
        numbers = [
            BatchNumbers(seed, epoch, draw_ids, rng_stream, first)
            for (rng_stream, _), first in zip(self._usual_numbers, columns, strict=True)
        ]
        decoder_numbers = None if self.rng_stream is None else numbers.pop(0)
        if self.followed is None:
            boxes = self.decoder.boxes(heights, widths, decoder_numbers)
        else:
            rows = sample_ids(draw_ids)
            boxes = self.followed.boxes(rows, heights, widths, decoder_numbers)
            heights, widths = self.followed.heights[rows], self.followed.widths[rows]
        chooser, padding = self.drawing[0], None
        if isinstance(chooser, PadImageDecoder) and self.padding is not None:
            padding = chooser.places(heights, widths), self.padding
        folds, size = [operation for operation, _ in self.folds], (self.height, self.width)
        draws = [fold.draw(uniform, len(draw_ids), self._image) for fold, uniform in zip(folds, numbers, strict=True)]
        return compose(folds, draws, boxes, size=size, fills=self._fills, padding=padding)

    @cached_property
    def _usual_numbers(self) -> tuple[tuple[int, int], ...]:
        """Stream and count of the random numbers that are drawn in advance."""
        decoder = self.decoder if self.followed is None else self.followed.decoder
        of_boxes = () if self.rng_stream is None else ((self.rng_stream, decoder.usual_numbers),)
        return *of_boxes, *((rng_stream, fold.usual_numbers) for fold, rng_stream in self.folds)

    @cached_property
    def _fills(self) -> dict[Fill, int]:
        return numbered_fills(self.folds, self.padding)

    @cached_property
    def _image(self) -> State:
        return image_state(self.height, self.width, "cpu", self.kind)

    def draw_steps(
        self, seed: int, epoch: int, draw_ids: NDArray[np.uint64]
    ) -> NDArray[np.int32] | None:  # (N, num_rows, STEP_COLUMNS)
        """Draw the step rows of each image; None if the program has no steps."""
        if not self.steps:
            return None
        rows = [
            operation.draw_rows(BatchNumbers(seed, epoch, draw_ids, rng_stream), len(draw_ids), self._image)
            for operation, rng_stream in self.steps
        ]
        return rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)

    def draw_mixes(self, seed: int, epoch: int, draw_ids: NDArray[np.uint64]) -> NDArray[np.int32] | None:
        """Draw how the images of a finished batch are mixed, (N, MIX_COLUMNS): see `gpubeton._batch.mix`."""
        if self.mixing is None:
            return None
        mixing, rng_stream = self.mixing
        numbers = BatchNumbers(seed, epoch, draw_ids, rng_stream)
        mixes: NDArray[np.int32] = mixing.draw(numbers, len(draw_ids), self._image)
        return mixes

    def geometry_source(
        self,
        name: str,  # of the output
        batch_ops: Sequence[BatchOp],  # of the whole output
        heights: NDArray[Any],  # (N,) sizes of the stored images of all samples, in pixels
        widths: NDArray[Any],
    ) -> GeometrySource:
        """Collect the operations that masks have to follow."""
        in_pass = [BatchOp(operation, self._image, stream) for operation, stream in (*self.folds, *self.steps)]
        moved, moves = (
            tuple((step.operation, step.rng_stream) for step in moving_ops(f"FollowImage({name!r})", steps))
            for steps in (in_pass, batch_ops)
        )
        decoder, rng_stream = self.decoder, self.rng_stream
        if self.followed is not None:
            # A mask of a mask takes its boxes from the first image, so that they are not rounded twice.
            first = self.followed
            decoder, rng_stream, heights, widths = first.decoder, first.rng_stream, first.heights, first.widths
        return GeometrySource(name, decoder, rng_stream, heights, widths, (self.height, self.width), moved, moves)

    def explain(self) -> str:
        """Describe each operation and where it runs."""
        where = "" if self.device == "cpu" else f" on {self.device}"
        kind = "" if self.kind == RGB else f"{self.kind.name}, "
        size = f"{self.height} x {self.width}"
        head = f"{self.field}: {kind}{size}, {self.interpolation}, written as {self.dtype}{where}"
        return "\n".join([head, *note_lines(self.notes)])


def note_lines(notes: Sequence[tuple[str, str]]) -> list[str]:
    """Write each operation, cut at 60 characters, and where it runs, in two columns."""
    names = [name if len(name) <= 60 else f"{name[:57]}..." for name, _ in notes]
    width = max(map(len, names), default=0)
    return [f"  {name:<{width}}  {note}" for name, (_, note) in zip(names, notes, strict=True)]


def numbered_fills(folds: Sequence[tuple[Transform, int]], padding: Fill | None) -> dict[Fill, int]:
    """Number the colors of the rectangles: their rows in the table of fills."""
    numbers: dict[Fill, int] = {} if padding is None else {padding: 0}
    for operation, _ in folds:
        for fill in operation.fills():
            numbers.setdefault(fill, len(numbers))
    return numbers


def image_state(height: int, width: int, device: Any, kind: ImageKind = RGB) -> State:
    """Describe a batch of images after decoding."""
    return State(jit_mode=True, device=device, shape=(height, width, kind.channels), dtype=kind.dtype)


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
