"""Filters: RandomGaussianBlur and RandomAdjustSharpness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.step_rows import BLUR, SHARPNESS, num_rows_of, step_rows
from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.validation import check_number, check_probability, check_range
from gpubeton.transforms.checks import checked_whole, image_size
from gpubeton.transforms.step_transform import RandomStep, StepTransform
from gpubeton.transforms.transform import between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State

_MAX_FACTOR = 128  # with larger ones, sums would not fit into 32 bits
_NARROWEST = 2.0**-10  # of this standard deviation, as of smaller ones, the kernel is a single pixel


class RandomGaussianBlur(StepTransform):
    """Blur each image with a Gaussian kernel of random width, with a given probability.

    Parameters
    ----------
    kernel_size : int
        Pixels along each axis that a pixel becomes the mean of; odd.
    sigma : float or sequence of two floats
        Standard deviation of the kernel in pixels, or the least and the largest, between which it is drawn.
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    torchvision's ``GaussianBlur``, with another sigma for each image; the image is mirrored at its border. In the
    recipe of SimCLR (arXiv:2002.05709) the kernel is a tenth of the image, and ``sigma=(0.1, 2.0)``, ``p=0.5``.

    `DrawnParameters` has, for each image, the standard deviation in pixels, float64 (N,); 0 for images that stay.

    Examples
    --------
    >>> image = np.zeros((1, 3, 5, 3), "uint8")
    >>> image[:, :, 2] = 100
    >>> rows = step_rows(BLUR, np.array([[1, 16384, 8192]], "int32"))  # a half, and a quarter at each side
    >>> RandomGaussianBlur(3).apply(image, rows)[0, 0, :, 0].tolist()
    [0, 25, 50, 25, 0]
    """

    kind: ClassVar[int] = BLUR
    num_numbers: ClassVar[int] = 2

    def __init__(self, kernel_size: int, sigma: float | Sequence[float] = (0.1, 2.0), p: float = 0.5) -> None:
        self.kernel_size = checked_whole("RandomGaussianBlur: kernel_size", kernel_size, 1)
        if self.kernel_size % 2 == 0:
            raise OptionError(f"RandomGaussianBlur: kernel_size is {kernel_size}; expected an odd number of pixels: 23")
        self.sigma = check_range("RandomGaussianBlur: sigma", sigma, positive=True, takes_one=True)
        self.p = check_probability("RandomGaussianBlur: p", p)

    @property
    def num_rows(self) -> int:
        return num_rows_of(2 + self.kernel_size // 2)

    def check_state(self, state: State) -> None:
        super().check_state(state)
        height, width = image_size(self, state)
        if self.kernel_size // 2 >= min(height, width):
            raise PipelineError(
                f"RandomGaussianBlur: a kernel of {self.kernel_size} pixels reaches beyond images of {height} x "
                f"{width}; expected a kernel_size of at most {2 * min(height, width) - 1}"
            )

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return blur_steps(self.drawn(uniform, count, state)[""], self.kernel_size)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        numbers = uniform(2)
        return {"": np.where(numbers[:, 0] < self.p, between(self.sigma, numbers[:, 1]), 0.0)}


class RandomAdjustSharpness(RandomStep):
    """Move each pixel away from the mean around it, or towards it, with a given probability for each image.

    Parameters
    ----------
    sharpness_factor : float
        0 takes the mean, 1 changes nothing, 2 doubles the distance from the mean; at most 128.
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    torchvision's ``RandomAdjustSharpness`` and Pillow's filter ``SMOOTH``: the mean is that of 3 x 3 pixels, the middle
    one counted five times, and the border stays. Factors are multiples of 2**-15.

    `DrawnParameters` has, for each image, its factor, float64 (N,); 1 for images that stay.

    Examples
    --------
    >>> image = np.full((1, 3, 3, 3), 100, "uint8")
    >>> image[0, 1, 1] = 113
    >>> rows = step_rows(SHARPNESS, np.array([[2 * 32768]], "int32"))
    >>> RandomAdjustSharpness(2).apply(image, rows)[0, 1, :, 0].tolist()
    [100, 121, 100]
    """

    kind: ClassVar[int] = SHARPNESS

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        name = "RandomAdjustSharpness: sharpness_factor"
        self.sharpness_factor = check_number(name, sharpness_factor, 0, _MAX_FACTOR)
        super().__init__(p)

    @property
    def parameters(self) -> tuple[int, ...]:
        return (round(self.sharpness_factor * ONE),)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return super().draw(uniform, count, state) * (self.parameters != (ONE,))

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": np.where(uniform(1)[:, 0] < self.p, self.parameters[0] / ONE, 1.0)}


def blur_steps(sigma: NDArray[np.float64], size: int) -> NDArray[np.int32]:  # (N, S, STEP_COLUMNS), from (N,)
    """Write a blur of each image, with a standard deviation in pixels; 0 of images that stay."""
    weights = bell_weights(np.maximum(sigma, _NARROWEST), size)[:, size // 2 :]
    reach = np.full((len(sigma), 1), size // 2, np.int32)
    return step_rows(BLUR, np.hstack([reach, weights]), weights[:, 0] != ONE)


def bell_weights(sigma: NDArray[np.float64], size: int) -> NDArray[np.int32]:  # (N, size), from (N,)
    """Return Gaussian weights in units of 2**-15, each row with the sum 2**15."""
    distance = np.arange(size) - size // 2
    bell = np.exp(-0.5 * (distance / sigma[:, None]) ** 2)
    weights: NDArray[np.int32] = np.rint(bell * (ONE / bell.sum(axis=1, keepdims=True))).astype(np.int32)
    weights[:, size // 2] += ONE - weights.sum(axis=1, dtype=np.int32)
    return weights
