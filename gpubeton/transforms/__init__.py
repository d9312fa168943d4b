"""Transforms: what follows the decoder in a pipeline."""

from __future__ import annotations

from gpubeton.transforms.affine import RandomAffine
from gpubeton.transforms.autocontrast import RandomAutocontrast
from gpubeton.transforms.blur import RandomGaussianBlur
from gpubeton.transforms.boxes import TransformBoxes
from gpubeton.transforms.brightness import RandomBrightness
from gpubeton.transforms.colour_jitter import ColorJitter
from gpubeton.transforms.common import Squeeze
from gpubeton.transforms.contrast import RandomContrast
from gpubeton.transforms.corner_crop import CornerCrop
from gpubeton.transforms.cutmix import ImageCutMix, LabelCutMix
from gpubeton.transforms.cutout import Cutout
from gpubeton.transforms.equalize import RandomEqualize
from gpubeton.transforms.erasing import RandomErasing
from gpubeton.transforms.flip import RandomHorizontalFlip
from gpubeton.transforms.grayscale import RandomGrayscale
from gpubeton.transforms.invert import RandomInvert
from gpubeton.transforms.mixup import ImageMixup, LabelMixup, MixupToOneHot
from gpubeton.transforms.module import ModuleWrapper
from gpubeton.transforms.normalize import NormalizeImage
from gpubeton.transforms.ops import Convert, ToDevice, ToTensor, ToTorchImage, View
from gpubeton.transforms.pad import Pad
from gpubeton.transforms.pixel_operation import PixelOperation
from gpubeton.transforms.poisoning import Poison
from gpubeton.transforms.posterize import RandomPosterize
from gpubeton.transforms.rand_augment import RandAugment
from gpubeton.transforms.random_crop import RandomCrop
from gpubeton.transforms.random_resized_crop import RandomResizedCrop
from gpubeton.transforms.replace_label import ReplaceLabel
from gpubeton.transforms.rotation import RandomRotation
from gpubeton.transforms.saturation import RandomSaturation
from gpubeton.transforms.sharpness import RandomAdjustSharpness
from gpubeton.transforms.solarization import RandomSolarization
from gpubeton.transforms.translate import RandomTranslate
from gpubeton.transforms.trivial_augment import TrivialAugmentWide

__all__ = [
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
    "NormalizeImage",
    "Pad",
    "PixelOperation",
    "Poison",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomAutocontrast",
    "RandomBrightness",
    "RandomContrast",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "RandomSolarization",
    "RandomTranslate",
    "ReplaceLabel",
    "Squeeze",
    "ToDevice",
    "ToTensor",
    "ToTorchImage",
    "TransformBoxes",
    "TrivialAugmentWide",
    "View",
]
