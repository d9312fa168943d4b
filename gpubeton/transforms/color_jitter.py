"""Color operations: brightness, contrast, saturation, hue and grayscale; see `gpubeton._batch.color_formulas`."""

from __future__ import annotations

from abc import abstractmethod
from itertools import permutations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.color_formulas import BRIGHTNESS, CONTRAST, HUE, MAX_FACTOR, NEUTRAL, ONE, SATURATION, apply_steps
from gpubeton._missing_names import MissingNames
from gpubeton.pipeline.validation import check_number, check_probability, check_spread
from gpubeton.transforms.checks import checked_type, given_draw, image_size
from gpubeton.transforms.transform import ImagePass, Moves, Transform, between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State

__all__ = ["RandomBrightness", "RandomContrast", "RandomSaturation"]


class ColorTransform(Transform):
    """An operation on the colors of images, levels from 0 to 255."""

    # `draw` gives the steps of each image, int32 of shape (N, 2 * num_steps): kind and factor of each, in the order
    # in which they are carried out. Rows of several operations, one after another, are the row of all of them.

    is_random: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING

    takes_any_channels: ClassVar[bool] = False
    """Whether images may be gray, or have a fourth channel, which stays as it is."""

    takes_floats: ClassVar[bool] = False
    """Whether images may be floating-point, as after ``NormalizeImage``."""

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

    def check_state(self, state: State) -> None:
        image_size(self, state, any_channels=self.takes_any_channels)
        checked_type(self, state, takes_floats=self.takes_floats)

    def fuse(self, image_pass: ImagePass) -> bool:
        return image_pass.add_color(self)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        apply_steps(batch, given_draw(self, draw, "the images' steps"))
        return batch


