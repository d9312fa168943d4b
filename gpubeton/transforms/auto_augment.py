"""AutoAugment: policies that were found by a search, one of 25 pairs of operations for each image."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from gpubeton.pipeline.validation import check_choice
from gpubeton.transforms.rand_augment import RAND_AUGMENT, BinnedPolicy, Space

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform

AUTO_AUGMENT: Space = (*RAND_AUGMENT, ("Invert", 0.0, 0.0, False))

#: Of each operation of a pair: its name, its probability, and the number of its magnitude.
PAIRS = {
    "imagenet": """
        Posterize 0.4 8 + Rotate 0.6 9, Solarize 0.6 5 + AutoContrast 0.6, Equalize 0.8 + Equalize 0.6,
        Posterize 0.6 7 + Posterize 0.6 6, Equalize 0.4 + Solarize 0.2 4, Equalize 0.4 + Rotate 0.8 8,
        Solarize 0.6 3 + Equalize 0.6, Posterize 0.8 5 + Equalize 1, Rotate 0.2 3 + Solarize 0.6 8,
        Equalize 0.6 + Posterize 0.4 6, Rotate 0.8 8 + Color 0.4 0, Rotate 0.4 9 + Equalize 0.6,
        Equalize 0 + Equalize 0.8, Invert 0.6 + Equalize 1, Color 0.6 4 + Contrast 1 8, Rotate 0.8 8 + Color 1 2,
        Color 0.8 8 + Solarize 0.8 7, Sharpness 0.4 7 + Invert 0.6, ShearX 0.6 5 + Equalize 1,
        Color 0.4 0 + Equalize 0.6, Equalize 0.4 + Solarize 0.2 4, Solarize 0.6 5 + AutoContrast 0.6,
        Invert 0.6 + Equalize 1, Color 0.6 4 + Contrast 1 8, Equalize 0.8 + Equalize 0.6
    """,
    "cifar10": """
        Invert 0.1 + Contrast 0.2 6, Rotate 0.7 2 + TranslateX 0.3 9, Sharpness 0.8 1 + Sharpness 0.9 3,
        ShearY 0.5 8 + TranslateY 0.7 9, AutoContrast 0.5 + Equalize 0.9, ShearY 0.2 7 + Posterize 0.3 7,
        Color 0.4 3 + Brightness 0.6 7, Sharpness 0.3 9 + Brightness 0.7 9, Equalize 0.6 + Equalize 0.5,
        Contrast 0.6 7 + Sharpness 0.6 5, Color 0.7 7 + TranslateX 0.5 8, Equalize 0.3 + AutoContrast 0.4,
        TranslateY 0.4 3 + Sharpness 0.2 6, Brightness 0.9 6 + Color 0.2 8, Solarize 0.5 2 + Invert 0,
        Equalize 0.2 + AutoContrast 0.6, Equalize 0.2 + Equalize 0.6, Color 0.9 9 + Equalize 0.6,
        AutoContrast 0.8 + Solarize 0.2 8, Brightness 0.1 3 + Color 0.7 0, Solarize 0.4 5 + AutoContrast 0.9,
        TranslateY 0.9 9 + TranslateY 0.7 9, AutoContrast 0.9 + Solarize 0.8 3, Equalize 0.8 + Invert 0.1,
        TranslateY 0.7 9 + AutoContrast 0.9
    """,
    "svhn": """
        ShearX 0.9 4 + Invert 0.2, ShearY 0.9 8 + Invert 0.7, Equalize 0.6 + Solarize 0.6 6, Invert 0.9 + Equalize 0.6,
        Equalize 0.6 + Rotate 0.9 3, ShearX 0.9 4 + AutoContrast 0.8, ShearY 0.9 8 + Invert 0.4,
        ShearY 0.9 5 + Solarize 0.2 6, Invert 0.9 + AutoContrast 0.8, Equalize 0.6 + Rotate 0.9 3,
        ShearX 0.9 4 + Solarize 0.3 3, ShearY 0.8 8 + Invert 0.7, Equalize 0.9 + TranslateY 0.6 6,
        Invert 0.9 + Equalize 0.6, Contrast 0.3 3 + Rotate 0.8 4, Invert 0.8 + TranslateY 0 2,
        ShearY 0.7 6 + Solarize 0.4 8, Invert 0.6 + Rotate 0.8 4, ShearY 0.3 7 + TranslateX 0.9 3,
        ShearX 0.1 6 + Invert 0.6, Solarize 0.7 2 + TranslateY 0.6 7, ShearY 0.8 4 + Invert 0.8,
        ShearX 0.7 9 + TranslateY 0.8 3, ShearY 0.8 5 + AutoContrast 0.7, ShearX 0.7 2 + Invert 0.1
    """,
}


class AutoAugment(BinnedPolicy):
    """Carry out one of 25 pairs of operations, picked for each image; each operation has a probability.

    Parameters
    ----------
    policy : {"imagenet", "cifar10", "svhn"}
        The dataset for which the pairs were found.
    interpolation, fill
        As for `RandAugment`.

    Raises
    ------
    OptionError
        If an argument is none of these.

    Notes
    -----
    From Cubuk, Zoph, Mane, Vasudevan and Le, "AutoAugment: Learning Augmentation Policies from Data" (CVPR 2019,
    arXiv:1805.09501), with the pairs, operations and magnitudes of torchvision's ``AutoAugment``.

    `DrawnParameters` has, for each image, ``operation`` and ``magnitude``, (N, 2), as for `RandAugment`, with places in
    `gpubeton.transforms.auto_augment.AUTO_AUGMENT`.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> state = State(True, "cpu", (32, 32, 3), np.dtype("uint8"))
    >>> drawn = AutoAugment("svhn").drawn(lambda count: np.zeros((1, count)), 1, state)
    >>> [AUTO_AUGMENT[place][0] for place in drawn["operation"][0]]
    ['ShearX', 'Invert']
    """

    space: ClassVar[Space] = AUTO_AUGMENT
    num_rows: ClassVar[int] = 2
    num_numbers: ClassVar[int] = 5
    num_magnitude_bins: int = 10

    def __init__(
        self,
        policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet",
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        fill: Sequence[float] | None = None,
    ) -> None:
        # torchvision's AutoAugmentPolicy is taken, too.
        self.policy = check_choice("AutoAugment: policy", getattr(policy, "value", policy), PAIRS)
        super().__init__(interpolation, fill)

    def choose(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        # Numbers: which pair; of each operation, whether, and its sign.
        numbers, pairs = uniform(5), operations_of(PAIRS[self.policy], [name for name, *_ in AUTO_AUGMENT])
        place, probability, column = np.moveaxis(pairs[(numbers[:, 0] * len(pairs)).astype(np.intp)], 2, 0)
        which = np.where(numbers[:, 1::2] < probability, place, 0).astype(np.intp)  # the first one changes nothing
        return which, column.astype(np.intp), (numbers[:, 2::2] < 0.5).astype(np.intp)


def operations_of(
    text: str,
    names: Sequence[str],  # of all operations
) -> NDArray[np.float64]:  # (C, L, 3)
    """Return place, probability and magnitude of operations that are written as in `PAIRS`."""
    words = [[f"{step} 0".split()[:3] for step in pair.split("+")] for pair in text.split(",")]
    return np.array([[(names.index(name), float(p), float(place)) for name, p, place in pair] for pair in words])
