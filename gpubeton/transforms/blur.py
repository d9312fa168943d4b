"""RandomGaussianBlur: blur images by a random amount.

Weights are whole numbers in units of 2**-15 that sum to 1. Rows are blurred first and kept in units of 2**-7 of a
level, then columns: all of it fits 32 bits, and is within 0.004 of a level of the exact sum before it is rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.compiler import Compiler
from gpubeton.transforms.colour import between, checked_probability
from gpubeton.transforms.colour_kinds import ONE
from gpubeton.transforms.image_change import ChangeTransform, ImageChange
from gpubeton.transforms.layout import image_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


class RandomGaussianBlur(ChangeTransform):
    """Blur each image with a bell of random width, with a given probability.

    Parameters
    ----------
    kernel_size : int
        Pixels along each axis that a pixel becomes the mean of; odd.
    sigma : float or sequence of two floats
        Standard deviation of the bell in pixels, or the least and the largest of which it is drawn.
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    torchvision's ``GaussianBlur``, with a sigma of its own for each image; the image is mirrored at its border. In the
    recipe of SimCLR (arXiv:2002.05709) the kernel is a tenth of the image, and ``sigma=(0.1, 2.0)``, ``p=0.5``.

    Examples
    --------
    >>> image = np.zeros((1, 3, 5, 3), "uint8")
    >>> image[:, :, 2] = 100
    >>> thirds = np.array([[8192, 16384, 8192]], "int32")  # a quarter, a half, a quarter
    >>> RandomGaussianBlur(3).apply(image, thirds)[0, 0, :, 0].tolist()
    [0, 25, 50, 25, 0]
    """

    def __init__(self, kernel_size: int, sigma: float | Sequence[float] = (0.1, 2.0), p: float = 0.5) -> None:
        if kernel_size != int(kernel_size) or kernel_size < 1 or kernel_size % 2 == 0:
            raise OptionError(
                f"RandomGaussianBlur: kernel_size is {kernel_size!r}; expected an odd number of pixels: 23"
            )
        self.kernel_size = int(kernel_size)
        self.sigma = _checked_sigma(sigma)
        self.p = checked_probability("RandomGaussianBlur", p)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        declared = super().declare_state_and_memory(previous_state)
        height, width = image_size(self, previous_state)
        if self.kernel_size // 2 >= min(height, width):
            raise PipelineError(
                f"RandomGaussianBlur: a kernel of {self.kernel_size} pixels reaches beyond images of {height} x "
                f"{width}; expected a kernel_size of at most {2 * min(height, width) - 1}"
            )
        return declared

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        sigma, stays = self._drawn(uniform)
        return {"": np.where(stays, 0.0, sigma)}

    def _drawn(self, uniform: Uniform) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Standard deviation of each image, and whether it stays as it is."""
        numbers = uniform(2)
        return between(self.sigma, numbers[:, 1]), numbers[:, 0] >= self.p

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        sigma, stays = self._drawn(uniform)
        weights = bell_weights(sigma, self.kernel_size)
        weights[stays] = 0
        weights[stays, self.kernel_size // 2] = ONE
        return weights

    def image_change(self) -> ImageChange:
        return ImageChange(_blur_arrays, _blur_tensors)


def bell_weights(sigma: NDArray[np.float64], size: int) -> NDArray[np.int32]:
    """Weights of a Gaussian kernel.

    Parameters
    ----------
    sigma : ndarray of float64, shape (N,)
        Standard deviations in pixels.
    size : int
        Number of weights, odd.

    Returns
    -------
    ndarray of int32, shape (N, size)
        In units of 2**-15, each row's sum 2**15.

    Examples
    --------
    >>> bell_weights(np.array([0.5]), 3).tolist()
    [[3490, 25788, 3490]]
    """
    distance = np.arange(size) - size // 2
    bell = np.exp(-0.5 * (distance / sigma[:, None]) ** 2)
    weights: NDArray[np.int32] = np.rint(bell * (ONE / bell.sum(axis=1, keepdims=True))).astype(np.int32)
    weights[:, size // 2] += ONE - weights.sum(axis=1, dtype=np.int32)
    return weights


def _blur_arrays(images: NDArray[np.uint8], rows: NDArray[Any]) -> None:
    Compiler.compile(blur_images)(images, rows)


def blur_images(images: Any, rows: Any) -> None:
    """Blur images, in place.

    Parameters
    ----------
    images : ndarray of uint8, shape (N, H, W, 3)
        Levels, changed.
    rows : ndarray of int32, shape (N, K)
        Weights of each, in units of 2**-15.
    """
    height, width, reach = images.shape[1], images.shape[2], rows.shape[1] // 2
    values = 3 * width
    line = np.empty(values + 6 * reach, np.int32)
    total = np.empty(values, np.int32)
    blurred = np.empty((height, values), np.int32)
    for number in range(len(images)):
        image, weights = images[number], rows[number]
        if weights[reach] == 32768:
            continue
        for y in range(height):
            for x in range(-reach, width + reach):
                source = width - 1 - abs(width - 1 - abs(x))
                for channel in range(3):
                    line[3 * (x + reach) + channel] = image[y, source, channel]
            total[:] = 128
            for tap in range(len(weights)):
                weight = weights[tap]
                for place in range(values):
                    total[place] += np.int32(weight * line[place + 3 * tap])
            for place in range(values):
                blurred[y, place] = total[place] >> 8
        for y in range(height):
            total[:] = 1 << 21
            for tap in range(len(weights)):
                weight = weights[tap]
                other = blurred[height - 1 - abs(height - 1 - abs(y + tap - reach))]
                for place in range(values):
                    total[place] += np.int32(weight * other[place])
            for x in range(width):
                for channel in range(3):
                    image[y, x, channel] = total[3 * x + channel] >> 22


def _blur_tensors(images: Any, rows: NDArray[Any]) -> None:
    import torch

    reach = rows.shape[1] // 2
    chosen = np.flatnonzero(rows[:, reach] != ONE)
    if len(chosen) == 0:
        return
    own = torch.from_numpy(chosen).to(images.device)
    # Not a convolution: on a GPU those may round to 10 bits.
    weights = torch.from_numpy(rows[chosen].astype(np.int32)).to(images.device).view(len(chosen), -1, 1, 1, 1)
    levels = images[own].to(torch.int32)
    for axis, added, shift in ((2, 128, 8), (1, 1 << 21, 22)):
        length = levels.shape[axis]
        places = torch.arange(-reach, length + reach, device=images.device)
        padded = levels.index_select(axis, length - 1 - (length - 1 - places.abs()).abs())
        total = torch.full_like(levels, added)
        for tap in range(rows.shape[1]):
            total += weights[:, tap] * padded.narrow(axis, tap, length)
        levels = total >> shift
    images[own] = levels.to(torch.uint8)


def _checked_sigma(sigma: float | Sequence[float]) -> tuple[float, float]:
    given = np.asarray(sigma)
    if given.dtype.kind in "iuf" and given.shape in {(), (2,)}:
        least, largest = map(float, np.broadcast_to(given, 2).tolist())
        if 0 < least <= largest < np.inf:
            return least, largest
    raise OptionError(f"RandomGaussianBlur: sigma is {sigma!r}; expected pixels above 0, or two of them: (0.1, 2.0)")
