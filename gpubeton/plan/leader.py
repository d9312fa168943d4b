"""Leader: what an output does to where its pixels are, for outputs that follow it."""

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
    """Where the pixels of an output's images come from, of however many channels those are.

    Parameters
    ----------
    name : str
        Name of the output.
    decoder : SimpleRGBImageDecoder
        Chooses its crop boxes.
    stream : int or None
        Operation number of that decoder's random numbers, None if it draws none.
    heights, widths : ndarray of integers, shape (N,)
        Sizes of the stored images that are cut, of all samples of the file, in pixels.
    size : tuple of int
        Height and width of the output in pixels, before `tail`.
    steps : tuple of (Transform, int)
        Its flips and translates in the one pass over the pixels, in order, each with its operation number.
    tail : tuple of (Transform, int or None)
        What moves pixels afterwards, likewise.
    """

    name: str
    decoder: SimpleRGBImageDecoder
    stream: int | None
    heights: NDArray[Any]
    widths: NDArray[Any]
    size: tuple[int, int]
    steps: tuple[tuple[Transform, int], ...] = ()
    tail: tuple[tuple[Transform, int | None], ...] = ()

    @property
    def is_random(self) -> bool:
        """Whether crop boxes are drawn."""
        return self.stream is not None

    @property
    def usual_numbers(self) -> int:
        """Random numbers per image, see `SimpleRGBImageDecoder.usual_numbers`."""
        return self.decoder.usual_numbers

    def boxes(
        self, samples: NDArray[np.uint64], heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None
    ) -> NDArray[np.int32]:
        """Choose the part of each image of a follower.

        Parameters
        ----------
        samples : ndarray of uint64, shape (N,)
            Sample ids.
        heights, widths : ndarray of integers, shape (N,)
            Sizes of the follower's images, in pixels.
        uniform : Uniform or None
            The random numbers of the leader's decoder.

        Returns
        -------
        ndarray of int32, shape (N, 4)
            Crop boxes: top, left, height, width, in pixels of the follower.
        """
        own = np.stack([self.heights[samples], self.widths[samples]], axis=1).astype(np.int32)
        boxes = self.decoder.boxes(own[:, 0], own[:, 1], uniform)
        return scaled_boxes(boxes, own, np.stack([heights, widths], axis=1))


def scaled_boxes(boxes: NDArray[Any], source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.int32]:
    """Find the same parts in images of other sizes.

    Parameters
    ----------
    boxes : ndarray of integers, shape (N, 4)
        Top, left, height and width, in pixels.
    source, target : ndarray of integers, shape (N, 2)
        Height and width of the images that they are parts of, and of the others, in pixels.

    Returns
    -------
    ndarray of int32, shape (N, 4)
        Their borders are rounded to the nearest pixel (halves up); a part that would be empty is the pixel around its
        centre.

    Examples
    --------
    >>> scaled_boxes(np.array([[10, 21, 40, 30]]), np.array([[100, 60]]), np.array([[50, 30]])).tolist()
    [[5, 11, 20, 15]]
    """
    first = np.asarray(boxes[:, :2], np.int64)
    last = first + boxes[:, 2:]
    whole, other = source.astype(np.int64), target.astype(np.int64)
    middle = (first + last) * other // (2 * whole)
    first, last = ((2 * edge * other + whole) // (2 * whole) for edge in (first, last))
    first = np.where(last > first, first, middle)
    return np.concatenate([first, np.maximum(last - first, 1)], axis=1).astype(np.int32)
