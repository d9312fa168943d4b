"""Mixup: each sample becomes a weighted mean of itself and of the one before it in the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import OptionError, PipelineError
from gpubeton.transforms.layout import image_size
from gpubeton.transforms.mix_pixels import BOTTOM, ONE, PARTNER, RIGHT, WEIGHT
from gpubeton.transforms.mixing import (
    MIXUP_NUMBERS,
    ImageMixing,
    LabelMixing,
    mix_rows,
    mixing_numbers,
    share_rows,
    symmetric_beta,
)
from gpubeton.transforms.transform import Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


class ImageMixup(ImageMixing):
    """Mix each image with the one before it in the batch: ``share * own + (1 - share) * other``.

    Belongs together with `LabelMixup` of the same arguments in the pipeline of the labels, which draws the same shares.

    Parameters
    ----------
    alpha : float
        Shares are drawn from the beta distribution with both parameters `alpha`; usual are 0.1 to 1.
    same_lambda : bool
        Whether all of a batch have the same share.

    Raises
    ------
    OptionError
        If `alpha` is not positive.

    Notes
    -----
    From Zhang, Cisse, Dauphin and Lopez-Paz, "mixup: Beyond Empirical Risk Minimization" (arXiv:1710.09412).

    FFCV's partners, and on levels its rounding down. Shares are multiples of 2**-15. They come from the loader's seed,
    the epoch and the sample (for `same_lambda` the last of the batch). FFCV's come from the last sample alone, the same
    in each epoch, and with several threads they are not those of the labels.

    Examples
    --------
    >>> images = np.array([[[[100] * 3]], [[[200] * 3]]], "uint8")
    >>> mixes = np.array([[1, 24576, 0, 0, 1, 1], [0, 16384, 0, 0, 1, 1]], "int32")  # 0.75 and 0.5, times 2**15
    >>> ImageMixup(0.2, False).apply(images, mixes)[:, 0, 0, 0].tolist()
    [125, 150]
    """

    shared_numbers: ClassVar[int | None] = MIXUP_NUMBERS

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        rows = mix_rows(count)
        rows[:, WEIGHT] = _weights(self, uniform, count)
        rows[:, [BOTTOM, RIGHT]] = image_size(self, state, any_channels=True)
        return rows

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        rows = self.draw(uniform, count, state)
        return {"partner": rows[:, PARTNER].astype(np.int64), "share": rows[:, WEIGHT] / ONE}


class LabelMixup(LabelMixing):
    """Turn labels into what becomes of them in `ImageMixup`: own label, other label and share of the own.

    Parameters
    ----------
    alpha : float
        As for the images.
    same_lambda : bool
        As for the images.

    Raises
    ------
    OptionError
        If `alpha` is not positive.

    Notes
    -----
    float32 of shape (N, 3), as FFCV's. `MixupToOneHot` makes vectors of them.

    Examples
    --------
    >>> labels = np.array([[3], [7]])
    >>> LabelMixup(0.2, False).apply(labels, np.array([[1, 0.75], [0, 1.0]])).tolist()
    [[3.0, 7.0, 0.75], [7.0, 3.0, 1.0]]
    """

    shared_numbers: ClassVar[int | None] = MIXUP_NUMBERS

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.float64]:
        return share_rows(_weights(self, uniform, count) / ONE)


class MixupToOneHot(Transform):
    """Turn mixed labels, as `LabelMixup` and `LabelCutMix` leave them, into a share of each class.

    Parameters
    ----------
    num_classes : int
        Number of classes.

    Raises
    ------
    OptionError
        If `num_classes` is not a positive whole number, or (when it is applied, on the CPU) a label is not below it.

    Notes
    -----
    Two samples of one class make a 1 there. FFCV leaves only the second sample's share.

    Examples
    --------
    >>> mixed = np.array([[0, 2, 0.75], [1, 1, 0.25]], "float32")
    >>> MixupToOneHot(3).apply(mixed).tolist()
    [[0.75, 0.0, 0.25], [0.0, 1.0, 0.0]]
    """

    def __init__(self, num_classes: int) -> None:
        if num_classes != int(num_classes) or num_classes < 1:
            raise OptionError(f"MixupToOneHot: num_classes is {num_classes!r}; expected a positive whole number")
        self.num_classes = int(num_classes)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        if tuple(previous_state.shape) != (3,):
            raise PipelineError(
                f"MixupToOneHot works on what LabelMixup or LabelCutMix leaves, three numbers for each sample, but "
                f"here each has shape {tuple(previous_state.shape)}"
            )
        return replace(previous_state, shape=(self.num_classes,)), None

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        import torch

        mixed = torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch
        labels, share = mixed[:, :2].long(), mixed[:, 2]
        if mixed.device.type == "cpu":
            self._check(labels)
        vectors = mixed.new_zeros((len(mixed), self.num_classes))
        vectors.scatter_add_(1, labels, torch.stack([share, 1 - share], dim=1))
        return vectors.numpy() if isinstance(batch, np.ndarray) else vectors

    def _check(self, labels: Any) -> None:
        wrong = labels[(labels < 0) | (labels >= self.num_classes)]
        if len(wrong):
            raise OptionError(
                f"MixupToOneHot: num_classes is {self.num_classes}, but a label is {wrong[0].item()}; expected labels "
                f"from 0 to {self.num_classes - 1}"
            )


def _weights(operation: ImageMixup | LabelMixup, uniform: Uniform, count: int) -> NDArray[np.float64]:
    """Share of each image's own, whole numbers in units of 2**-15."""
    numbers = mixing_numbers(uniform, count, 2, operation.same_lambda)
    weights: NDArray[np.float64] = np.rint(symmetric_beta(operation.alpha, numbers) * ONE)
    return weights
