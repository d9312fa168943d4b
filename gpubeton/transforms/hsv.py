"""RandomHSV: change hue, saturation and value, as detectors do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.step_rows import HSV, step_rows
from gpubeton.pipeline.validation import check_number, check_probability
from gpubeton.transforms.step_transform import StepTransform
from gpubeton.transforms.transform import Moves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


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

    Raises
    ------
    OptionError
        If an argument is out of its range.

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

    moves: ClassVar[Moves] = Moves.NOTHING
    kinds: ClassVar[frozenset[int]] = frozenset({HSV})
    num_numbers: ClassVar[int] = 4

    def __init__(self, hue: float = 0.015, saturation: float = 0.7, value: float = 0.4, p: float = 1.0) -> None:
        self.hue = check_number("RandomHSV: hue", hue, 0, 0.5)
        self.saturation = check_number("RandomHSV: saturation", saturation, 0, 1)
        self.value = check_number("RandomHSV: value", value, 0, 1)
        self.p = check_probability("RandomHSV: p", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        changes = self._changes(uniform)
        return step_rows(HSV, changes[:, [1, 2, 0]], (changes != _NEUTRAL).any(axis=1))

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return dict(zip(("hue", "saturation", "value"), self._changes(uniform).T / ONE, strict=True))

    def _changes(self, uniform: Uniform) -> NDArray[np.int32]:
        """Return hue, saturation and value, (N, 3), in units of 2**-15."""
        # Numbers: whether, hue, saturation, value.
        numbers = uniform(4)
        amounts = (2 * numbers[:, 1:] - 1) * (self.hue, self.saturation, self.value)
        return np.where(numbers[:, :1] < self.p, np.rint(amounts * ONE).astype(np.int32), 0) + _NEUTRAL


_NEUTRAL = np.array([0, ONE, ONE], np.int32)
