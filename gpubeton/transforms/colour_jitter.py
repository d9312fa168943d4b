"""ColorJitter: change brightness, contrast, saturation and hue, in an order of each image's own."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.transforms.colour import ColourTransform, between, checked_limits, checked_probability, factors, step_rows
from gpubeton.transforms.colour_kinds import BRIGHTNESS, CONTRAST, HUE, NEUTRAL, ONE, SATURATION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


class ColorJitter(ColourTransform):
    """Change brightness, contrast, saturation and hue by random factors, in random order.

    Each image has factors and an order of its own.

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
        p: float = 1.0,
    ) -> None:
        self.brightness = checked_limits("ColorJitter", "brightness", brightness)
        self.contrast = checked_limits("ColorJitter", "contrast", contrast)
        self.saturation = checked_limits("ColorJitter", "saturation", saturation)
        self.hue = checked_limits("ColorJitter", "hue", hue, centre=0.0, bounds=(-0.5, 0.5))
        self.p = checked_probability("ColorJitter", p)

    @property
    def num_steps(self) -> int:
        return len(self._limits())

    @property
    def num_contrasts(self) -> int:
        return int(CONTRAST in self._limits())

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # Numbers: whether, in which order, and a factor of each kind, at the same place whatever else is asked for.
        numbers, limits = uniform(6), self._limits()
        steps = np.empty((count, len(limits), 2), np.int32)
        for place, (kind, own) in enumerate(limits.items()):
            factor = between(own, numbers[:, 2 + kind])
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
        """Least and largest factor of each kind that may change something."""
        limits = {BRIGHTNESS: self.brightness, CONTRAST: self.contrast, SATURATION: self.saturation, HUE: self.hue}
        return {kind: own for kind, own in limits.items() if own != (NEUTRAL[kind] / ONE,) * 2}