class Blend(ColorTransform):
    """Brightness, contrast or saturation by a random factor."""

    kind: ClassVar[int]
    takes_floats: ClassVar[bool] = True

    def __init__(self, magnitude: float, p: float = 0.5) -> None:
        name = type(self).__name__
        check_spread(f"{name}: magnitude", check_number(f"{name}: magnitude", magnitude), 1, 0, MAX_FACTOR)
        self.magnitude = float(magnitude)
        self.p = check_probability(f"{name}: p", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # Two numbers of each image: whether, and how much. Images that stay have the factor 1.
        numbers = uniform(2)
        limits = check_spread(f"{type(self).__name__}: magnitude", self.magnitude, 1, 0, MAX_FACTOR)
        factor = between(limits, numbers[:, 1])
        factor[numbers[:, 0] >= self.p] = 1.0
        return step_rows(self.kind, factor)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": factors(self.draw(uniform, count, state))[:, 0]}


class RandomBrightness(Blend):
    """Multiply all levels of an image by a random factor, with a given probability.

    Parameters
    ----------
    magnitude : float
        Factors are drawn from ``max(0, 1 - magnitude)`` to ``1 + magnitude``; at most 255.
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If `magnitude` or `p` is out of its range.

    Notes
    -----
    FFCV's values: cut off at 255 and rounded down. The factors come from the loader's seed (FFCV's do not), and are
    multiples of 2**-15. Floating-point images, as after ``NormalizeImage``, are rounded to no whole number, but cut off
    at 0 and 255 all the same.

    `DrawnParameters` has, for each image, its factor, float64 (N,); 1 for images that stay.

    Examples
    --------
    >>> image = np.full((1, 1, 1, 3), 100, "uint8")
    >>> RandomBrightness(0.5).apply(image, np.array([[0, 40960]], "int32")).ravel().tolist()  # 1.25 * 2**15
    [125, 125, 125]
    """

    kind: ClassVar[int] = BRIGHTNESS
    takes_any_channels: ClassVar[bool] = True


class RandomContrast(Blend):
    """Mix each image with its mean gray value, with a given probability.

    Parameters
    ----------
    magnitude, p
        As for `RandomBrightness`. With the factor 0 an image is its mean, with 1 it stays as it is.

    Raises
    ------
    OptionError
        If `magnitude` or `p` is out of its range.

    Notes
    -----
    FFCV's values: gray values are rounded down before the mean is taken of them, the result is cut off at 0 and 255 and
    rounded down. All else is as for `RandomBrightness`.

    Examples
    --------
    >>> image = np.array([[[[1, 1, 1], [101, 101, 101]]]], "uint8")  # gray values 0 and 100
    >>> RandomContrast(0.5).apply(image, np.array([[1, 16384]], "int32"))[0, 0, :, 0].tolist()  # 0.5 * 2**15
    [25, 75]
    """

    kind: ClassVar[int] = CONTRAST
    takes_any_channels: ClassVar[bool] = True

    @property
    def num_contrasts(self) -> int:
        return 1


class RandomSaturation(Blend):
    """Mix each pixel with its gray value, with a given probability for each image.

    Parameters
    ----------
    magnitude, p
        As for `RandomBrightness`. With the factor 0 an image is gray, with 1 it stays as it is.

    Raises
    ------
    OptionError
        If `magnitude` or `p` is out of its range.

    Notes
    -----
    FFCV's values: gray values are rounded down, and so is the result, cut off at 0 and 255. All else is as for
    `RandomBrightness`.

    Examples
    --------
    >>> image = np.array([[[[100, 150, 200]]]], "uint8")  # of gray value 140
    >>> RandomSaturation(0.5).apply(image, np.array([[2, 16384]], "int32")).ravel().tolist()  # 0.5 * 2**15
    [120, 145, 170]
    """

    kind: ClassVar[int] = SATURATION


class RandomGrayscale(ColorTransform):
    """Make an image gray, with three equal channels, with a given probability.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If `p` is not from 0 to 1.

    Notes
    -----
    The gray value is torchvision's: ``floor(0.2989 * red + 0.587 * green + 0.114 * blue)``.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> image = np.array([[[[100, 150, 200]]]], "uint8")
    >>> RandomGrayscale(1.0).apply(image, np.array([[2, 0]], "int32")).ravel().tolist()
    [140, 140, 140]
    """

    def __init__(self, p: float = 0.1) -> None:
        self.p = check_probability("RandomGrayscale: p", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return step_rows(SATURATION, np.where(uniform(1)[:, 0] < self.p, 0.0, 1.0))

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": factors(self.draw(uniform, count, state))[:, 0] == 0}


class ColorJitter(ColorTransform):
    """Change brightness, contrast, saturation and hue by random factors, in random order.

    Factors and order differ from image to image.

    Parameters
    ----------
    brightness, contrast, saturation : float or sequence of two floats
        Factors are drawn from ``max(0, 1 - value)`` to ``1 + value``, or from the first to the second of two numbers.
        0 leaves it as it is.
    hue : float or sequence of two floats
        Parts of a full circle, drawn from ``-hue`` to ``hue`` or from the first to the second; at most 0.5.
    p : float
        Probability for each image, 0 to 1; the others stay as they are.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    torchvision's ``ColorJitter``, and with `p` its ``RandomApply`` around that: each step as in torchvision on uint8
    images, cut off at 0 and 255 and rounded down. There one draw serves a whole batch of tensors.

    `DrawnParameters` has, for each image, ``order``, the kinds in the order in which they were carried out, int32 (N,
    K): 0 brightness, 1 contrast, 2 saturation, 3 hue, without those whose range is the neutral value alone; and the
    factors ``brightness``, ``contrast``, ``saturation`` and ``hue``, float64 (N,), hue in parts of a full circle: 1,
    for hue 0, where an image stays.

    Examples
    --------
    >>> jitter = ColorJitter(brightness=0.4, hue=(0, 0.1))
    >>> jitter.num_steps
    2
    >>> red = np.array([[[[200, 0, 0]]]], "uint8")
    >>> jitter.apply(red, np.array([[3, 5461, 0, 32768]], "int32")).ravel().tolist()  # hue first: a sixth of the circle
    [200, 200, 0]
    """

    usual_numbers: ClassVar[int] = 6

    def __init__(
        self,
        brightness: float | Sequence[float] = 0,
        contrast: float | Sequence[float] = 0,
        saturation: float | Sequence[float] = 0,
        hue: float | Sequence[float] = 0,
        *,
        p: float = 1.0,
    ) -> None:
        self.brightness = check_spread("ColorJitter: brightness", brightness, 1, 0, MAX_FACTOR)
        self.contrast = check_spread("ColorJitter: contrast", contrast, 1, 0, MAX_FACTOR)
        self.saturation = check_spread("ColorJitter: saturation", saturation, 1, 0, MAX_FACTOR)
        self.hue = check_spread("ColorJitter: hue", hue, 0, -0.5, 0.5)
        self.p = check_probability("ColorJitter: p", p)

    @property
    def num_steps(self) -> int:
        return len(self._limits())

    @property
    def num_contrasts(self) -> int:
        return int(CONTRAST in self._limits())

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # Numbers: whether, in which order, and a factor of each kind, at the same position for any arguments.
        numbers, limits = uniform(6), self._limits()
        steps = np.empty((count, len(limits), 2), np.int32)
        for place, (kind, range_of_kind) in enumerate(limits.items()):
            factor = between(range_of_kind, numbers[:, 2 + kind])
            factor[numbers[:, 0] >= self.p] = NEUTRAL[kind] / ONE
            steps[:, place] = step_rows(kind, factor)
        orders = np.array(list(permutations(range(len(limits)))), np.intp)
        chosen = orders[(numbers[:, 1] * len(orders)).astype(np.intp)]
        return np.take_along_axis(steps, chosen[:, :, None], axis=1).reshape(count, -1)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        draw = self.draw(uniform, count, state)
        order, factor = draw[:, ::2], factors(draw)
        named = {}
        for kind, name in enumerate(("brightness", "contrast", "saturation", "hue")):
            neutral = np.full(count, NEUTRAL[kind] / ONE)
            # Of each kind there is one step, or none.
            named[name] = np.where(order == kind, factor, 0).sum(axis=1) if (order == kind).any() else neutral
        return {"order": order, **named}

    def _limits(self) -> dict[int, tuple[float, float]]:
        """Return the least and largest factor of each kind that may change something."""
        limits = {BRIGHTNESS: self.brightness, CONTRAST: self.contrast, SATURATION: self.saturation, HUE: self.hue}
        return {
            kind: range_of_kind for kind, range_of_kind in limits.items() if range_of_kind != (NEUTRAL[kind] / ONE,) * 2
        }


def step_rows(
    kind: int,
    factor: NDArray[np.float64],  # (N,) float64: the factors; for HUE parts of a full circle
) -> NDArray[np.int32]:  # (N, 2) int32
    """Return one step of each image, (N, 2): a kind, and factors (N,) in units of 2**-15."""
    rows = np.empty((len(factor), 2), np.int32)
    rows[:, 0] = kind
    np.rint(factor * ONE, out=rows[:, 1], casting="unsafe")
    return rows


def factors(
    draw: NDArray[np.int32],  # (N, 2 * K) int32: kind and factor of each step
) -> NDArray[np.float64]:  # (N, K) float64
    """Return the factors of steps, (N, 2 * K), as floats (N, K)."""
    return draw[:, 1::2] / ONE


def __getattr__(name: str) -> Any:
    MissingNames.find_spec(f"{__name__}.{name}")  # imports from a module, unlike those from a package, ask no finder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
