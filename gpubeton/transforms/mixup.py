"""Mixing: mixup and CutMix, of images and of labels; and mosaics.

The partner of a sample is the one before it in the batch; the first sample's is the last. Operations of one kind share
their random numbers, so that the pipelines of images and labels draw the same. See `gpubeton._batch.mix`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch import mix
from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.image_batch import as_tensor
from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.pixel_type import is_torch_dtype, torch_dtype
from gpubeton.pipeline.validation import check_number, check_probability, check_range, check_size
from gpubeton.transforms.checks import checked_type, checked_whole, given_draw, image_size
from gpubeton.transforms.placements import MosaicPlacement
from gpubeton.transforms.transform import Geometry, Moves, Transform, between

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory, Uniform
    from gpubeton.pipeline.state import State


_MIXUP_NUMBERS, _CUTMIX_NUMBERS, _EITHER_NUMBERS = range(3)  # `Transform.shared_numbers` of the kinds
_LEAST = 2.0**-33  # replaces the random number 0, which has no logarithm: half of the next one


class Mixing(Transform):
    """Base of the operations that mix samples by shares of a beta distribution."""

    is_random: ClassVar[bool] = True

    def __init__(self, alpha: float, same_lambda: bool) -> None:
        self.alpha = check_number(f"{type(self).__name__}: alpha", alpha, positive=True)
        self.same_lambda = bool(same_lambda)

    @property
    def mixing(self) -> tuple[Any, ...]:
        """What images and their labels have in common."""
        return self.shared_numbers, self.alpha, self.same_lambda


class ImageMixing(Mixing):
    """Mixes each image with the one before it. `draw` gives a row of `MIX_COLUMNS` whole numbers for each."""

    moves: ClassVar[Moves] = Moves.NOTHING

    def check_state(self, state: State) -> None:
        image_size(self, state, any_channels=True)
        checked_type(self, state, takes_floats=True)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        mix.mix_images(batch, given_draw(self, draw, "the images' mixes"))
        return batch


class LabelMixing(Mixing):
    """Turns labels into three numbers: label, label of the partner, and share of the first."""

    # `draw` gives the partner and the share of each, float64 of shape (N, 2).

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        rows = self.draw(uniform, count, state)
        return {"partner": rows[:, 0].astype(np.int64), "share": rows[:, 1]}

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        shape, is_tensor = tuple(previous_state.shape), is_torch_dtype(previous_state.dtype)
        if shape not in {(), (1,)}:
            raise PipelineError(
                f"{type(self).__name__} works on labels, one number for each sample, but here each sample has shape "
                f"{shape}"
            )
        dtype = torch_dtype("float32") if is_tensor else np.dtype("float32")
        return replace(previous_state, shape=(3,), dtype=dtype), None

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        return mix.mix_labels(batch, given_draw(self, draw, "partners and shares"))


class ImageMixup(ImageMixing):
    """Mix each image with the one before it in the batch: ``share * own + (1 - share) * other``.

    Belongs together with `LabelMixup` of the same arguments in the pipeline of the labels, which draws the same shares.

    Parameters
    ----------
    alpha : float
        Shares are drawn from the beta distribution with both parameters `alpha`; usual are 0.1 to 1.
    same_lambda : bool
        Whether all of a batch have the same share.

    Notes
    -----
    From Zhang, Cisse, Dauphin and Lopez-Paz, "mixup: Beyond Empirical Risk Minimization" (arXiv:1710.09412).

    FFCV's partners, and on levels its rounding down. Shares are multiples of 2**-15. They come from the loader's seed,
    the epoch and the sample (for `same_lambda` the last of the batch). FFCV's come from the last sample alone, the same
    in each epoch, and with several threads they are not those of the labels.

    `DrawnParameters` has, for each image, ``partner``, the row of the batch that was mixed in, int64 (N,), and
    ``share``, that of the image itself, float64 (N,).

    Examples
    --------
    >>> images = np.array([[[[100] * 3]], [[[200] * 3]]], "uint8")
    >>> mixes = np.array([[1, 24576, 0, 0, 1, 1], [0, 16384, 0, 0, 1, 1]], "int32")  # 0.75 and 0.5, times 2**15
    >>> ImageMixup(0.2, False).apply(images, mixes)[:, 0, 0, 0].tolist()
    [125, 150]
    """

    shared_numbers: ClassVar[int | None] = _MIXUP_NUMBERS

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        rows = _mix_rows(count)
        rows[:, mix.WEIGHT] = _weights(self, uniform, count)
        rows[:, [mix.BOTTOM, mix.RIGHT]] = image_size(self, state, any_channels=True)
        return rows

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        rows = self.draw(uniform, count, state)
        return {"partner": rows[:, mix.PARTNER].astype(np.int64), "share": rows[:, mix.WEIGHT] / ONE}


class LabelMixup(LabelMixing):
    """Turn labels into what becomes of them in `ImageMixup`: own label, other label and share of the own.

    Parameters
    ----------
    alpha, same_lambda
        As for the images.

    Notes
    -----
    float32 of shape (N, 3), as FFCV's. `MixupToOneHot` makes vectors of them.

    `DrawnParameters` has, for each label, ``partner`` and ``share``, as for `ImageMixup`.

    Examples
    --------
    >>> labels = np.array([[3], [7]])
    >>> LabelMixup(0.2, False).apply(labels, np.array([[1, 0.75], [0, 1.0]])).tolist()
    [[3.0, 7.0, 0.75], [7.0, 3.0, 1.0]]
    """

    shared_numbers: ClassVar[int | None] = _MIXUP_NUMBERS

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.float64]:
        return _share_rows(_weights(self, uniform, count) / ONE)


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

    shared_numbers: ClassVar[int | None] = _CUTMIX_NUMBERS

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        numbers = _mixing_numbers(uniform, count, 4, self.same_lambda)
        rows = _mix_rows(count)
        rows[:, mix.WEIGHT] = 0
        rows[:, mix.TOP : mix.RIGHT + 1] = _boxes(self.alpha, numbers, image_size(self, state, any_channels=True))
        return rows

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        rows = self.draw(uniform, count, state)
        corner, end = rows[:, mix.TOP : mix.LEFT + 1], rows[:, mix.BOTTOM : mix.RIGHT + 1]
        height, width = image_size(self, state, any_channels=True)
        share = 1 - (end - corner).prod(axis=1) / (height * width)
        partner, box = rows[:, mix.PARTNER].astype(np.int64), np.hstack([corner, end - corner])
        return {"partner": partner, "share": share, "box": box}


class LabelCutMix(LabelMixing):
    """Turn labels into what becomes of them in `ImageCutMix`: own label, other label and share of the own pixels.

    Parameters
    ----------
    alpha, same_lambda
        As for the images.
    size : tuple of int, optional
        Height and width of the images in pixels. With it the share is exactly that of the pixels; without it, that of a
        box whose sides are not rounded to pixels: apart by at most ``2 / height + 2 / width``.

    Notes
    -----
    Labels as in the paper, see `ImageCutMix`; torchvision's ``CutMix`` makes vectors of them at once.

    float32 of shape (N, 3), as `LabelMixup` leaves. `MixupToOneHot` makes vectors of them.

    `DrawnParameters` has, for each label, ``partner`` and ``share``, as for `ImageMixup`.

    Examples
    --------
    >>> labels = np.array([[3], [7]])
    >>> LabelCutMix(1.0, False).apply(labels, np.array([[1, 0.75], [0, 1.0]])).tolist()
    [[3.0, 7.0, 0.75], [7.0, 3.0, 1.0]]
    """

    shared_numbers: ClassVar[int | None] = _CUTMIX_NUMBERS

    def __init__(self, alpha: float, same_lambda: bool, size: Sequence[int] | None = None) -> None:
        super().__init__(alpha, same_lambda)
        self.size = None if size is None else check_size("LabelCutMix: size", size, takes_one=False)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.float64]:
        numbers = _mixing_numbers(uniform, count, 4, self.same_lambda)
        if self.size is None:
            # The box on a square of side 1.
            half = _half_sides(self.alpha, numbers)[:, None]
            sides = np.minimum(numbers[:, 2:] + half, 1) - np.maximum(numbers[:, 2:] - half, 0)
            return _share_rows(1 - sides.prod(axis=1))
        top, left, bottom, right = _boxes(self.alpha, numbers, self.size).T
        return _share_rows(1 - (bottom - top) * (right - left) / (self.size[0] * self.size[1]))


class EitherMixing(Mixing):
    """Base of the operations that are mixup or CutMix, as it is drawn for each sample, or once for a batch."""

    shared_numbers: ClassVar[int | None] = _EITHER_NUMBERS

    def __init__(self, mixup_alpha: float, cutmix_alpha: float, same_lambda: bool, p_cutmix: float) -> None:
        name = type(self).__name__
        self.mixup_alpha = check_number(f"{name}: mixup_alpha", mixup_alpha, positive=True)
        self.cutmix_alpha = check_number(f"{name}: cutmix_alpha", cutmix_alpha, positive=True)
        self.same_lambda = bool(same_lambda)
        self.p_cutmix = check_probability(f"{name}: p_cutmix", p_cutmix)

    @property
    def mixing(self) -> tuple[Any, ...]:
        return self.shared_numbers, self.mixup_alpha, self.cutmix_alpha, self.same_lambda, self.p_cutmix

    @abstractmethod
    def parts(self) -> tuple[Mixing, Mixing]:
        """Give mixup and CutMix."""

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[Any]:
        later, cuts = self.split(uniform, count)
        mixed, pasted = (part.draw(later, count, state) for part in self.parts())
        draw: NDArray[Any] = np.where(cuts[:, None], pasted, mixed)
        return draw

    def split(self, uniform: Uniform, size: int) -> tuple[Uniform, NDArray[np.bool_]]:  # cuts: (N,)
        """Decide with the first number of each sample whether it is CutMix; leave the numbers after it."""

        def later(count: int, rows: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
            return uniform(1 + count, rows)[:, 1:]

        return later, _mixing_numbers(uniform, size, 1, self.same_lambda)[:, 0] < self.p_cutmix


class ImageMixupOrCutMix(EitherMixing, ImageMixing):
    """Mix each image with the one before it in the batch, by mixup or by CutMix.

    Belongs together with `LabelMixupOrCutMix` of the same arguments in the pipeline of the labels: it draws the same.

    Parameters
    ----------
    mixup_alpha, cutmix_alpha : float
        The `alpha` of `ImageMixup` and of `ImageCutMix`.
    same_lambda : bool
        Whether all of a batch are mixed alike: by the same of the two, with the same share or box.
    p_cutmix : float
        Probability of CutMix, 0 to 1; of mixup otherwise.

    Notes
    -----
    The choice of timm's ``Mixup``, whose ``switch_prob`` is `p_cutmix`, and of torchvision's
    ``RandomChoice([MixUp(...), CutMix(...)])``: both draw once for a batch, ``same_lambda=True``.

    `DrawnParameters` has, for each image, ``cutmix``, bool (N,), and as for `ImageCutMix` ``partner``, ``share`` and
    ``box``, which in mixup is the whole image.

    Examples
    --------
    >>> images = np.array([[[[100] * 3] * 2], [[[200] * 3] * 2]], "uint8")
    >>> mixes = np.array([[1, 0, 0, 1, 1, 2], [0, 16384, 0, 0, 1, 2]], "int32")  # a pasted pixel, and a mean
    >>> ImageMixupOrCutMix(0.2, 1.0, False).apply(images, mixes)[:, 0, :, 0].tolist()
    [[100, 200], [150, 150]]
    """

    def __init__(self, mixup_alpha: float, cutmix_alpha: float, same_lambda: bool, p_cutmix: float = 0.5) -> None:
        super().__init__(mixup_alpha, cutmix_alpha, same_lambda, p_cutmix)

    def parts(self) -> tuple[Mixing, Mixing]:
        return ImageMixup(self.mixup_alpha, self.same_lambda), ImageCutMix(self.cutmix_alpha, self.same_lambda)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        later, cuts = self.split(uniform, count)
        mixed, pasted = (part.drawn(later, count, state) for part in self.parts())
        box = np.where(cuts[:, None], pasted["box"], (0, 0, *image_size(self, state, any_channels=True)))
        share = np.where(cuts, pasted["share"], mixed["share"])
        return {"cutmix": cuts, "partner": mixed["partner"], "share": share, "box": box}


class LabelMixupOrCutMix(EitherMixing, LabelMixing):
    """Turn labels into what becomes of them in `ImageMixupOrCutMix`: own label, other label and share of the own.

    Parameters
    ----------
    mixup_alpha, cutmix_alpha, same_lambda, p_cutmix
        As for the images.
    size : tuple of int, optional
        Height and width of the images in pixels, as for `LabelCutMix`.

    Notes
    -----
    float32 of shape (N, 3), as `LabelMixup` leaves. `MixupToOneHot` makes vectors of them. The choice is that of timm
    and torchvision, see `ImageMixupOrCutMix`.

    `DrawnParameters` has, for each label, ``partner`` and ``share``, as for `ImageMixup`.

    Examples
    --------
    >>> labels = np.array([[3], [7]])
    >>> LabelMixupOrCutMix(0.2, 1.0, False).apply(labels, np.array([[1, 0.75], [0, 1.0]])).tolist()
    [[3.0, 7.0, 0.75], [7.0, 3.0, 1.0]]
    """

    def __init__(
        self,
        mixup_alpha: float,
        cutmix_alpha: float,
        same_lambda: bool,
        p_cutmix: float = 0.5,
        size: Sequence[int] | None = None,
    ) -> None:
        super().__init__(mixup_alpha, cutmix_alpha, same_lambda, p_cutmix)
        self.size = None if size is None else check_size("LabelMixupOrCutMix: size", size, takes_one=False)

    def parts(self) -> tuple[Mixing, Mixing]:
        mixup = LabelMixup(self.mixup_alpha, self.same_lambda)
        return mixup, LabelCutMix(self.cutmix_alpha, self.same_lambda, self.size)


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
        self.num_classes = checked_whole("MixupToOneHot: num_classes", num_classes, 1)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        if tuple(previous_state.shape) != (3,):
            raise PipelineError(
                f"MixupToOneHot works on what LabelMixup or LabelCutMix leaves, three numbers for each sample, but "
                f"here each has shape {tuple(previous_state.shape)}"
            )
        return replace(previous_state, shape=(self.num_classes,)), None

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        import torch

        mixed = as_tensor(batch)
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


def _mixing_numbers(uniform: Uniform, count: int, numbers: int, same_lambda: bool) -> NDArray[np.float64]:
    """Return random numbers, (N, numbers), of each sample of a batch, or those of its last sample for all of them."""
    if not same_lambda or count == 0:
        return uniform(numbers)
    return np.repeat(uniform(numbers, np.array([count - 1])), count, axis=0)


def symmetric_beta(alpha: float, numbers: NDArray[np.float64]) -> NDArray[np.float64]:  # (N,), from (N, 2)
    """Draw from the beta distribution with both parameters the same."""
    # With Bailey's polar method for Student's t of ``2 * alpha`` degrees of freedom, of which a symmetric beta
    # variate is a function (Devroye, "Random variate generation in one line of code", 1996): two random numbers for
    # each, always, so that a draw is a function of them alone.
    cosine = np.cos(2 * np.pi * numbers[:, 1])
    with np.errstate(over="ignore", divide="ignore"):  # out of range for the smallest alpha: then it is 0 or 1
        square = np.expm1(-np.log(np.maximum(numbers[:, 0], _LEAST)) / alpha) * cosine**2
        distance: NDArray[np.float64] = np.copysign(1 / np.sqrt(1 + 1 / square), cosine)
    return (1 + distance) / 2


def _mix_rows(count: int) -> NDArray[np.int32]:  # (N, mix.MIX_COLUMNS)
    """Return rows in which the partner of each image is the one before it, with weight 1 and an empty box."""
    rows = np.zeros((count, mix.MIX_COLUMNS), np.int32)
    rows[:, mix.PARTNER] = np.roll(np.arange(count), 1)
    rows[:, mix.WEIGHT] = ONE
    return rows


def _share_rows(share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return partner and share, (N, 2), of labels with shares, (N,)."""
    return np.stack([np.roll(np.arange(len(share), dtype=np.float64), 1), share], axis=1)


