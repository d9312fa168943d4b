"""Transforms: the operations after the decoder of a pipeline.

An argument out of its range raises an `OptionError`, which names it, its value and the values that are allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton._missing_names import missing_attribute
from gpubeton.transforms.blur import RandomAdjustSharpness, RandomGaussianBlur
from gpubeton.transforms.color_jitter import (
    ColorJitter,
    RandomBrightness,
    RandomContrast,
    RandomGrayscale,
    RandomHSV,
    RandomSaturation,
)
from gpubeton.transforms.combine import RandomApply, RandomChoice, RandomOrder, ThreeAugment
from gpubeton.transforms.common import Squeeze
from gpubeton.transforms.crops import CornerCrop, Pad, RandomCrop
from gpubeton.transforms.cutout import Cutout, RandomErasing
from gpubeton.transforms.flip import RandomHorizontalFlip, RandomQuarterTurn, RandomVerticalFlip
from gpubeton.transforms.levels import (
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPosterize,
    RandomSolarization,
)
from gpubeton.transforms.mixup import (
    ImageCutMix,
    ImageMixup,
    ImageMixupOrCutMix,
    LabelCutMix,
    LabelMixup,
    LabelMixupOrCutMix,
    MixupToOneHot,
    Mosaic,
)
from gpubeton.transforms.module import ModuleWrapper
from gpubeton.transforms.normalize import NormalizeImage
from gpubeton.transforms.objects import TransformBoxes, TransformKeypoints
from gpubeton.transforms.ops import Convert, ToDevice, ToTensor, ToTorchImage, View
from gpubeton.transforms.per_sample import PerSample
from gpubeton.transforms.poisoning import Poison
from gpubeton.transforms.policies import AugMix, AutoAugment, RandAugment, TrivialAugmentWide
from gpubeton.transforms.random_resized_crop import RandomResizedCrop
from gpubeton.transforms.replace_label import ReplaceLabel
from gpubeton.transforms.timm_augment import TimmAugment
from gpubeton.transforms.translate import RandomTranslate
from gpubeton.transforms.warps import RandomAffine, RandomPerspective, RandomRotation

__all__ = [
    "AugMix",
    "AutoAugment",
    "ColorJitter",
    "Convert",
    "CornerCrop",
    "Cutout",
    "ImageCutMix",
    "ImageMixup",
    "ImageMixupOrCutMix",
    "LabelCutMix",
    "LabelMixup",
    "LabelMixupOrCutMix",
    "MixupToOneHot",
    "ModuleWrapper",
    "Mosaic",
    "NormalizeImage",
    "Pad",
    "PerSample",
    "Poison",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomBrightness",
    "RandomChoice",
    "RandomContrast",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomHSV",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomQuarterTurn",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "RandomSolarization",
    "RandomTranslate",
    "RandomVerticalFlip",
    "ReplaceLabel",
    "Squeeze",
    "ThreeAugment",
    "TimmAugment",
    "ToDevice",
    "ToTensor",
    "ToTorchImage",
    "TransformBoxes",
    "TransformKeypoints",
    "TrivialAugmentWide",
    "View",
]

if not TYPE_CHECKING:  # type checkers would take any name for one of the package's

    def __getattr__(name: str) -> None:
        raise missing_attribute(__name__, name)
