"""Transforms: what follows the decoder in a pipeline."""

from __future__ import annotations

from gpubeton.transforms.common import Squeeze
from gpubeton.transforms.cutout import Cutout
from gpubeton.transforms.flip import RandomHorizontalFlip
from gpubeton.transforms.module import ModuleWrapper
from gpubeton.transforms.normalize import NormalizeImage
from gpubeton.transforms.ops import Convert, ToDevice, ToTensor, ToTorchImage, View
from gpubeton.transforms.translate import RandomTranslate

__all__ = [
    "Convert",
    "Cutout",
    "ModuleWrapper",
    "NormalizeImage",
    "RandomHorizontalFlip",
    "RandomTranslate",
    "Squeeze",
    "ToDevice",
    "ToTensor",
    "ToTorchImage",
    "View",
]
