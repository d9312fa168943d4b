"""Recipes: the image pipelines of well-known trainings, as lists of operations to use, print and change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from gpubeton import transforms
from gpubeton.fields import decoders
from gpubeton.pipeline import PipelineSpec
from gpubeton.pipeline.operation import Operation, operation_name
from gpubeton.pipeline.validation import check_choice, check_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubeton.pipeline.interpolation import Interpolation

__all__ = ["Recipe", "cifar", "detection", "evaluation", "fine_tuning", "imagenet", "labels", "self_supervised"]

Training = Literal["ffcv", "torchvision", "A1", "A2", "A3", "deit3"]
Method = Literal["simclr", "byol", "dino", "mae"]

SIDES: dict[Training, int] = {"ffcv": 192, "torchvision": 176, "A1": 224, "A2": 224, "A3": 160, "deit3": 224}

_MEAN, _STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of ImageNet
_CIFAR_MEAN, _CIFAR_STD = (125.307, 122.961, 113.8575), (51.5865, 50.847, 51.255)
_TIMM = {"input_size": (3, 224, 224), "interpolation": "bicubic", "crop_pct": 0.875, "crop_mode": "center"}
_PILLOW: dict[str, Interpolation] = {"bilinear": "antialias", "bicubic": "bicubic", "nearest": "nearest"}


class Recipe(list[Operation]):
    """The operations of a pipeline: a list that prints one operation on each line.

    Parameters
    ----------
    iterable : iterable of Operation
        The decoder and the transforms.

    Examples
    --------
    >>> labels()
    Recipe([
        IntDecoder(),
        ToTensor(),
        Squeeze(dims=(1,)),
    ])
    """

    def __repr__(self) -> str:
        return "".join(["Recipe([\n", *(f"    {operation_name(operation)},\n" for operation in self), "])"])


def labels() -> Recipe:
    """Make the pipeline of labels: int64, (N,).

    Returns
    -------
    Recipe
        The operations.

    Examples
    --------
    >>> len(labels())
    3
    """
    return Recipe([decoders.IntDecoder(), transforms.ToTensor(), transforms.Squeeze(1)])


def imagenet(training: Training, size: int | None = None, dtype: Any = "float16") -> Recipe:
    """Make the images of a training on ImageNet.

    All take random crops and flips. What the original mixes is to be inserted at -3, before the normalization:
    ``ImageMixupOrCutMix(0.2, 1.0, True)`` in "torchvision" and "A1"; with 0.1 and 1.0 in "A2" and "A3", with 0.8 and
    1.0 in "deit3".

    Parameters
    ----------
    training : {"ffcv", "torchvision", "A1", "A2", "A3", "deit3"}
        "ffcv": nothing else. Source: ``rn50_88_epochs.yaml`` of ffcv-imagenet, whose sides grow from 160 to 192.

        "torchvision": `TrivialAugmentWide`, and `RandomErasing` with the mean color, rounded. Source: torchvision's
        ``references/classification``, for the second weights of ResNet-50 (2021).

        "A1", "A2", "A3": timm's RandAugment. Source: Wightman, Touvron and Jégou, "ResNet strikes back"
        (arXiv:2110.00476).

        "deit3": `ThreeAugment` and jitter. Source: Touvron, Cord and Jégou, "DeiT III: Revenge of the ViT"
        (arXiv:2204.07118), ``augment.py`` of its repository.
    size : int, optional
        Height and width of the images; by default the source's: 192, 176, 224, 224, 160 and 224.
    dtype : dtype
        Type of the images, normalized with the mean and the standard deviation of ImageNet; also ``torch.bfloat16``.

    Returns
    -------
    Recipe
        The operations.

    Examples
    --------
    >>> [type(operation).__name__ for operation in imagenet("torchvision")[2:4]]
    ['TrivialAugmentWide', 'RandomErasing']
    """
    side = size or SIDES[check_choice("imagenet: training", training, SIDES)]
    interpolation: Interpolation = "bicubic"
    operations: list[Operation]
    if training == "ffcv":
        operations, interpolation = [], "area"
    elif training == "torchvision":
        erasing = transforms.RandomErasing(0.1, value=[round(level) for level in _MEAN])
        operations, interpolation = [transforms.TrivialAugmentWide(interpolation="bilinear"), erasing], "antialias"
    elif training == "deit3":
        operations = [transforms.ThreeAugment(), transforms.ColorJitter(0.3, 0.3, 0.3)]
    else:
        operations = [transforms.TimmAugment(f"rand-m{6 if training == 'A3' else 7}-mstd0.5-inc1")]
    return _training(side, dtype, *operations, interpolation=interpolation)


def evaluation(
    size: int = 224, ratio: float = 224 / 256, interpolation: Interpolation = "area", dtype: Any = "float16"
) -> Recipe:
    """Make an evaluation: resize and crop the center, as FFCV, torchvision and timm do.

    Parameters
    ----------
    size : int
        Height and width of the images.
    ratio, interpolation
        As for `CenterCropRGBImageDecoder`; take the interpolation of the training.
    dtype : dtype
        As for `imagenet`.

    Returns
    -------
    Recipe
        The operations.

    Examples
    --------
    >>> evaluation(224, 0.95, "bicubic")[0]
    CenterCropRGBImageDecoder(output_size=(224, 224), interpolation='bicubic', ratio=0.95)
    """
    return _finished(dtype, decoders.CenterCropRGBImageDecoder(size, ratio, interpolation))


def fine_tuning(config: Mapping[str, Any], *, training: bool = True, dtype: Any = "float16") -> Recipe:
    """Make the pipeline that a pretrained network expects: its size, crop, mean, deviation and interpolation.

    Parameters
    ----------
    config : mapping
        The result of timm's ``resolve_data_config``, or ``pretrained_cfg`` of a network of timm's: ``input_size``,
        ``mean``, ``std``, ``interpolation``, ``crop_pct`` and ``crop_mode``; timm's defaults where there is none.
    training : bool
        Random crops and flips, instead of the center crop.
    dtype : dtype
        As for `imagenet`.

    Returns
    -------
    Recipe
        The operations.

    Raises
    ------
    OptionError
        If `config` has an interpolation or a crop that is not available here; ``integrations.timm`` has more crops.

    Examples
    --------
    >>> fine_tuning({"input_size": (3, 256, 256), "crop_pct": 0.94}, training=False)[0]
    CenterCropRGBImageDecoder(output_size=(256, 256), interpolation='bicubic', ratio=0.94)
    """
    config = {"mean": [level / 255 for level in _MEAN], "std": [level / 255 for level in _STD], **_TIMM, **config}
    check_choice("config: crop_mode", config["crop_mode"], ("center",))
    size = check_size("config: input_size", tuple(config["input_size"])[-2:])
    resizing = _PILLOW[check_choice("config: interpolation", config["interpolation"], _PILLOW)]
    mean, std = ([255 * value for value in config[name]] for name in ("mean", "std"))
    if training:
        decoder = decoders.RandomResizedCropRGBImageDecoder(size, interpolation=resizing)
        return _finished(dtype, decoder, transforms.RandomHorizontalFlip(), levels=(mean, std))
    return _finished(dtype, decoders.CenterCropRGBImageDecoder(size, config["crop_pct"], resizing), levels=(mean, std))


def cifar(dtype: Any = "float16") -> Recipe:
    """Make FFCV's training on CIFAR-10, for images of 32 pixels a side: flips, shifts and cutouts.

    The source is ``examples/cifar/train_cifar.py`` of FFCV.

    Parameters
    ----------
    dtype : dtype
        As for `imagenet`, with the mean and the standard deviation of CIFAR-10.

    Returns
    -------
    Recipe
        The operations.

    Examples
    --------
    >>> cifar()[2]
    RandomTranslate(padding=2, fill=(125, 122, 113))
    """
    fill = [int(level) for level in _CIFAR_MEAN]
    moves = transforms.RandomHorizontalFlip(), transforms.RandomTranslate(2, fill), transforms.Cutout(4, fill)
    return _finished(dtype, decoders.SimpleRGBImageDecoder(), *moves, levels=(_CIFAR_MEAN, _CIFAR_STD))


def self_supervised(method: Method, size: int = 224, dtype: Any = "float16", *, num_small: int = 8) -> dict[str, Any]:
    """Make the views of a training without labels.

    Parameters
    ----------
    method : {"simclr", "byol", "dino", "mae"}
        "simclr": crops, flips, strong jitter, gray images and blur. Source: Chen, Kornblith, Norouzi and Hinton
        (arXiv:2002.05709), ``data_util.py``, which does not normalize.

        "byol": the first view is always blurred; the second rarely, but sometimes solarized. Source: Grill et al.
        (arXiv:2006.07733), table 6.

        "dino": after two views like these, small views of small parts. Source: Caron et al. (arXiv:2104.14294),
        ``main_dino.py``, where Pillow blurs.

        "mae": a single view, cropped and flipped. Source: He et al. (arXiv:2111.06377), ``main_pretrain.py``.
    size, dtype
        As for `imagenet`; DINO's small views have three sevenths of `size`.
    num_small : int
        How many of them there are.

    Returns
    -------
    dict of str to Recipe or PipelineSpec
        Pipelines of the outputs ``image``, ``view_2``, ``view_3`` and so on. All read the field ``image``.

    Examples
    --------
    >>> from gpubeton.loader import Loader
    >>> loader = Loader("train.beton", 100, pipelines={**self_supervised("dino", 56, num_small=1), "label": None})
    >>> [tuple(view.shape) for view in next(iter(loader))]
    [(100, 3, 56, 56), (100, 3, 56, 56), (100, 3, 24, 24)]
    """
    check_choice("self_supervised: method", method, get_args(Method))
    if method == "mae":
        recipes = [_training(size, dtype, scale=(0.2, 1.0))]
    elif method == "simclr":
        recipes = [_view(size, dtype, blur=0.5, jitter=(0.8, 0.8, 0.8, 0.2)) for _ in range(2)]
    elif method == "byol":
        recipes = [_view(size, dtype, blur=1.0), _view(size, dtype, blur=0.1, solarize=0.2)]
    else:
        large, small = (0.4, 1.0), (0.05, 0.4)
        recipes = [_view(size, dtype, large, blur=1.0, kernel=13)]
        recipes += [_view(size, dtype, large, blur=0.1, solarize=0.2, kernel=13)]
        recipes += [_view(size * 3 // 7, dtype, small, blur=0.5, kernel=13) for _ in range(num_small)]
    others = {f"view_{n}": PipelineSpec("image", transforms=recipe) for n, recipe in enumerate(recipes[1:], 2)}
    return {"image": recipes[0], **others}


def detection(size: int = 640, box_format: str = "xyxy", dtype: Any = "float16") -> dict[str, Any]:
    """Make a detector's training: letterboxes, changes of hue, saturation and value, and flips, with the boxes.

    The values are those of YOLOv5 and its successors (``hsv_h``, ``hsv_s``, ``hsv_v``, ``fliplr``), without mosaics.

    Parameters
    ----------
    size : int
        Height and width of the images, with levels from 0 to 1.
    box_format : {"xyxy", "xywh", "cxcywh"}
        As for `TransformBoxes`.
    dtype : dtype
        Type of the images.

    Returns
    -------
    dict of str to Recipe
        Pipelines of the fields ``image`` and ``boxes``, a `RaggedField`.

    Examples
    --------
    >>> list(detection())
    ['image', 'boxes']
    """
    colors = transforms.RandomHSV(0.015, 0.7, 0.4)
    letterbox = decoders.PadRGBImageDecoder(size, fill=114, interpolation="bilinear")
    image = _finished(dtype, letterbox, colors, transforms.RandomHorizontalFlip(), levels=(0, 255))
    boxes = [decoders.RaggedDecoder(), transforms.TransformBoxes("image", box_format), transforms.ToTensor()]
    return {"image": image, "boxes": Recipe(boxes)}


def _finished(dtype: Any, *operations: Operation, levels: tuple[Any, Any] = (_MEAN, _STD)) -> Recipe:
    """Normalize images to tensors."""
    normalize = transforms.NormalizeImage(*levels, dtype)
    return Recipe([*operations, normalize, transforms.ToTensor(), transforms.ToTorchImage()])


def _training(
    size: int,
    dtype: Any,
    *operations: Operation,
    scale: tuple[float, float] = (0.08, 1.0),
    interpolation: Interpolation = "bicubic",
) -> Recipe:
    """Crop and flip, then carry out the operations."""
    decoder = decoders.RandomResizedCropRGBImageDecoder(size, scale, interpolation=interpolation)
    return _finished(dtype, decoder, transforms.RandomHorizontalFlip(), *operations)


def _view(
    size: int,
    dtype: Any,
    scale: tuple[float, float] = (0.08, 1.0),
    *,
    blur: float,
    solarize: float = 0.0,
    jitter: Sequence[float] = (0.4, 0.4, 0.2, 0.1),
    kernel: int = 0,  # pixels; 0: a tenth of the side
) -> Recipe:
    """Make a view of an image, as SimCLR and its successors do."""
    blurring = transforms.RandomGaussianBlur(kernel or size // 20 * 2 + 1, (0.1, 2.0), blur)
    last = [transforms.RandomSolarization(128, solarize)] if solarize else []
    colors = transforms.ColorJitter(*jitter, p=0.8), transforms.RandomGrayscale(0.2)
    return _training(size, dtype, *colors, blurring, *last, scale=scale)