def _weights(operation: ImageMixup | LabelMixup, uniform: Uniform, count: int) -> NDArray[np.float64]:
    """Return the share of each image, whole numbers in units of 2**-15."""
    numbers = _mixing_numbers(uniform, count, 2, operation.same_lambda)
    weights: NDArray[np.float64] = np.rint(symmetric_beta(operation.alpha, numbers) * ONE)
    return weights


def _half_sides(alpha: float, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half of a box's sides, as parts of the image's: the root of the share that it covers, halved."""
    sides: NDArray[np.float64] = np.sqrt(1 - symmetric_beta(alpha, numbers[:, :2]))
    return sides / 2


def _boxes(alpha: float, numbers: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.int64]:
    """Top, left, bottom and right of each box, shape (N, 4)."""
    center = (numbers[:, 2:] * size).astype(np.int64)
    half = (_half_sides(alpha, numbers)[:, None] * size).astype(np.int64)
    return np.hstack([np.maximum(center - half, 0), np.minimum(center + half, size)])


class Mosaic(Transform):
    """Put windows of four images of the batch together, with a given probability: the image itself and three others.

    The image itself is at the upper left, the others at the upper right, the lower left and the lower right. Each is a
    window of an image, as large as its place, and taken from anywhere. Masks follow by `FollowImage`, and objects by
    `TransformBoxes` and `TransformKeypoints`: a sample gets those of all four, one image after the other.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.
    center : sequence of two floats
        Where the four meet: least and largest share of the height, and of the width.

    Notes
    -----
    From Bochkovskiy, Wang and Liao, "YOLOv4: Optimal Speed and Accuracy of Object Detection" (arXiv:2004.10934). There
    the images come from the whole dataset; here, as for `ImageMixup`, from the batch, all others equally likely. No
    area is left empty, so there is no fill. Images keep their scale: a `RandomResizedCrop` afterwards changes it.

    It runs on the finished batch, of levels or floating-point values, on the CPU and on a GPU.

    `DrawnParameters` has, for each image, ``partner``, the four rows of the batch, int64 (N, 4), and ``box``, the part
    taken of each, int32 (N, 4, 4). An image that stays is the whole first one.

    Examples
    --------
    >>> images = np.arange(4, dtype="uint8").reshape(4, 1, 1, 1).repeat(2, axis=1).repeat(2, axis=2).repeat(3, axis=3)
    >>> tiles = np.array([[[0, 0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 1, 1, 2], [2, 0, 0, 1, 0, 2, 1], [3, 0, 0, 1, 1, 2, 2]]])
    >>> Mosaic().apply(images, tiles.repeat(4, axis=0))[0, ..., 0].tolist()
    [[0, 1], [2, 3]]
    """

    is_random: ClassVar[bool] = True
    takes_memory: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.ALONG_AXES

    def __init__(self, p: float = 1.0, center: Sequence[float] = (0.25, 0.75)) -> None:
        self.p = check_probability("Mosaic: p", p)
        self.center = check_range("Mosaic: center", center, 0, 1)

    def check_state(self, state: State) -> None:
        image_size(self, state, any_channels=True)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # Numbers: whether, center, partners, and windows.
        numbers, size = uniform(6 + 2 * mix.TILES), np.array(image_size(self, state, any_channels=True))
        center = np.where(numbers[:, :1] < self.p, np.rint(between(self.center, numbers[:, 1:3]) * size), size)
        tiles = np.zeros((count, mix.TILES, mix.TILE_COLUMNS), np.int32)
        partners = np.arange(count)[:, None] + 1 + (numbers[:, 3:6] * (count - 1)).astype(np.int64)
        tiles[:, 0, mix.PARTNER], tiles[:, 1:, mix.PARTNER] = np.arange(count), partners % max(count, 1)
        is_far = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])  # from the top and from the left
        first, last = np.where(is_far, center[:, None], 0), np.where(is_far, size, center[:, None])
        tiles[..., mix.PLACE] = np.concatenate([first, last], axis=2)
        tiles[..., mix.WINDOW] = numbers[:, 6:].reshape(-1, mix.TILES, 2) * (size - (last - first) + 1)
        return tiles

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        tiles = self.draw(uniform, count, state)
        place = tiles[..., mix.PLACE]
        box = np.concatenate([tiles[..., mix.WINDOW], place[..., 2:] - place[..., :2]], axis=2)
        return {"partner": tiles[..., mix.PARTNER].astype(np.int64), "box": box}

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.place(MosaicPlacement(draw, geometry.size))

    def apply(self, batch: Any, draw: NDArray[Any] | None = None, take: Callable[..., Any] = np.empty) -> Any:
        """Make mosaics; ``take(shape, dtype)`` gives the memory of a resulting array."""
        return mix.make_mosaics(batch, given_draw(self, draw, "the images' tiles"), take)
