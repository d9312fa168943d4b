"""Crops that a function of the user's chooses, as decoders written for FFCV have it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import PipelineError
from gpubeton.pipeline.compiler import Compiler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.uniform import Uniform


def generated_boxes(
    decoder: Any, heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None
) -> NDArray[np.int32]:
    """Choose the part of each image by the function that a decoder's ``get_crop_generator`` gives.

    The generators that compiled code has, ``np.random``'s and ``random``'s, are seeded before each call. They are not
    while compilation is off: they are the whole program's then.

    Parameters
    ----------
    decoder : ResizedCropRGBImageDecoder
        The decoder; its `scale` and `ratio`, or None, are what the function is called with.
    heights, widths : ndarray of integers, shape (N,)
        Sizes of the images, in pixels.
    uniform : Uniform
        Their random numbers, which the seeds are made of.

    Returns
    -------
    ndarray of int32, shape (N, 4)
        Crop boxes: top, left, height, width, in source pixels.

    Raises
    ------
    PipelineError
        If a box is not inside its image.
    """
    if uniform is None:
        raise TypeError(f"{type(decoder).__name__}.boxes needs random numbers: pass `uniform`")
    seeds = (uniform(1)[:, 0] * 2**32).astype(np.uint32)
    ranges = (getattr(decoder, "scale", None), getattr(decoder, "ratio", None))
    scale, ratio = (np.array(value, np.float64) if isinstance(value, tuple) else value for value in ranges)
    size = np.stack([heights, widths], axis=1).astype(np.uint32)
    boxes = np.empty((len(size), 4), np.int64)
    crop = Compiler.compile(decoder.get_crop_generator, generation=decoder.generation)
    Compiler.compile(_crop_all)(crop, size, scale, ratio, seeds if Compiler.is_enabled else seeds[:0], boxes)
    corner, extent = boxes[:, :2], boxes[:, 2:]
    inside = (corner >= 0).all(axis=1) & (extent >= 1).all(axis=1) & (corner + extent <= size).all(axis=1)
    if not inside.all():
        wrong = int(np.flatnonzero(~inside)[0])
        raise PipelineError(
            f"{type(decoder).__name__}: get_crop_generator chose top, left, height, width {boxes[wrong].tolist()} in "
            f"an image of {heights[wrong]} x {widths[wrong]} (height x width); expected a part of it"
        )
    return boxes.astype(np.int32)


def _crop_all(crop: Any, size: Any, scale: Any, ratio: Any, seeds: Any, boxes: Any) -> None:
    for row in range(len(size)):
        if len(seeds) > 0:
            np.random.seed(seeds[row])  # noqa: NPY002  (what compiled code has)
            random.seed(seeds[row])
        top, left, height, width = crop(size[row, 0], size[row, 1], scale, ratio)
        boxes[row, 0] = top
        boxes[row, 1] = left
        boxes[row, 2] = height
        boxes[row, 3] = width
