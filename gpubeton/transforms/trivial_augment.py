"""TrivialAugmentWide: one operation out of fourteen, with any magnitude."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.transforms.policy import Policy, Space

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform

TRIVIAL_AUGMENT_WIDE: Space = (
    ("Identity", 0.0, 0.0, False),
    ("ShearX", 0.0, 0.99, True),
    ("ShearY", 0.0, 0.99, True),
    ("TranslateX", 0.0, 32.0, True),
    ("TranslateY", 0.0, 32.0, True),
    ("Rotate", 0.0, 135.0, True),
    ("Brightness", 0.0, 0.99, True),
    ("Color", 0.0, 0.99, True),
    ("Contrast", 0.0, 0.99, True),
    ("Sharpness", 0.0, 0.99, True),
    ("Posterize", 8.0, 2.0, False),
    ("Solarize", 1.0, 0.0, False),
    ("AutoContrast", 0.0, 0.0, False),
    ("Equalize", 0.0, 0.0, False),
)


class TrivialAugmentWide(Policy):
    """Carry out one operation, picked for each image out of fourteen, with a magnitude picked as well.

    Parameters
    ----------
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
    From Müller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation" (ICCV 2021,
    arXiv:2103.10158), with the operations and magnitudes of torchvision's ``TrivialAugmentWide``.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> state = State(True, "cpu", (32, 32, 3), np.dtype("uint8"))
    >>> TrivialAugmentWide().draw(lambda count: np.full((4, count), 0.99), 4, state).shape
    (4, 11)
    """

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: str = "nearest", fill: Sequence[float] | None = None
    ) -> None:
        super().__init__(num_magnitude_bins, interpolation, fill)

    @property
    def space(self) -> Space:
        return TRIVIAL_AUGMENT_WIDE

    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        numbers = uniform(3) * [len(TRIVIAL_AUGMENT_WIDE), 2, self.num_magnitude_bins]
        which, sign, column = np.split(numbers.astype(np.intp), 3, axis=1)
        return which, column, 1 - sign
