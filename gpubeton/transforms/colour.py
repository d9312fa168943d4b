"""Colour: what is done to the colours of an image, as a row of whole numbers.

Every operation on colours draws, for each image, steps of two int32: a kind and a factor in units of 2**-15. A pixel of
levels r, g, b, with a gray value of ``(2989 r + 5870 g + 1140 b) // 10000``, becomes

==========  ===========================================================================
BRIGHTNESS  ``factor * level``
CONTRAST    ``factor * level + (1 - factor) * mean``, mean of the image's gray values
SATURATION  ``factor * level + (1 - factor) * gray`` of the pixel
HUE         the pixel turned by `factor` of a full circle in HSV's hexagon
==========  ===========================================================================

cut off at 0 and 255, and rounded down to whole levels after each step, as FFCV and torchvision do. As factors are whole
numbers, so is all arithmetic, and no rounding depends on order or compiler: arrays, tensors and CUDA kernels agree to
the bit, and each step's result is the exact one, rounded down.

Brightness, contrast and saturation take floating-point images, too, and round none of this: `colour_floats`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.pixel_type import dtype_name
from gpubeton.transforms import colour_floats, colour_lines, colour_tensors, gray_steps
from gpubeton.transforms.colour_kinds import MAX_FACTOR, ONE
from gpubeton.transforms.element_type import checked_type
from gpubeton.transforms.layout import CHANNELS, as_nhwc, image_size
from gpubeton.transforms.transform import ImagePass, Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


class ColourTransform(Transform):
    """An operation on the colours of images, levels from 0 to 255.

    `draw` gives the steps of each image, int32 of shape (N, 2 * num_steps): kind and factor of each, in the order in
    which they are carried out. Rows of several operations, one after another, are the row of all of them.
    """

    is_random: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING

    takes_any_channels: ClassVar[bool] = False
    """Whether images may be gray, or have a fourth channel, which stays as it is."""

    takes_floats: ClassVar[bool] = False
    """Whether images may be floating-point, as after ``NormalizeImage``."""

    @property
    def uses_position(self) -> bool:
        """Whether the result may depend on the position of a pixel."""
        return False

    @property
    def num_steps(self) -> int:
        """Steps of each image."""
        return 1

    @property
    def num_contrasts(self) -> int:
        """How many of them, at most, are of kind CONTRAST, which needs the mean of the whole image."""
        return 0

    @abstractmethod
    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]: ...

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        draw = self.draw(uniform, count, state)
        return {"kind": draw[:, ::2], "factor": factors(draw)}

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        image_size(self, previous_state, any_channels=self.takes_any_channels)
        checked_type(self, previous_state, takes_floats=self.takes_floats)
        return replace(previous_state, shape=tuple(previous_state.shape)), None

    def fuse(self, image_pass: ImagePass) -> bool:
        return image_pass.add_colour(self)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if draw is None:
            raise TypeError(f"{type(self).__name__}.apply needs the images' steps: pass what draw() returned")
        images = as_nhwc(batch)
        if "float" in dtype_name(images.dtype):
            import torch

            images = images[..., :CHANNELS]
            colour_floats.apply_steps(torch.from_numpy(images) if isinstance(images, np.ndarray) else images, draw)
            return batch
        if images.shape[3] == 1:
            gray_steps.apply_steps(images, draw)
            return batch
        images = images[..., :CHANNELS]
        if isinstance(images, np.ndarray):
            if Compiler.is_enabled:
                colour_lines.apply_steps(images, draw)
            else:
                import torch

                colour_tensors.apply_steps(torch.from_numpy(images), draw)
        elif images.device.type == "cpu" and Compiler.is_enabled:
            colour_lines.apply_steps(images.numpy(), draw)
        else:
            colour_tensors.apply_steps(images, draw)
        return batch


def step_rows(kind: int, factor: NDArray[np.float64]) -> NDArray[np.int32]:
    """Write one step of each image down.

    Parameters
    ----------
    kind : int
        BRIGHTNESS, CONTRAST, SATURATION or HUE.
    factor : ndarray of float64, shape (N,)
        The factors; for HUE parts of a full circle.

    Returns
    -------
    ndarray of int32, shape (N, 2)
        Kind, and factor in units of 2**-15.

    Examples
    --------
    >>> step_rows(1, np.array([0.5, 1.0])).tolist()
    [[1, 16384], [1, 32768]]
    """
    rows = np.empty((len(factor), 2), np.int32)
    rows[:, 0] = kind
    np.rint(factor * ONE, out=rows[:, 1], casting="unsafe")
    return rows


def factors(draw: NDArray[np.int32]) -> NDArray[np.float64]:
    """Read the factors of steps.

    Parameters
    ----------
    draw : ndarray of int32, shape (N, 2 * K)
        Kind and factor of each step.

    Returns
    -------
    ndarray of float64, shape (N, K)
        The factors; for HUE parts of a full circle.

    Examples
    --------
    >>> factors(np.array([[0, 16384, 3, -8192]], "int32")).tolist()
    [[0.5, -0.25]]
    """
    return draw[:, 1::2] / ONE


def draw_blend(kind: int, uniform: Uniform, limits: tuple[float, float], probability: float) -> NDArray[np.int32]:
    """Draw the factor of each image: 1 for those that stay as they are.

    Parameters
    ----------
    kind : int
        BRIGHTNESS, CONTRAST or SATURATION.
    uniform : Uniform
        Random numbers; two per image are used, whether and how much.
    limits : tuple of float
        Least and largest factor.
    probability : float
        Share of the images that change.

    Returns
    -------
    ndarray of int32, shape (N, 2)
        A step of each image.
    """
    numbers = uniform(2)
    factor = between(limits, numbers[:, 1])
    factor[numbers[:, 0] >= probability] = 1.0
    return step_rows(kind, factor)


def between(limits: tuple[float, float], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spread uniform numbers over a range.

    Parameters
    ----------
    limits : tuple of float
        The range.
    numbers : ndarray of float64, shape (N,)
        From 0 to 1.

    Returns
    -------
    ndarray of float64, shape (N,)
        From the one limit to the other.

    Examples
    --------
    >>> between((0.5, 1.5), np.array([0.0, 0.25])).tolist()
    [0.5, 0.75]
    """
    least, largest = limits
    return least + (largest - least) * numbers


