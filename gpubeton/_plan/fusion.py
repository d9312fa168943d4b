"""Fusion: a user's image pipeline becomes one pass over the pixels, and batch operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.image_batch import fill_of
from gpubeton._batch.step_rows import MAX_STEPS, PAINT
from gpubeton._plan.batch_ops import BatchOp, BatchOps, compile_batch_op, move_to
from gpubeton._plan.draw_rows import PADDING_PAINTS
from gpubeton._plan.philox import RngStreams
from gpubeton._plan.program import ImageProgram, image_state, numbered_fills
from gpubeton._plan.snapshot import snapshot
from gpubeton.errors import PipelineError
from gpubeton.fields.image_decoders import FollowImage, ImageDecoder, PadImageDecoder, RandomResizedCropImageDecoder
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from gpubeton.format.field_arguments import RGB
from gpubeton.pipeline.operation import Operation, operation_name
from gpubeton.pipeline.pixel_type import is_torch_dtype, pixel_type
from gpubeton.transforms.checks import checked_levels
from gpubeton.transforms.mixup import ImageMixing
from gpubeton.transforms.normalize import NormalizeImage, constants_of
from gpubeton.transforms.ops import ToDevice, ToTensor, ToTorchImage, moves_to
from gpubeton.transforms.random_resized_crop import RandomResizedCrop
from gpubeton.transforms.step_transform import FoldTransform, StepTransform
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton._plan.program import GeometrySource
    from gpubeton.transforms.step_transform import RowTransform


def compile_image_program(
    field: str,
    field_number: int,
    operations: Sequence[Any],
    heights: NDArray[Any],  # (N,) sizes of all images that may be asked for, in pixels
    widths: NDArray[Any],
    device: str = "cpu",
    followed: GeometrySource | None = None,
    left_on: str | None = None,  # device on which the pipeline must leave the batch
) -> ImageProgram:
    """Fuse the pipeline of an image field into one pass over the pixels; later operations run on finished batches."""
    # Operations that fit are fused in order; views such as ToTensor do not end the fusion, the first other operation
    # does. On a GPU the pass runs there, wherever ToDevice is in the pipeline. Then the batch stays there for the
    # library's operations and for all after ToDevice; for a user's operation before it, it is copied to the CPU.
    try:
        decoder, *rest = snapshot(operations, SimpleRGBImageDecoder)
        if not isinstance(decoder, ImageDecoder):
            raise PipelineError(f"{decoder!r} is no decoder of images")
        size = decoder.frame(heights, widths) if followed is None else followed.size
        fusion = _Fusion(field_number, decoder, size, device)
        if followed is not None and isinstance(decoder, FollowImage):
            fusion.follow(followed, decoder)
        for operation in rest:
            fusion.add(operation)
        if move := move_to(left_on, fusion.state):
            fusion.add(move)
        return fusion.program(field)
    except PipelineError as error:
        raise PipelineError(f"field {field!r}: {error}") from error


class _Fusion:
    """A program under construction: takes the operations one by one."""

    def __init__(self, field_number: int, decoder: ImageDecoder, size: tuple[int, int], device: str) -> None:
        import torch

        self.field_number, self.decoder, self.size = field_number, decoder, size
        self.device = torch.device(device)
        # Where the user believes the batch to be; on a GPU it is there before its ToDevice is met.
        self.kind = decoder.kind
        self.state = image_state(*size, torch.device("cpu"), self.kind)
        self.folds: list[tuple[Transform, int]] = []
        self.steps: list[tuple[RowTransform, int]] = []
        self.normalize: NormalizeImage | None = None
        self.mixing: tuple[ImageMixing, int] | None = None
        self.halves_as_int16 = False
        self.batch_ops: list[BatchOp] = []
        self.notes = [(repr(decoder), "fused")]
        self.is_open = True
        # Where the batch is after the operations so far, and whether a user's operation has found it on the GPU.
        self.is_there, self.stays, self.returns_to_cpu = device != "cpu", False, False
        self.followed: GeometrySource | None = None
        self.padding = self._checked_padding(decoder.fill) if isinstance(decoder, PadImageDecoder) else None
        self.numbers = RngStreams(field_number)
        self.decoder_rng_stream = self.rng_stream = self.numbers.next(decoder)

    def add(self, operation: Operation) -> None:
        """Fuse the operation, or run it on the finished batch."""
        self.rng_stream = self.numbers.next(operation)
        step, after = compile_batch_op(operation, self.state, self.rng_stream)
        if self.is_open and self._fits(operation):
            self.notes.append((operation_name(operation), "fused"))
        elif self._is_there(operation):
            self.notes.append((operation_name(operation), "there already"))
        else:
            self._add_batch_op(operation, step)
        self.state = after

    def follow(self, followed: GeometrySource, decoder: FollowImage) -> None:
        """Begin with the moves of another output, with the numbers of their random streams there."""
        self.followed = followed
        if isinstance(followed.decoder, PadImageDecoder):
            self.padding = self._checked_padding(decoder.fill)
        drawn = f"as drawn for {followed.name!r}"
        self.notes.append((f"boxes of {followed.decoder!r}", f"fused, {drawn}"))
        self.decoder_rng_stream = followed.rng_stream
        for operation, rng_stream in followed.steps:
            follower = operation.follower(decoder.interpolation, decoder.fill)
            compile_batch_op(follower, self.state, rng_stream)  # refuses a fill that does not fit
            self.rng_stream = rng_stream
            self._fits(follower)
            self.notes.append((operation_name(follower), f"fused, {drawn}"))
        for operation, rng_stream_after in followed.ops:
            follower = operation.follower(decoder.interpolation, decoder.fill)
            step, self.state = compile_batch_op(follower, self.state, rng_stream_after)
            self._add_batch_op(follower, step)
            self.notes[-1] = (operation_name(follower), f"{self.notes[-1][1]}, {drawn}")

    def program(self, field: str) -> ImageProgram:
        """Return the complete program."""
        if self.is_there and not self.stays and not is_torch_dtype(self.state.dtype):
            self._return_to_cpu()
        height, width = self.size
        channels, num_levels = self.kind.channels, self.kind.max_level + 1
        # A fill that does not fit was refused when its operation was added.
        fills = [fill_of("fill", fill, channels) for fill in numbered_fills(self.folds, self.padding)]
        return ImageProgram(
            field=field,
            field_number=self.field_number,
            decoder=self.decoder,
            height=height,
            width=width,
            interpolation=self.decoder.interpolation,
            folds=tuple(self.folds),
            steps=tuple(self.steps),
            max_paints=(0 if self.padding is None else PADDING_PAINTS) + sum(fold.num_paints for fold, _ in self.folds),
            fills=np.array(fills or [(0,) * channels], self.kind.dtype),
            table=None if self.normalize is None else self.normalize.table(channels, num_levels),
            dtype=self.kind.dtype.name if self.normalize is None else self.normalize.type,
            ops=BatchOps(tuple(self.batch_ops), self.state),
            rng_stream=self.decoder_rng_stream,
            halves_as_int16=self.halves_as_int16 and not self._takes_halves_back(),
            notes=tuple(self.notes),
            mean_std=None if self.normalize is None else constants_of(self.normalize, channels),
            device=str(self.device),
            returns_to_cpu=self.returns_to_cpu,
            mixing=self.mixing,
            followed=self.followed,
            padding=self.padding,
            kind=self.kind,
        )

    def _fits(self, operation: Operation) -> bool:
        """Add the operation to the pass over the pixels, if it fits there."""
        match operation:
            case RandomResizedCrop():
                return self._add_crop(operation)
            case FoldTransform():
                return self._add_fold(operation)
            case StepTransform():
                return self.normalize is None and self.mixing is None and self._add_rows(operation)
            case ImageMixing():
                return self._add_mixing(operation)
            case NormalizeImage():
                return self._add_normalization(operation)
        return False

    def _add_crop(self, crop: RandomResizedCrop) -> bool:
        """Let the decoder take the part, if the images so far are the stored ones."""
        is_untouched = not (self.folds or self.steps or self.normalize or self.mixing)
        if not is_untouched or type(self.decoder) not in (SimpleRGBImageDecoder, ImageDecoder):
            return False
        self.decoder_rng_stream = self._stream_of(crop)
        self.size = (crop.size, crop.size)
        field = self.decoder.field
        of_rgb, of_any = RandomResizedCropRGBImageDecoder, RandomResizedCropImageDecoder
        self.decoder = (of_any if self.decoder.takes_any_kind else of_rgb)(self.size, crop.scale, crop.ratio)
        self.decoder.accept_field(field)
        return True

    def _add_fold(self, operation: FoldTransform) -> bool:
        # The partner of a mix may need another flip. Paints are levels, which the table of a normalization reads.
        if self.mixing is not None or (operation.num_paints and self.normalize is not None):
            return False
        # An image may be mirrored before its colors change; nothing else that comes after a step may.
        stays = all(step.moves is Moves.NOTHING and PAINT not in step.kinds for step, _ in self.steps)
        if self.steps and (operation.num_paints or not stays):
            return self.normalize is None and self._add_rows(operation)
        self.folds.append((operation, self._stream_of(operation)))
        return True

    def _add_rows(self, operation: RowTransform) -> bool:
        if operation.num_rows + sum(step.num_rows for step, _ in self.steps) > MAX_STEPS:
            return False
        self.steps.append((operation, self._stream_of(operation)))
        return True

    def _add_mixing(self, mixing: ImageMixing) -> bool:
        if self.kind != RGB or self.normalize is not None or self.mixing is not None:
            return False
        self.mixing = mixing, self._stream_of(mixing)
        return True

    def _add_normalization(self, normalize: NormalizeImage) -> bool:
        if self.normalize is not None or not pixel_type(normalize.type).is_fused:
            return False
        self.normalize = normalize
        self.halves_as_int16 = normalize.type == "float16" and not is_torch_dtype(self.state.dtype)
        return True

    def _takes_halves_back(self) -> bool:
        """Whether a batch operation makes int16 halves again before anything looks at them: two views saved."""
        later = [step.operation for step in self.batch_ops if type(step.operation) not in (ToTensor, ToDevice)]
        return bool(later) and isinstance(later[0], ToTorchImage) and later[0].convert_back_int16

    def _stream_of(self, operation: Operation) -> int:
        if self.rng_stream is None:
            raise PipelineError(f"{operation!r} has no random numbers")
        return self.rng_stream

    def _checked_padding(self, fill: Fill) -> Fill:
        checked_levels(type(self.decoder).__name__, fill, self.state)
        return fill

    def _is_there(self, operation: Operation) -> bool:
        """Whether the operation moves the batch to where it is."""
        return self.is_there and isinstance(operation, ToDevice) and moves_to(operation, self.device)

    def _add_batch_op(self, operation: Operation, step: BatchOp) -> None:
        is_on_cpu = self.state.device.type == "cpu"
        needs_declared_device, is_view = True, False
        if isinstance(operation, Transform):
            operation.check_unfused(self.state.device.type)
            needs_declared_device, is_view = operation.needs_declared_device, operation.is_view()
        if self.is_there and (isinstance(operation, ToDevice) or (needs_declared_device and is_on_cpu)):
            if not self.stays:
                self._return_to_cpu()
            self.is_there = False
        self.stays = self.stays or (self.is_there and needs_declared_device)
        self.is_open = self.is_open and is_view
        self.notes.append((operation_name(operation), "view" if self.is_open else str(step)))
        self.batch_ops.append(step)

    def _return_to_cpu(self) -> None:
        """Note that the batch operations begin on the CPU."""
        self.returns_to_cpu = True
        later = [place for place, (_, note) in enumerate(self.notes) if not note.startswith("fused")]
        self.notes.insert(min(later, default=len(self.notes)), ("(copy to the CPU)", "after, on the finished batch"))
