"""CutMix: each image gets a box of the one before it in the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.mix import BOTTOM, LEFT, PARTNER, RIGHT, TOP, WEIGHT
from gpubeton.pipeline.validation import check_size
from gpubeton.transforms.checks import image_size
from gpubeton.transforms.mixup import (
    CUTMIX_NUMBERS,
    ImageMixing,
    LabelMixing,
    mix_rows,
    mixing_numbers,
    share_rows,
    symmetric_beta,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class ImageCutMix(ImageMixing):
    """Paste a box of the image before it in the batch over each image, at the same place.

    Belongs together with `LabelCutMix` of the same arguments in the pipeline of the labels, which draws the same boxes.

    Parameters
    ----------
    alpha : float
        A box covers a share of the image drawn from the beta distribution with both parameters `alpha`, before it is
        cut off at the image's border. Usual is 1.
    same_lambda : bool
        Whether all of a batch have the same box.

    Raises
    ------
    OptionError
        If `alpha` is not positive.

    Notes
    -----
    From Yun, Han, Oh, Chun, Choe and Yoo, "CutMix: Regularization Strategy to Train Strong Classifiers with
    Localizable Features" (arXiv:1905.04899).

    The boxes are those of torchvision's ``CutMix``, which has one for a batch: of the image's proportions, around a
    pixel of which each is equally likely, sides rounded down to an even number of pixels.

    `DrawnParameters` has, for each image, ``partner``, the row of the batch that was mixed in, int64 (N,), ``share``,
    that of the image itself, float64 (N,), and ``box``, which shows the partner.

    Examples
    --------
    >>> images = np.array([[[[1] * 3] * 4], [[[2] * 3] * 4]], "uint8")
    >>> pasted = np.array([[1, 0, 0, 1, 1, 4], [0, 0, 0, 0, 1, 2]], "int32")
    >>> ImageCutMix(1.0, False).apply(images, pasted)[:, 0, :, 0].tolist()
    [[1, 2, 2, 2], [1, 1, 2, 2]]
    """

    shared_numbers: ClassVar[int | None] = CUTMIX_NUMBERS

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        numbers = mixing_numbers(uniform, count, 4, self.same_lambda)
        rows = mix_rows(count)
        rows[:, WEIGHT] = 0
        rows[:, TOP : RIGHT + 1] = _boxes(self.alpha, numbers, image_size(self, state, any_channels=True))
        return rows

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        rows = self.draw(uniform, count, state)
        corner, end = rows[:, TOP : LEFT + 1], rows[:, BOTTOM : RIGHT + 1]
        height, width = image_size(self, state, any_channels=True)
        share = 1 - (end - corner).prod(axis=1) / (height * width)
        return {"partner": rows[:, PARTNER].astype(np.int64), "share": share, "box": np.hstack([corner, end - corner])}


class LabelCutMix(LabelMixing):
    """Turn labels into what becomes of them in `ImageCutMix`: own label, other label and share of the own pixels.

    Parameters
    ----------
    alpha, same_lambda
        As for the images.
    size : tuple of int, optional
        Height and width of the images in pixels. With it the share is exactly that of the pixels; without it, that of a
        box whose sides are not rounded to pixels: apart by at most ``2 / height + 2 / width``.

    Raises
    ------
    OptionError
        If `alpha` is not positive or `size` is not two positive whole numbers.

    Notes
    -----
    Labels as in the paper, see `ImageCutMix`; torchvision's ``CutMix`` makes vectors of them at once.

    float32 of shape (N, 3), as `LabelMixup` leaves. `MixupToOneHot` makes vectors of them.

    `DrawnParameters` has, for each label, ``partner``, the row of the batch that was mixed in, int64 (N,), and
    ``share``, that of the label itself, float64 (N,).

    Examples
    --------
    >>> labels = np.array([[3], [7]])
    >>> LabelCutMix(1.0, False).apply(labels, np.array([[1, 0.75], [0, 1.0]])).tolist()
    [[3.0, 7.0, 0.75], [7.0, 3.0, 1.0]]
    """

    shared_numbers: ClassVar[int | None] = CUTMIX_NUMBERS

    def __init__(self, alpha: float, same_lambda: bool, size: Sequence[int] | None = None) -> None:
        super().__init__(alpha, same_lambda)
        self.size = None if size is None else check_size("LabelCutMix: size", size, takes_one=False)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.float64]:
        numbers = mixing_numbers(uniform, count, 4, self.same_lambda)
        if self.size is None:
            # The box on a square of side 1.
            half = _half_sides(self.alpha, numbers)[:, None]
            sides = np.minimum(numbers[:, 2:] + half, 1) - np.maximum(numbers[:, 2:] - half, 0)
            return share_rows(1 - sides.prod(axis=1))
        top, left, bottom, right = _boxes(self.alpha, numbers, self.size).T
        return share_rows(1 - (bottom - top) * (right - left) / (self.size[0] * self.size[1]))


def _half_sides(alpha: float, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half of a box's sides, as parts of the image's: the root of the share that it covers, halved."""
    sides: NDArray[np.float64] = np.sqrt(1 - symmetric_beta(alpha, numbers[:, :2]))
    return sides / 2


def _boxes(alpha: float, numbers: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.int64]:
    """Top, left, bottom and right of each box, shape (N, 4)."""
    center = (numbers[:, 2:] * size).astype(np.int64)
    half = (_half_sides(alpha, numbers)[:, None] * size).astype(np.int64)
    return np.hstack([np.maximum(center - half, 0), np.minimum(center + half, size)])
