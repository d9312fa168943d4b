"""ImageProgram: an image pipeline after fusion, as an executor carries it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.errors import PipelineError
from gpubeton.fields.image_decoders import SimpleRGBImageDecoder
from gpubeton.pipeline.dtypes import is_torch_dtype
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.state import State
from gpubeton.plan.draws import compose, paints_of
from gpubeton.plan.philox import uniform, uniforms
from gpubeton.plan.snapshot import snapshot
from gpubeton.plan.tail import Tail, TailStep, compile_step, stream_number
from gpubeton.transforms.cutout import Cutout
from gpubeton.transforms.fill import Fill
from gpubeton.transforms.flip import RandomHorizontalFlip
from gpubeton.transforms.normalize import NormalizeImage
from gpubeton.transforms.ops import ToDevice, ToTensor, ToTorchImage
from gpubeton.transforms.transform import Transform
from gpubeton.transforms.translate import RandomTranslate

FUSED_DTYPES = ("float16", "bfloat16", "float32")
"""Element types that executors can write besides uint8."""


@dataclass(frozen=True, eq=False)
class ImageProgram:
    """What is done to the images of one field: one pass over the pixels, then a tail of whole-batch operations.

    Parameters
    ----------
    field : str
        Name of the field.
    field_number : int
        Its number in the file, which keeps its random numbers apart from other fields'.
    decoder : SimpleRGBImageDecoder
        Chooses the crop boxes.
    height, width : int
        Size of the output in pixels.
    interpolation : {"area", "bilinear", "antialias"}
        How crops are resized.
    steps : tuple of Transform
        The flips, cutouts and translates of the one pass, in order.
    max_paints : int
        Paints in a row of draws.
    fills : ndarray of uint8, shape (F, 3)
        Levels that paints fill with; at least one row.
    table : ndarray, shape (256, 3), or None
        Output for each level and channel, of the output's type (for bfloat16 its bits as uint16); None where levels
        are the output.
    dtype : {"uint8", "float16", "bfloat16", "float32"}
        Element type that the one pass writes.
    tail : Tail
        What runs afterwards on the finished batch.
    streams : tuple of int
        Operation number of the random numbers of the decoder, if it is random, and of each random step.
    halves_as_int16 : bool
        Whether float16 output is handed to the tail as int16, as FFCV does before ``ToTensor``.
    notes : tuple of (Operation, str)
        Each operation of the pipeline and where it runs.
    mean_std : tuple of two tuples of float, or None
        What `table` was made from: an executor may compute ``(level - mean) / std`` where that gives the table's bits.
    """

    field: str
    field_number: int
    decoder: SimpleRGBImageDecoder
    height: int
    width: int
    interpolation: str
    steps: tuple[Transform, ...]
    max_paints: int
    fills: NDArray[np.uint8]
    table: NDArray[Any] | None
    dtype: str
    tail: Tail
    streams: tuple[int, ...] = ()
    halves_as_int16: bool = False
    notes: tuple[tuple[Operation, str], ...] = ()
    mean_std: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def state(self) -> State:
        """What the pipeline leaves behind: shape of a sample, element type, device."""
        return self.tail.state

    def draw(
        self,
        seed: int,
        epoch: int,
        samples: NDArray[np.uint64],
        heights: NDArray[Any],
        widths: NDArray[Any],
    ) -> NDArray[np.int32]:
        """Decide everything random about the images of a batch.

        Parameters
        ----------
        seed, epoch : int
            The loader's seed and the number of the epoch.
        samples : ndarray of uint64, shape (N,)
            Sample ids.
        heights, widths : ndarray of integers, shape (N,)
            Sizes of their images, in pixels.

        Returns
        -------
        ndarray of int32, shape (N, DRAW_COLUMNS + max_paints * PAINT_COLUMNS)
            A row for each image, see `gpubeton.plan.draws`. It depends on the sample, not on its place in the batch.
        """
        random = ((self.decoder,) if self.decoder.is_random else ()) + self.steps
        wanted = [(stream, one.usual_numbers) for stream, one in zip(self.streams, random, strict=True)]
        first = uniforms(seed, epoch, samples, wanted)
        numbers = [_Numbers(seed, epoch, samples, stream, own) for stream, own in zip(self.streams, first, strict=True)]
        boxes = self.decoder.boxes(heights, widths, numbers.pop(0) if self.decoder.is_random else None)
        image = _image_state(self.height, self.width, "cpu")
        draws = [step.draw(own, len(samples), image) for step, own in zip(self.steps, numbers, strict=True)]
        size = (self.height, self.width)
        return compose(self.steps, draws, boxes, size=size, fills=_numbered(self.steps))

    def finish(self, array: NDArray[Any], seed: int, epoch: int, samples: NDArray[np.uint64]) -> Any:
        """Run the tail on what an executor wrote.

        Parameters
        ----------
        array : ndarray, shape (N, height, width, 3)
            The executor's output, of `dtype` (bfloat16 as uint16). It may be changed in place.
        seed, epoch : int
            The loader's seed and the number of the epoch.
        samples : ndarray of uint64, shape (N,)
            Sample ids.

        Returns
        -------
        ndarray or torch.Tensor
            What the pipeline leaves behind; often a view of `array`'s memory.
        """
        batch: Any = array
        if self.dtype == "bfloat16":
            import torch

            batch = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        elif self.halves_as_int16:
            batch = array.view(np.int16)
        return self.tail.run(batch, seed, epoch, samples)

    def explain(self) -> str:
        """Describe what was fused and what runs afterwards.

        Returns
        -------
        str
            A headline, and a line for each operation of the pipeline.
        """
        head = f"{self.field}: {self.height} x {self.width}, {self.interpolation}, written as {self.dtype}"
        names = [repr(operation) for operation, _ in self.notes]
        width = min(max(map(len, names), default=0), 72)
        lines = [f"  {name:<{width}}  {note}" for name, (_, note) in zip(names, self.notes, strict=True)]
        return "\n".join([head, *lines])


def compile_image_program(
    field: str,
    field_number: int,
    operations: Sequence[Any],
    heights: NDArray[Any],
    widths: NDArray[Any],
) -> ImageProgram:
    """Fuse the pipeline of an image field.

    The decoder, the flips, cutouts and translates after it and one ``NormalizeImage`` become one pass over the pixels.
    ``ToTensor``, ``ToTorchImage`` and ``ToDevice`` of the CPU do not change a pixel, so fusion goes on behind them. The
    first operation that does not fit, and all that follow, run afterwards on the finished batch.

    Parameters
    ----------
    field : str
        Name of the field.
    field_number : int
        Its number in the file.
    operations : sequence of Operation or torch.nn.Module
        The user's pipeline; it and its operations are copied and stay as they are. Without a decoder it gets
        `SimpleRGBImageDecoder`; empty, ``ToTensor`` too.
    heights, widths : ndarray of integers, shape (N,)
        Sizes of all images that may be asked for, in pixels.

    Returns
    -------
    ImageProgram
        What executors and loaders carry out.

    Raises
    ------
    PipelineError
        If the operations do not fit each other or the images.

    Examples
    --------
    >>> size = np.array([32, 32])
    >>> program = compile_image_program("image", 0, [RandomHorizontalFlip(), ToTensor(), ToTorchImage()], size, size)
    >>> program.state.shape, program.dtype, len(program.steps), len(program.tail.steps)
    ((3, 32, 32), 'uint8', 1, 2)
    """
    try:
        decoder, *rest = snapshot(operations, SimpleRGBImageDecoder)
        if not isinstance(decoder, SimpleRGBImageDecoder):
            raise PipelineError(f"{decoder!r} is no decoder of images")
        fusion = _Fusion(field_number, decoder, decoder.frame(heights, widths))
        for operation in rest:
            fusion.add(operation)
    except PipelineError as error:
        raise PipelineError(f"field {field!r}: {error}") from error
    return fusion.program(field)


class _Fusion:
    """A program under construction: takes the operations one by one."""

    def __init__(self, field_number: int, decoder: SimpleRGBImageDecoder, size: tuple[int, int]) -> None:
        self.field_number = field_number
        self.decoder = decoder
        self.size = size
        self.state = _image_state(*size, _cpu())
        self.steps: list[Transform] = []
        self.normalize: NormalizeImage | None = None
        self.halves_as_int16 = False
        self.tail: list[TailStep] = []
        self.streams: list[int] = []
        self.notes: list[tuple[Operation, str]] = [(decoder, "fused")]
        self.is_open = True
        self.random_operations = 0
        if decoder.is_random:
            self.streams.append(self._next_stream())

    def add(self, operation: Operation) -> None:
        """Fuse the operation or put it into the tail."""
        stream = self._next_stream() if getattr(operation, "is_random", False) else None
        step, after = compile_step(operation, self.state, stream)
        if self._fuses(operation):
            self.notes.append((operation, "fused"))
            if isinstance(operation, NormalizeImage):
                self.normalize = operation
                self.halves_as_int16 = operation.type == "float16" and not is_torch_dtype(self.state.dtype)
            elif isinstance(operation, Transform) and stream is not None:
                self.steps.append(operation)
                self.streams.append(stream)
        else:
            self.is_open = self.is_open and _only_views(operation)
            self.notes.append((operation, "view" if self.is_open else str(step)))
            self.tail.append(step)
        self.state = after

    def program(self, field: str) -> ImageProgram:
        """The program, complete."""
        height, width = self.size
        return ImageProgram(
            field=field,
            field_number=self.field_number,
            decoder=self.decoder,
            height=height,
            width=width,
            interpolation=self.decoder.interpolation,
            steps=tuple(self.steps),
            max_paints=sum(map(paints_of, self.steps)),
            fills=np.array(list(_numbered(self.steps)) or [(0, 0, 0)], np.uint8),
            table=None if self.normalize is None else self.normalize.table(),
            dtype="uint8" if self.normalize is None else self.normalize.type,
            tail=Tail(tuple(self.tail), self.state),
            streams=tuple(self.streams),
            halves_as_int16=self.halves_as_int16,
            notes=tuple(self.notes),
            mean_std=None if self.normalize is None else (tuple(self.normalize.mean), tuple(self.normalize.std)),
        )

    def _fuses(self, operation: Operation) -> bool:
        if not self.is_open:
            return False
        if isinstance(operation, RandomHorizontalFlip):
            return True
        if self.normalize is not None:  # paints are levels, and are looked up with the rest of the image
            return False
        if isinstance(operation, NormalizeImage):
            return operation.type in FUSED_DTYPES
        return isinstance(operation, Cutout | RandomTranslate)

    def _next_stream(self) -> int:
        self.random_operations += 1
        return stream_number(self.field_number, self.random_operations - 1)


class _Numbers:
    """Random numbers of one operation, of which the first few were made together with the others'."""

    def __init__(
        self, seed: int, epoch: int, samples: NDArray[np.uint64], stream: int, first: NDArray[np.float64]
    ) -> None:
        self.seed, self.epoch, self.samples, self.stream, self.first = seed, epoch, samples, stream, first

    def __call__(self, count: int, rows: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        if count <= self.first.shape[1]:
            return self.first[:, :count] if rows is None else self.first[rows, :count]
        samples = self.samples if rows is None else self.samples[rows]
        return uniform(self.seed, self.epoch, samples, self.stream, count)


def _only_views(operation: Operation) -> bool:
    """Whether an operation leaves every pixel as it is."""
    if isinstance(operation, ToDevice):
        return bool(operation.device.type == "cpu")
    return isinstance(operation, ToTensor | ToTorchImage)


def _numbered(steps: Sequence[Transform]) -> dict[Fill, int]:
    """Number of each fill in the table of fills."""
    numbers: dict[Fill, int] = {}
    for step in steps:
        if isinstance(step, Cutout | RandomTranslate):
            numbers.setdefault(step.fill, len(numbers))
    return numbers


def _image_state(height: int, width: int, device: Any) -> State:
    return State(jit_mode=True, device=device, shape=(height, width, 3), dtype=np.dtype("uint8"))


def _cpu() -> Any:
    import torch

    return torch.device("cpu")