def checked_probability(operation: str, value: float) -> float:
    """Check a probability.

    Parameters
    ----------
    operation : str
        Name of the operation, for the error.
    value : float
        Its argument `p`.

    Returns
    -------
    float
        The same.

    Raises
    ------
    OptionError
        If it is not from 0 to 1.

    Examples
    --------
    >>> checked_probability("RandomContrast", 1)
    1.0
    """
    if not 0 <= value <= 1:
        raise OptionError(f"{operation}: p is {value!r}; expected a probability from 0 to 1")
    return float(value)


def checked_limits(
    operation: str,
    name: str,
    value: float | Sequence[float],
    centre: float = 1.0,
    bounds: tuple[float, float] = (0, MAX_FACTOR),
) -> tuple[float, float]:
    """Turn an argument, one number or two, into the least and the largest factor.

    Parameters
    ----------
    operation, name : str
        Names of the operation and of its argument, for the error.
    value : float or sequence of two floats
        How far factors may lie from `centre`, or the least and the largest.
    centre : float
        The factor that changes nothing.
    bounds : tuple of float
        What limits are possible; a number too large for the lower of them is cut there.

    Returns
    -------
    tuple of float
        The least and the largest factor.

    Raises
    ------
    OptionError
        If these cannot be limits.

    Examples
    --------
    >>> checked_limits("ColorJitter", "contrast", 1.5)
    (0.0, 2.5)
    """
    low, high = bounds
    numbers = np.asarray(value, dtype=np.float64)
    if numbers.shape == ():
        reach = float(numbers)
        if math.isfinite(reach) and 0 <= reach <= high - centre:
            return max(centre - reach, float(low)), centre + reach
    elif numbers.shape == (2,) and low <= numbers[0] <= numbers[1] <= high:
        return float(numbers[0]), float(numbers[1])
    raise OptionError(
        f"{operation}: {name} is {value!r}; expected a number from 0 to {high - centre:g}, or two in order, the least "
        f"and the largest factor, from {low:g} to {high:g}"
    )
