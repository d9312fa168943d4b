"""ImageProgram: an image pipeline after fusion, as an executor carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.pipeline.state import State
from gpubeton.plan.draws import compose
from gpubeton.plan.philox import uniform, uniform_of_rows, uniforms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.batch.painting import Fill
    from gpubeton.fields.image_decoders import SimpleRGBImageDecoder
    from gpubeton.plan.batch_ops import BatchOps
    from gpubeton.plan.leader import Leader
    from gpubeton.transforms.color_jitter import ColourTransform
    from gpubeton.transforms.mixup import ImageMixing
    from gpubeton.transforms.transform import Transform

MAX_COLOUR_STEPS = 24
"""Steps on the colours of an image that are fused."""


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
    interpolation : {"area", "bilinear", "antialias", "nearest"}
        How crops are resized.
    steps : tuple of Transform
        The flips, cutouts and translates of the one pass, in order.
    max_paints : int
        Paints in a row of draws.
    fills : ndarray of the kind's type, shape (F, C)
        Levels that paints fill with; at least one row.
    table : ndarray, shape (256, 3) for RGB images of 8 bits, or None
        Output for each level and channel, of the output's type (for bfloat16 its bits as uint16); None where levels
        are the output.
    dtype : {"uint8", "uint16", "float16", "bfloat16", "float32"}
        Element type that the one pass writes.
    tail : BatchOps
        What runs afterwards on the finished batch.
    streams : tuple of int
        Operation number of the random numbers of the decoder, if it is random, and of each random step.
    halves_as_int16 : bool
        Whether float16 output is handed to the tail as int16, as FFCV does before ``ToTensor``.
    notes : tuple of (str, str)
        Each operation of the pipeline and where it runs.
    mean_std : tuple of two tuples of float, or None
        What `table` was made from: an executor may compute ``(level - mean) / std`` where that gives the table's bits.
    device : str
        Where the one pass runs: "cpu", or a GPU such as "cuda:0".
    returns_to_cpu : bool
        Whether what a GPU wrote is copied to the CPU before the tail.
    colours : tuple of (ColourTransform, int)
        What is done to the colours, and operation numbers of its random numbers.
    early_paints : int
        How many of the paints come before that.
    mixing : tuple of (ImageMixing, int), or None
        Mixup or cutmix of the batch's levels, before the table, and operation number of its random numbers.
    leader : Leader or None
        The output that these images follow, which chooses the crop boxes instead of `decoder`; its flips and translates
        are the first of `steps`, under its own operation numbers.
    kind : ImageKind
        Channels and bits of the images.
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
    tail: BatchOps
    streams: tuple[int, ...] = ()
    halves_as_int16: bool = False
    notes: tuple[tuple[str, str], ...] = ()
    mean_std: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    device: str = "cpu"
    returns_to_cpu: bool = False
    colours: tuple[tuple[ColourTransform, int], ...] = ()
    early_paints: int = 0
    mixing: tuple[ImageMixing, int] | None = None
    leader: Leader | None = None
    kind: ImageKind = RGB

    @property
    def num_colour_steps(self) -> int:
        """Steps on the colours of each image."""
        return sum(colour.num_steps for colour, _ in self.colours)

    @property
    def pass_dtype(self) -> str:
        """Element type that the pass over single images writes: levels, if they are to be mixed."""
        return "uint8" if self.mixing else self.dtype

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
        chooser = self.decoder if self.leader is None else self.leader
        random = ((chooser,) if chooser.is_random else ()) + self.steps
        wanted = [(stream, one.usual_numbers) for stream, one in zip(self.streams, random, strict=True)]
        first = uniforms(seed, epoch, samples, wanted)
        numbers = [_Numbers(seed, epoch, samples, stream, own) for stream, own in zip(self.streams, first, strict=True)]
        own_numbers = numbers.pop(0) if chooser.is_random else None
        if self.leader is None:
            boxes = self.decoder.boxes(heights, widths, own_numbers)
        else:
            boxes = self.leader.boxes(samples, heights, widths, own_numbers)
        image = image_state(self.height, self.width, "cpu", self.kind)
        draws = [step.draw(own, len(samples), image) for step, own in zip(self.steps, numbers, strict=True)]
        size = (self.height, self.width)
        return compose(self.steps, draws, boxes, size=size, fills=numbered_fills(self.steps))

    def draw_colours(self, seed: int, epoch: int, samples: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Decide what is done to the colours of each image.

        Parameters
        ----------
        seed, epoch : int
            The loader's seed and the number of the epoch.
        samples : ndarray of uint64, shape (N,)
            Sample ids.

        Returns
        -------
        ndarray of int32, shape (N, 2 * K)
            Kind and factor of each step, see `gpubeton.batch.color_formulas`; K is 0 without any.
        """
        image = image_state(self.height, self.width, "cpu", self.kind)
        rows = [np.zeros((len(samples), 0), np.int32)]
        for colour, stream in self.colours:
            rows.append(colour.draw(partial(uniform_of_rows, seed, epoch, samples, stream), len(samples), image))
        return np.concatenate(rows, axis=1)

    def draw_mixes(self, seed: int, epoch: int, samples: NDArray[np.uint64]) -> NDArray[np.int32] | None:
        """Decide how the images of a batch are mixed with each other.

        Parameters
        ----------
        seed, epoch : int
            The loader's seed and the number of the epoch.
        samples : ndarray of uint64, shape (N,)
            Sample ids of the batch as it is handed on, in order.

        Returns
        -------
        ndarray of int32, shape (N, MIX_COLUMNS), or None
            See `gpubeton.batch.mix`; None if they are not.
        """
        if self.mixing is None:
            return None
        mixing, stream = self.mixing
        numbers = partial(uniform_of_rows, seed, epoch, samples, stream)
        return mixing.draw(numbers, len(samples), image_state(self.height, self.width, "cpu", self.kind))

    def explain(self) -> str:
        """Describe what was fused and what runs afterwards.

        Returns
        -------
        str
            A headline, and a line for each operation of the pipeline.
        """
        where = "" if self.device == "cpu" else f" on {self.device}"
        kind = "" if self.kind == RGB else f"{self.kind.name}, "
        size = f"{self.height} x {self.width}"
        head = f"{self.field}: {kind}{size}, {self.interpolation}, written as {self.dtype}{where}"
        width = min(max((len(name) for name, _ in self.notes), default=0), 72)
        lines = [f"  {name:<{width}}  {note}" for name, note in self.notes]
        return "\n".join([head, *lines])


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


def numbered_fills(steps: Sequence[Transform]) -> dict[Fill, int]:
    """Number the fills of a program.

    Parameters
    ----------
    steps : sequence of Transform
        Its steps.

    Returns
    -------
    dict of fill to int
        Row of each in the table of fills.
    """
    numbers: dict[Fill, int] = {}
    for step in steps:
        for fill in step.fills():
            numbers.setdefault(fill, len(numbers))
    return numbers


def image_state(height: int, width: int, device: Any, kind: ImageKind = RGB) -> State:
    """Describe a batch of images that was just decoded."""
    return State(jit_mode=True, device=device, shape=(height, width, kind.channels), dtype=kind.dtype)
