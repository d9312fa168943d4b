"""GeometrySource: how an output crops and moves its images, for the outputs that follow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.fields.image_decoders import SimpleRGBImageDecoder
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.transforms.transform import Transform


@dataclass(frozen=True, eq=False)
class Leader:
    """How an output crops and moves its images."""

    name: str  # of the output
    decoder: SimpleRGBImageDecoder  # chooses its crop boxes
    stream: int | None  # stream number of the decoder's random numbers, if it draws any
    heights: NDArray[Any]  # (N,) sizes of its stored images, of all samples of the file, in pixels
    widths: NDArray[Any]  # (N,)
    size: tuple[int, int]  # height and width after the pass, in pixels
    steps: tuple[tuple[Transform, int], ...] = ()  # operations of the pass that move pixels, with stream numbers
    ops: tuple[tuple[Transform, int | None], ...] = ()  # operations after the pass that move pixels

    @property
    def is_random(self) -> bool:
        """Whether crop boxes are drawn."""
        return self.stream is not None

    @property
    def usual_numbers(self) -> int:
        """Random numbers per image, drawn in advance."""
        return self.decoder.usual_numbers

    def boxes(
        self, samples: NDArray[np.uint64], heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None
    ) -> NDArray[np.int32]:
        """Choose the crop boxes, (N, 4) top, left, height and width, of images of the given sizes that follow these."""
        own = np.stack([self.heights[samples], self.widths[samples]], axis=1).astype(np.int32)
        boxes = self.decoder.boxes(own[:, 0], own[:, 1], uniform)
        return scaled_boxes(boxes, own, np.stack([heights, widths], axis=1))


def scaled_boxes(boxes: NDArray[Any], source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.int32]:
    """Scale boxes, (N, 4) top, left, height and width, from images of `source` sizes, (N, 2), to those of `target`."""
    # Borders are rounded to the nearest pixel (halves up); an empty box becomes the pixel around its centre.
    first = np.asarray(boxes[:, :2], np.int64)
    last = first + boxes[:, 2:]
    whole, other = source.astype(np.int64), target.astype(np.int64)
    middle = (first + last) * other // (2 * whole)
    first, last = ((2 * edge * other + whole) // (2 * whole) for edge in (first, last))
    first = np.where(last > first, first, middle)
    return np.concatenate([first, np.maximum(last - first, 1)], axis=1).astype(np.int32)
