"""The recipes and the operations that `benchmarks.recipes` measures."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpubeton import transforms
from gpubeton.pipeline import PipelineSpec
from gpubeton.pipeline.interpolation import Interpolation
from gpubeton.pipeline.operation import Operation
from gpubeton.recipes import Recipe, evaluation, imagenet, self_supervised

__all__ = ["OPERATIONS", "PLAIN", "RECIPES", "pipelines_of"]

PLAIN = "plain"

#: Operations between flip and normalization, as a user writes them; each changes every image.
OPERATIONS = (
    *("RandomVerticalFlip(1.0)", "RandomTranslate(16)", "Cutout(56)", "RandomErasing(1.0)"),
    *("RandomBrightness(0.4, 1.0)", "RandomContrast(0.4, 1.0)", "RandomSaturation(0.4, 1.0)"),
    *("RandomGrayscale(1.0)", "ColorJitter(hue=0.1)", "ColorJitter(0.4, 0.4, 0.4)", "ColorJitter(0.4, 0.4, 0.4, 0.1)"),
    *("RandomHSV(0.015, 0.7, 0.4)", "RandomInvert(1.0)", "RandomSolarization(128, 1.0)", "RandomPosterize(4, 1.0)"),
    *("RandomAutocontrast(1.0)", "RandomEqualize(1.0)", "RandomAdjustSharpness(2.0, 1.0)"),
    *("RandomGaussianBlur(5, 1.0, 1.0)", "RandomGaussianBlur(23, (0.1, 2.0), 1.0)"),
    *("RandomRotation(30)", 'RandomRotation(30, "bilinear")', 'RandomAffine(15, (0.1, 0.1), interpolation="bilinear")'),
    *("RandomPerspective(p=1.0)", "RandAugment(2, 9)", "TrivialAugmentWide()", "AutoAugment()", "AugMix()"),
    *("ThreeAugment()", 'TimmAugment("rand-m9-mstd0.5-inc1")', "RandomOrder([RandomInvert(1.0), RandomEqualize(1.0)])"),
)  # fmt: skip


def pipelines_of(case: str, side: int = 224, interpolation: Interpolation | None = "area") -> dict[str, Any]:
    """Make the pipelines of a recipe or an operation, resized in one way; None: in the way of the recipe.

    An operation that is not there is an AttributeError or a NameError.
    """
    image = RECIPES[case](side) if case in RECIPES else _changed(side, case)
    pipelines = dict(image) if isinstance(image, Mapping) else {"image": image}
    return {name: _resized(pipeline, interpolation) for name, pipeline in pipelines.items()}


def _changed(side: int, code: str) -> Recipe:
    """Make the plain recipe with operations before its normalization."""
    recipe = imagenet("ffcv", side)
    recipe[-3:-3] = eval(f"[{code}]", vars(transforms).copy())
    return recipe


def _resized(pipeline: Any, interpolation: Interpolation | None) -> Any:
    if isinstance(pipeline, PipelineSpec):
        return PipelineSpec(pipeline.source, transforms=_resized(pipeline.transforms, interpolation))
    decoder: Any = copy.copy(pipeline[0])
    decoder.interpolation = interpolation or decoder.interpolation
    operations: list[Operation] = [decoder, *pipeline[1:]]
    return Recipe(operations)


#: Each makes the pipelines of images of a side.
RECIPES: dict[str, Callable[[int], Any]] = {
    PLAIN: partial(imagenet, "ffcv"),
    "evaluation": evaluation,
    "jitter": partial(_changed, code="ColorJitter(0.4, 0.4, 0.4)"),
    "RandAugment": partial(_changed, code="RandAugment(2, 9)"),
    "torchvision": partial(imagenet, "torchvision"),
    "A1": partial(imagenet, "A1"),
    "A3": partial(imagenet, "A3"),
    "DeiT III": partial(imagenet, "deit3"),
    "SimCLR, a view": lambda side: self_supervised("simclr", side)["image"],
    "BYOL, first view": lambda side: self_supervised("byol", side)["image"],
    "DINO, 2 + 8 views": partial(self_supervised, "dino"),
    "MAE": partial(self_supervised, "mae"),
}
