"""Color operations: brightness, contrast, saturation, hue, HSV and grayscale; see `gpubeton._batch.color_formulas`."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.color_formulas import MAX_FACTOR, ONE
from gpubeton._batch.image_batch import change_floats
from gpubeton._batch.step_rows import BRIGHTNESS, CONTRAST, HSV, HUE, SATURATION, STEP_COLUMNS, step_rows
from gpubeton._missing_names import MissingNames, missing_attribute
from gpubeton.pipeline.pixel_type import dtype_name
from gpubeton.pipeline.validation import check_number, check_probability, check_spread
from gpubeton.transforms.checks import checked_type, given_draw, image_size
from gpubeton.transforms.step_transform import RandomStep, StepTransform
from gpubeton.transforms.transform import between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


__all__ = ["RandomBrightness", "RandomContrast", "RandomSaturation"]

_NEUTRAL = {BRIGHTNESS: 1.0, CONTRAST: 1.0, SATURATION: 1.0, HUE: 0.0}  # factors that change nothing
_KINDS = tuple(_NEUTRAL)
_NEUTRAL_HSV = np.array([0, ONE, ONE], np.int32)


class Blend(StepTransform):
    """Brightness, contrast or saturation by a random factor; of floating-point images, too."""

    num_numbers: ClassVar[int] = 2

    def __init__(self, magnitude: float, p: float = 0.5) -> None:
        name = type(self).__name__
        check_spread(f"{name}: magnitude", check_number(f"{name}: magnitude", magnitude), 1, 0, MAX_FACTOR)
        self.magnitude = float(magnitude)
        self.p = check_probability(f"{name}: p", p)

    def check_state(self, state: State) -> None:
        image_size(self, state, any_channels=self.takes_any_channels)
        checked_type(self, state, takes_floats=True)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return color_steps(self.kind, self.drawn(uniform, count, state)[""])

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        # Two numbers of each image: whether, and how much. Images that stay have the factor 1.
        numbers = uniform(2)
        limits = check_spread(f"{type(self).__name__}: magnitude", self.magnitude, 1, 0, MAX_FACTOR)
        factor = np.where(numbers[:, 0] < self.p, between(limits, numbers[:, 1]), 1.0)
        return {"": np.rint(factor * ONE) / ONE}

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if "float" not in dtype_name(batch.dtype):
            return super().apply(batch, draw)
        change_floats(batch, given_draw(self, draw, "the images' steps"))
        return batch


class RandomBrightness(Blend):
    """Multiply all levels of an image by a random factor, with a given probability.

    Parameters
    ----------
    magnitude : float
        Factors are drawn from ``max(0, 1 - magnitude)`` to ``1 + magnitude``; at most 255.
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    FFCV's values: cut off at 255 and rounded down. The factors come from the loader's seed (FFCV's do not), and are
    multiples of 2**-15. Floating-point images, as after ``NormalizeImage``, are rounded to no whole number, but cut off
    at 0 and 255 all the same.

    `DrawnParameters` has, for each image, its factor, float64 (N,); 1 for images that stay.

    Examples
    --------
    >>> image = np.full((1, 1, 1, 3), 100, "uint8")
    >>> rows = color_steps(BRIGHTNESS, np.array([1.25]))
    >>> RandomBrightness(0.5).apply(image, rows).ravel().tolist()
    [125, 125, 125]
    """

    kind: ClassVar[int] = BRIGHTNESS
    takes_any_channels: bool = True


class RandomContrast(Blend):
    """Mix each image with its mean gray value, with a given probability.

    Parameters
    ----------
    magnitude, p
        As for `RandomBrightness`. With the factor 0 an image is its mean, with 1 it stays as it is.

    Notes
    -----
    FFCV's values: gray values are rounded down before the mean is taken of them, the result is cut off at 0 and 255 and
    rounded down. All else is as for `RandomBrightness`.

    Examples
    --------
    >>> image = np.array([[[[1, 1, 1], [101, 101, 101]]]], "uint8")  # gray values 0 and 100
    >>> rows = color_steps(CONTRAST, np.array([0.5]))
    >>> RandomContrast(0.5).apply(image, rows)[0, 0, :, 0].tolist()
    [25, 75]
    """

    kind: ClassVar[int] = CONTRAST
    takes_any_channels: bool = True


class RandomSaturation(Blend):
    """Mix each pixel with its gray value, with a given probability for each image.

    Parameters
    ----------
    magnitude, p
        As for `RandomBrightness`. With the factor 0 an image is gray, with 1 it stays as it is.

    Notes
    -----
    FFCV's values: gray values are rounded down, and so is the result, cut off at 0 and 255. All else is as for
    `RandomBrightness`.

    Examples
    --------
    >>> image = np.array([[[[100, 150, 200]]]], "uint8")  # of gray value 140
    >>> rows = color_steps(SATURATION, np.array([0.5]))
    >>> RandomSaturation(0.5).apply(image, rows).ravel().tolist()
    [120, 145, 170]
    """

    kind: ClassVar[int] = SATURATION


class RandomGrayscale(RandomStep):
    """Make an image gray, with three equal channels, with a given probability.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    The gray value is torchvision's: ``floor(0.2989 * red + 0.587 * green + 0.114 * blue)``.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> RandomGrayscale(1).generate_code()(np.array([[[[100, 150, 200]]]], "uint8")).ravel().tolist()
    [140, 140, 140]
    """

    kind: ClassVar[int] = SATURATION
    parameters: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)


class ColorJitter(StepTransform):
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
    >>> jitter.num_rows
    2
    >>> red = np.array([[[[200, 0, 0]]]], "uint8")
    >>> jitter.apply(red, color_steps(HUE, np.array([1 / 6]))).ravel().tolist()
    [200, 200, 0]
    """

    usual_numbers: ClassVar[int] = 6
    num_numbers: ClassVar[int] = 6

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
    def kinds(self) -> frozenset[int]:
        return frozenset(self._limits())

    @property
    def num_rows(self) -> int:
        return len(self._limits())

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        order, factors = self._factors(uniform)
        steps = np.zeros((count, self.num_rows, STEP_COLUMNS), np.int32)
        for place, (kind, factor) in enumerate(factors.items()):
            steps[:, place] = color_steps(kind, factor)[:, 0]
        return np.take_along_axis(steps, order[:, :, None], axis=1)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        order, factors = self._factors(uniform)
        numbers = np.array([_KINDS.index(kind) for kind in factors], np.int32)
        named: dict[str, NDArray[Any]] = {"order": numbers[order]}
        for kind, name in zip(_KINDS, ("brightness", "contrast", "saturation", "hue"), strict=True):
            named[name] = np.rint(factors.get(kind, np.full(count, _NEUTRAL[kind])) * ONE) / ONE
        return named

    def _factors(self, uniform: Uniform) -> tuple[NDArray[np.intp], dict[int, NDArray[np.float64]]]:
        """Return the order of the steps, (N, K), and the factors of their kinds, (N,)."""
        # Numbers: whether, in which order, and a factor of each kind, at the same position for any arguments.
        numbers, limits = uniform(6), self._limits()
        changes = numbers[:, 0] < self.p
        factors = {
            kind: np.where(changes, between(limits[kind], numbers[:, 2 + _KINDS.index(kind)]), _NEUTRAL[kind])
            for kind in limits
        }
        orders = np.array(list(permutations(range(len(limits)))), np.intp)
        return orders[(numbers[:, 1] * len(orders)).astype(np.intp)], factors

    def _limits(self) -> dict[int, tuple[float, float]]:
        """Return the least and largest factor of each kind that may change something."""
        limits = zip(_KINDS, (self.brightness, self.contrast, self.saturation, self.hue), strict=True)
        return {kind: ends for kind, ends in limits if ends != (_NEUTRAL[kind],) * 2}


def color_steps(kind: int, factor: NDArray[np.float64]) -> NDArray[np.int32]:  # (N, 1, STEP_COLUMNS), from (N,)
    """Write a color step of each image, with its factor; for HUE parts of a full circle."""
    units = np.rint(factor * ONE).astype(np.int32)
    return step_rows(kind, units[:, None], units != round(_NEUTRAL[kind] * ONE))


def __getattr__(name: str) -> Any:
    MissingNames.find_spec(f"{__name__}.{name}")  # imports from a module, unlike those from a package, ask no finder
    raise missing_attribute(__name__, name)


class RandomHSV(StepTransform):
    """Turn the hue and multiply saturation and value of each image by random amounts.

    Parameters
    ----------
    hue : float
        The hue turns by up to this part of a full circle in either direction; at most 0.5.
    saturation, value : float
        Factors are drawn from ``1 - saturation`` to ``1 + saturation``; at most 1. The same for the value.
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    The augmentation of YOLO's detectors (Redmon and Farhadi, arXiv:1804.02767, and later ones), with the defaults of
    Ultralytics. Theirs rounds hues to two degrees.

    `DrawnParameters` has, for each image, ``hue``, in parts of a full circle, and the factors ``saturation`` and
    ``value``, float64 (N,): 0 and 1 for images that stay.

    Examples
    --------
    >>> image = np.array([[[[100, 150, 200]]]], "uint8")
    >>> rows = step_rows(HSV, np.array([[0, 16384, 0]], "int32"))  # no saturation, half the value
    >>> RandomHSV().apply(image, rows).ravel().tolist()
    [100, 100, 100]
    """

    kind: ClassVar[int] = HSV
    num_numbers: ClassVar[int] = 4

    def __init__(self, hue: float = 0.015, saturation: float = 0.7, value: float = 0.4, p: float = 1.0) -> None:
        self.hue = check_number("RandomHSV: hue", hue, 0, 0.5)
        self.saturation = check_number("RandomHSV: saturation", saturation, 0, 1)
        self.value = check_number("RandomHSV: value", value, 0, 1)
        self.p = check_probability("RandomHSV: p", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        changes = self._changes(uniform)
        return step_rows(HSV, changes[:, [1, 2, 0]], (changes != _NEUTRAL_HSV).any(axis=1))

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return dict(zip(("hue", "saturation", "value"), self._changes(uniform).T / ONE, strict=True))

    def _changes(self, uniform: Uniform) -> NDArray[np.int32]:
        """Return hue, saturation and value, (N, 3), in units of 2**-15."""
        # Numbers: whether, hue, saturation, value.
        numbers = uniform(4)
        amounts = (2 * numbers[:, 1:] - 1) * (self.hue, self.saturation, self.value)
        return np.where(numbers[:, :1] < self.p, np.rint(amounts * ONE).astype(np.int32), 0) + _NEUTRAL_HSV
