"""Transforms: the operations after the decoder of a pipeline."""

from __future__ import annotations

from gpubeton.transforms.affine import RandomAffine, RandomRotation
from gpubeton.transforms.aug_mix import AugMix
from gpubeton.transforms.auto_augment import AutoAugment
from gpubeton.transforms.blur import RandomAdjustSharpness, RandomGaussianBlur
from gpubeton.transforms.boxes import TransformBoxes
from gpubeton.transforms.color_jitter import (
    ColorJitter,
    RandomBrightness,
    RandomContrast,
    RandomGrayscale,
    RandomSaturation,
)
from gpubeton.transforms.combine import RandomApply, RandomChoice, RandomOrder, ThreeAugment
from gpubeton.transforms.common import Squeeze
from gpubeton.transforms.crops import CornerCrop, Pad, RandomCrop
from gpubeton.transforms.cutout import Cutout
from gpubeton.transforms.erasing import RandomErasing
from gpubeton.transforms.flip import RandomHorizontalFlip, RandomQuarterTurn, RandomVerticalFlip
from gpubeton.transforms.hsv import RandomHSV
from gpubeton.transforms.keypoints import TransformKeypoints
from gpubeton.transforms.levels import (
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPosterize,
    RandomSolarization,
)
from gpubeton.transforms.mixup import ImageCutMix, ImageMixup, LabelCutMix, LabelMixup, MixupToOneHot
from gpubeton.transforms.module import ModuleWrapper
from gpubeton.transforms.mosaic import Mosaic
from gpubeton.transforms.normalize import NormalizeImage
from gpubeton.transforms.ops import Convert, ToDevice, ToTensor, ToTorchImage, View
from gpubeton.transforms.per_sample import PerSample
from gpubeton.transforms.perspective import RandomPerspective
from gpubeton.transforms.poisoning import Poison
from gpubeton.transforms.rand_augment import RandAugment, TrivialAugmentWide
from gpubeton.transforms.random_resized_crop import RandomResizedCrop
from gpubeton.transforms.replace_label import ReplaceLabel
from gpubeton.transforms.timm_augment import TimmAugment
from gpubeton.transforms.translate import RandomTranslate

__all__ = [
    "AugMix",
    "AutoAugment",
    "ColorJitter",
    "Convert",
    "CornerCrop",
    "Cutout",
    "ImageCutMix",
    "ImageMixup",
    "LabelCutMix",
    "LabelMixup",
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
