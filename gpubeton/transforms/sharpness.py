"""RandomAdjustSharpness: sharpen images, or make them softer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.pipeline.compiler import Compiler
from gpubeton.transforms.colour import checked_probability
from gpubeton.transforms.colour_kinds import ONE
from gpubeton.transforms.image_change import ChangeTransform, ImageChange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State

_MAX_FACTOR = 128
"""Largest factor with which all sums fit into 32 bits."""


class RandomAdjustSharpness(ChangeTransform):
    """Move each pixel away from the mean around it, or towards it, with a given probability for each image.

    Parameters
    ----------
    sharpness_factor : float
        0 takes the mean, 1 changes nothing, 2 doubles the distance from the mean; at most 128.
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If `sharpness_factor` or `p` is out of its range.

    Notes
    -----
    torchvision's ``RandomAdjustSharpness`` and Pillow's filter ``SMOOTH``: the mean is that of 3 x 3 pixels, the middle
    one counted five times, and the border stays. Factors are multiples of 2**-15.

    Examples
    --------
    >>> image = np.full((1, 3, 3, 3), 100, "uint8")
    >>> image[0, 1, 1] = 113
    >>> RandomAdjustSharpness(2).apply(image, np.array([[2 * 32768]], "int32"))[0, 1, :, 0].tolist()
    [100, 121, 100]
    """

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        if not 0 <= sharpness_factor <= _MAX_FACTOR:
            raise OptionError(
                f"RandomAdjustSharpness: sharpness_factor is {sharpness_factor!r}; expected 0 to {_MAX_FACTOR}, 1 of "
                f"which changes nothing"
            )
        self.sharpness_factor = float(sharpness_factor)
        self.p = checked_probability("RandomAdjustSharpness", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return np.where(uniform(1) < self.p, round(self.sharpness_factor * ONE), ONE).astype(np.int32)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": self.draw(uniform, count, state)[:, 0] / ONE}

    def image_change(self) -> ImageChange:
        return change_sharpness


def _sharpen_arrays(images: NDArray[np.uint8], rows: NDArray[Any]) -> None:
    Compiler.compile(sharpen_images)(images, rows)


def sharpen_images(images: Any, rows: Any) -> None:
    """Sharpen images, in place.

    Parameters
    ----------
    images : ndarray of uint8, shape (N, H, W, 3)
        Levels, changed.
    rows : ndarray of integers, shape (N, 1)
        Factors, in units of 2**-15.
    """
    height, width = images.shape[1], images.shape[2]
    values = 3 * width
    old = np.empty((height, values), np.int32)
    columns = np.empty(values, np.int32)
    for number in range(len(images)):
        image, factor = images[number], np.int32(rows[number, 0])
        if factor == 32768:
            continue
        away = np.int32(32768 - factor)
        for y in range(height):
            for x in range(width):
                for channel in range(3):
                    old[y, 3 * x + channel] = image[y, x, channel]
        for y in range(1, height - 1):
            above, line, below = old[y - 1], old[y], old[y + 1]
            for place in range(values):
                columns[place] = above[place] + line[place] + below[place]
            for x in range(1, width - 1):
                for channel in range(3):
                    place = 3 * x + channel
                    own = line[place]
                    total = np.uint32(columns[place - 3] + columns[place] + columns[place + 3] + 4 * own)
                    mean = np.int32(np.uint32(2 * total + 13) // np.uint32(26))
                    changed = np.int32(np.int32(own * 32768) + np.int32(away * np.int32(mean - own))) >> 15
                    image[y, x, channel] = min(max(changed, 0), 255)


def _sharpen_tensors(images: Any, rows: NDArray[Any]) -> None:
    import torch

    chosen = np.flatnonzero(rows[:, 0] != ONE)
    if len(chosen) == 0 or min(images.shape[1:3]) < 3:
        return
    own = torch.from_numpy(chosen).to(images.device)
    factor = torch.from_numpy(rows[chosen, 0].astype(np.int32)).to(images.device).view(-1, 1, 1, 1)
    levels = images[own].to(torch.int32)
    height, width = levels.shape[1] - 2, levels.shape[2] - 2
    middle = levels[:, 1:-1, 1:-1]
    total = 4 * middle
    for y in range(3):
        for x in range(3):
            total += levels[:, y : y + height, x : x + width]
    mean = (2 * total + 13) // 26
    changed = (middle * ONE + (ONE - factor) * (mean - middle)) >> 15
    levels[:, 1:-1, 1:-1] = changed.clamp(0, 255)
    images[own] = levels.to(torch.uint8)


change_sharpness = ImageChange(_sharpen_arrays, _sharpen_tensors)
