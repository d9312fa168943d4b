"""RandAugment: some operations out of fourteen, all with one magnitude."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.transforms.policy import Policy, Space, checked_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform

RAND_AUGMENT: Space = (
    ("Identity", 0.0, 0.0, False),
    ("ShearX", 0.0, 0.3, True),
    ("ShearY", 0.0, 0.3, True),
    ("TranslateX", 0.0, 150 / 331, True),
    ("TranslateY", 0.0, 150 / 331, True),
    ("Rotate", 0.0, 30.0, True),
    ("Brightness", 0.0, 0.9, True),
    ("Color", 0.0, 0.9, True),
    ("Contrast", 0.0, 0.9, True),
    ("Sharpness", 0.0, 0.9, True),
    ("Posterize", 8.0, 4.0, False),
    ("Solarize", 1.0, 0.0, False),
    ("AutoContrast", 0.0, 0.0, False),
    ("Equalize", 0.0, 0.0, False),
)


class RandAugment(Policy):
    """Carry out some operations, picked for each image out of fourteen, all with the same magnitude.

    Parameters
    ----------
    num_ops : int
        How many, one after another; one may come twice.
    magnitude : int
        Number of the magnitude, from 0 to ``num_magnitude_bins - 1``.
    num_magnitude_bins : int
        Magnitudes of each operation, at least 2.
    interpolation : {"nearest", "bilinear"}
        How pixels are read between others.
    fill : sequence of three numbers, optional
        Levels of what comes from outside the image; black by default.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    From Cubuk, Zoph, Shlens and Le, "RandAugment: Practical automated data augmentation with a reduced search space"
    (arXiv:1909.13719), with the operations and magnitudes of torchvision's ``RandAugment``.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> augment = RandAugment(num_ops=2, magnitude=9)
    >>> state = State(True, "cpu", (32, 32, 3), np.dtype("uint8"))
    >>> augment.draw(lambda count: np.full((4, count), 0.99), 4, state).shape
    (4, 22)
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: str = "nearest",
        fill: Sequence[float] | None = None,
    ) -> None:
        self.num_ops = checked_whole("RandAugment", "num_ops", num_ops, 0)
        self.magnitude = checked_whole("RandAugment", "magnitude", magnitude, 0)
        super().__init__(num_magnitude_bins, interpolation, fill)
        if self.magnitude >= self.num_magnitude_bins:
            raise OptionError(
                f"RandAugment: magnitude is {magnitude}; expected 0 to {num_magnitude_bins - 1}, as there are "
                f"{num_magnitude_bins} bins"
            )

    @property
    def space(self) -> Space:
        return RAND_AUGMENT

    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        numbers = uniform(2 * self.num_ops)
        which = (numbers[:, ::2] * len(RAND_AUGMENT)).astype(np.intp)
        return which, np.full_like(which, self.magnitude), (numbers[:, 1::2] < 0.5).astype(np.intp)
