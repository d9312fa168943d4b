"""Loaders from the arguments of timm's ``create_loader``. It does not import timm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gpubeton import transforms
from gpubeton.errors import OptionError
from gpubeton.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder, ResizedCropRGBImageDecoder
from gpubeton.integrations.data_loader import DataLoaderAdapter
from gpubeton.loader import Loader, OrderOption
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.validation import check_choice, check_number, check_range, check_size
from gpubeton.reader import Reader
from gpubeton.traversal_order import Repeated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton.format.dataset import Paths
    from gpubeton.pipeline.interpolation import Interpolation
    from gpubeton.pipeline.operation import Uniform

__all__ = ["create_loader"]

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Of Pillow: ours.
_INTERPOLATIONS: dict[str, Interpolation] = {"bilinear": "antialias", "nearest": "nearest", "bicubic": "bicubic"}

_NOISE = {"rand": "random color", "pixel": "random"}

#: Arguments of timm's that have no equivalent, and the values that ask for nothing.
NO_EQUIVALENT: Mapping[str, tuple[Any, ...]] = {
    "re_split": (False,), "train_crop_mode": (None, "rrc"), "num_aug_splits": (0,), "crop_border_pixels": (None, 0),
    "collate_fn": (None,), "fp16": (False,), "tf_preprocessing": (False,), "input_size_choices": (None,),
    "num_batches": (None,),
}  # fmt: skip
#: Arguments of timm's that are about its worker processes, or about `input_size_choices`.
NO_EFFECT = frozenset({
    "pin_memory", "use_prefetcher", "use_multi_epochs_loader", "persistent_workers", "worker_seeding",
    "batch_size_choices", "batch_choice_weights", "batch_choice_seed", "batch_choice_schedule",
    "batch_schedule_epochs", "batch_schedule_spread", "batch_schedule_random_mix",
})  # fmt: skip


def create_loader(
    fname: Paths,
    input_size: int | Sequence[int],
    batch_size: int,
    is_training: bool = False,
    no_aug: bool = False,
    *,
    re_prob: float = 0.0,
    re_mode: str = "const",
    re_count: int = 1,
    scale: Sequence[float] | None = None,
    ratio: Sequence[float] | None = None,
    hflip: float = 0.5,
    vflip: float = 0.0,
    color_jitter: float | Sequence[float] | None = 0.4,
    color_jitter_prob: float | None = None,
    grayscale_prob: float = 0.0,
    gaussian_blur_prob: float = 0.0,
    auto_augment: str | Operation | None = None,
    num_aug_repeats: int = 0,
    interpolation: str = "bilinear",
    mean: Sequence[float] = _MEAN,
    std: Sequence[float] = _STD,
    crop_pct: float | None = None,
    crop_mode: str | None = None,
    img_dtype: torch.dtype = torch.float32,
    **options: Any,
) -> DataLoaderAdapter:
    """Make a loader from the arguments of ``timm.data.create_loader``.

    ``**timm.data.resolve_data_config(model=model)`` gives the size, mean, std, crop and interpolation of a model.
    Batches are images, normalized, and labels. What timm has and this library has not is an
    `OptionError` that names it.

    Parameters
    ----------
    fname : str, path, or sequence of them
        The file, with fields ``image`` and ``label``; others are not loaded.
    input_size : int or sequence of int
        Side of the images, height and width, or channels (3), height and width.
    batch_size : int
        Samples in a batch.
    is_training : bool
        Whether images are augmented, shuffled, and a smaller last batch is left out.
    no_aug : bool
        Whether images for training are only resized, shuffled all the same.
    re_prob, re_mode, re_count : float, {"const", "rand", "pixel"}, int
        Probability of a random erasing; with the mean color, rounded to whole levels, with a random color or with
        noise; the largest number of rectangles.
    scale, ratio : sequence of two floats, optional
        Area and aspect ratio of random crops; by default (0.08, 1) and (3/4, 4/3).
    hflip, vflip : float
        Probabilities that an image is mirrored, left to right and top to bottom.
    color_jitter, color_jitter_prob : float or sequence of three or four floats, float
        Strength for brightness, contrast, saturation, hue, and the probability. As in timm, not with `auto_augment`,
        except for "3a".
    grayscale_prob, gaussian_blur_prob : float
        Probabilities.
    auto_augment : str or Operation, optional
        A policy of timm, such as "rand-m9-mstd0.5-inc1", for `TimmAugment`; or an operation.
    num_aug_repeats : int
        How often each sample comes, on different ranks, as `Repeated` has it; 0 for no repeats.
    interpolation : {"bilinear", "bicubic", "nearest"}
        How images are resized, as Pillow does it.
    mean, std : sequence of float
        Of each channel, for images from 0 to 1.
    crop_pct : float, optional
        Without augmentation: `input_size` as a share of the resized image; by default 0.875.
    crop_mode : {"center", "squash"}, optional
        Without augmentation: whether the aspect ratio is kept, which is the default.
    img_dtype : torch.dtype
        Type of the images.
    **options : object
        Other arguments of `Loader`, such as `num_workers`, `distributed`, `seed` and `device`. timm's arguments for its
        worker processes have no effect.

    Returns
    -------
    DataLoaderAdapter
        The loader, with the attributes of a ``DataLoader`` that timm's training script uses.

    Notes
    -----
    A crop begins and ends at whole pixels of the stored image; in timm it is at whole pixels of the resized one. So
    images differ from timm's by a shift of half a stored pixel at most.

    Examples
    --------
    >>> loader = create_loader("train.beton", 64, batch_size=100, crop_pct=0.9)
    >>> images, labels = next(iter(loader))
    >>> images.shape, images.dtype, labels.shape
    (torch.Size([100, 3, 64, 64]), torch.float32, torch.Size([100]))
    """
    for name, harmless in NO_EQUIVALENT.items():
        if options.pop(name, harmless[0]) not in harmless:
            raise OptionError(f"{name}: timm's argument has no equivalent here. Leave it out, or use timm's loader")
    options = {name: value for name, value in options.items() if name not in NO_EFFECT}
    resizing = _INTERPOLATIONS[check_choice("interpolation", interpolation, _INTERPOLATIONS)]
    size = check_size("input_size", input_size if isinstance(input_size, int) else tuple(input_size)[-2:])
    color = [min(255, round(255 * level)) for level in mean]
    is_augmented = is_training and not no_aug
    image: list[Operation]
    if is_augmented:
        area = check_range("scale", scale or (0.08, 1), 0, 1)
        aspect = check_range("ratio", ratio or (3 / 4, 4 / 3), positive=True)
        image = [RandomResizedCropRGBImageDecoder(size, area, aspect, interpolation=resizing)]
        image += [transforms.RandomHorizontalFlip(hflip)] if hflip else []
        image += [transforms.RandomVerticalFlip(vflip)] if vflip else []
        image += _policy(auto_augment, interpolation, color)
        is_jittered = not auto_augment or (isinstance(auto_augment, str) and "3a" in auto_augment)
        if is_jittered and color_jitter:
            strengths = (color_jitter,) * 3 if isinstance(color_jitter, int | float) else tuple(color_jitter)
            image.append(transforms.ColorJitter(*strengths, p=1.0 if color_jitter_prob is None else color_jitter_prob))
        image += [transforms.RandomGrayscale(grayscale_prob)] if grayscale_prob else []
        image += [transforms.RandomGaussianBlur(23, (0.1, 2.0), gaussian_blur_prob)] if gaussian_blur_prob else []
    else:
        if is_training:  # timm's resizing without augmentation
            crop_pct, crop_mode = 1.0, "center" if isinstance(input_size, int) else "squash"
        mode = check_choice("crop_mode", crop_mode or "center", ("center", "squash"))
        share = check_number("crop_pct", crop_pct or 0.875, 0, 1, positive=True)
        image = [_TimmCrop(size, share, is_squashed=mode == "squash", interpolation=resizing)]
    normalize = transforms.NormalizeImage([255 * level for level in mean], [255 * level for level in std], img_dtype)
    finish: list[Operation] = [normalize, transforms.ToTensor(), transforms.ToTorchImage()]
    if is_augmented and re_prob:
        value: Any = {"const": color, **_NOISE}[check_choice("re_mode", re_mode, ("const", *_NOISE))]
        # A color is painted in the pass over the pixels; noise has no levels.
        place = 3 if re_mode in _NOISE else 0
        finish.insert(place, transforms.RandomErasing(re_prob, (0.02, 1 / 3), (0.3, 1 / 0.3), value, re_count))
    pipelines = dict.fromkeys(Reader(fname, remote=options.get("remote")).field_names)
    pipelines.update(image=image + finish, label=[IntDecoder(), transforms.ToTensor(), transforms.Squeeze(1)])
    defaults: dict[str, Any] = {
        "order": OrderOption.RANDOM if is_training else OrderOption.SEQUENTIAL,
        "drop_last": is_training,
    }
    if is_training and num_aug_repeats:
        defaults.update(order=Repeated, order_kwargs={"num_repeats": num_aug_repeats})
    return DataLoaderAdapter(Loader(fname, batch_size, **{**defaults, "pipelines": pipelines, **options}))


def _policy(auto_augment: Any, interpolation: str, fill: list[int]) -> list[Operation]:
    """Make the operation of a policy."""
    if isinstance(auto_augment, Operation) or not auto_augment:
        return [auto_augment] if auto_augment else []
    if not isinstance(auto_augment, str):
        raise OptionError(
            f"auto_augment is {auto_augment!r}; expected a policy of timm's, such as 'rand-m9-mstd0.5-inc1', or an "
            "operation, such as RandAugment(2, 9)"
        )
    return [transforms.TimmAugment(auto_augment, "nearest" if interpolation == "nearest" else "bilinear", fill)]


class _TimmCrop(ResizedCropRGBImageDecoder):
    """The part of each image that timm keeps after it resized it to a little more than the output."""

    def __init__(
        self, output_size: tuple[int, int], share: float, *, is_squashed: bool, interpolation: Interpolation
    ) -> None:
        super().__init__(output_size, interpolation)
        self.share, self.is_squashed = share, is_squashed

    def boxes(self, heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None) -> NDArray[np.int32]:
        size = np.stack([heights, widths], axis=1).astype(np.int64)
        resized = np.array([[math.floor(side / self.share) for side in self.output_size]])
        if not self.is_squashed:  # the least size of the image's aspect ratio; timm rounds it down for square outputs
            exact = size * (resized / size).max(axis=1, keepdims=True)
            is_square = self.output_size[0] == self.output_size[1]
            resized = (exact + 1e-6 if is_square else np.rint(exact)).astype(np.int64)
        stored = size / resized  # stored pixels of one of the resized image
        sides = np.clip(np.rint(stored * self.output_size).astype(np.int64), 1, size)
        corner = np.rint(np.rint((resized - self.output_size) / 2) * stored).astype(np.int64)
        return np.concatenate([np.clip(corner, 0, size - sides), sides], axis=1, dtype=np.int32)
