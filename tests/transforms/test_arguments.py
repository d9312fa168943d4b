from __future__ import annotations

import numpy as np
import pytest

from gpubeton.errors import OptionError
from gpubeton.transforms import (
    AugMix,
    ColorJitter,
    CornerCrop,
    Cutout,
    ImageCutMix,
    ImageMixup,
    ImageMixupOrCutMix,
    LabelCutMix,
    LabelMixup,
    LabelMixupOrCutMix,
    MixupToOneHot,
    Mosaic,
    NormalizeImage,
    Pad,
    Poison,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomAutocontrast,
    RandomBrightness,
    RandomContrast,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomGaussianBlur,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomHSV,
    RandomInvert,
    RandomPosterize,
    RandomResizedCrop,
    RandomRotation,
    RandomSaturation,
    RandomSolarization,
    RandomTranslate,
    ReplaceLabel,
    TransformBoxes,
    TransformKeypoints,
    TrivialAugmentWide,
)
from tests.reference.color import MAX_FACTOR

NAN, INFINITE = float("nan"), float("inf")
MASK, ALPHA = np.zeros((6, 8, 3), np.uint8), np.zeros((6, 8))
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
CROP = {"scale": (0.1, 1), "ratio": (0.75, 1.5), "size": 8}

#: Positional arguments, in a tuple, or named ones.
REFUSED = {
    RandomHorizontalFlip: [(1.5,)],
    Cutout: [(-1,), (2.5,), ("small",), (NAN,), (1, (0, 0)), (1, "red")],
    RandomTranslate: [(None,), (-1,), (1, (0, 0, NAN))],
    RandomErasing: [
        {"p": 1.5}, {"scale": (0.3, 0.1)}, {"scale": (0, 1.1)}, {"scale": 0.5}, {"ratio": (0, 1)}, {"ratio": (2, 1)},
        {"ratio": (1, INFINITE)}, {"value": "noise"}, {"value": (1, 2)},
    ],
    RandomCrop: [(0,), ((1, 2, 3),), (2.5,), (2, -1), (2, 1, (1, 2))],
    CornerCrop: [("small",)],
    Pad: [(-1,), ((1, 2, 3),), (1.5,)],
    RandomResizedCrop: [
        {**CROP, "scale": (1, 0.5)}, {**CROP, "ratio": (0, 1)}, {**CROP, "size": (224, 224)}, {**CROP, "size": 0},
    ],
    RandomBrightness: [(-0.1,), {"magnitude": 0.5, "p": 1.5}],
    RandomContrast: [(NAN,)],
    RandomSaturation: [(MAX_FACTOR,)],
    RandomGrayscale: [(-1,)],
    ColorJitter: [
        {"brightness": (1.5, 0.5)}, {"contrast": (-0.5, 1)}, {"saturation": (1, 2, 3)}, {"hue": 0.6},
        {"hue": (-0.6, 0)}, {"hue": (0, NAN)}, {"p": -0.5},
    ],
    RandomSolarization: [(-1,), (NAN,), {"p": 2}, (0.2,)],
    RandomPosterize: [(9,), (2.5,)],
    RandomInvert: [(-0.1,)],
    RandomAutocontrast: [(1.1,)],
    RandomEqualize: [(NAN,)],
    RandomGaussianBlur: [
        (4,), (-1,), (3.5,), ("large",), (None,), (3, 0), (3, (2, 1)), (3, (1, 2, 3)), (3, NAN),
        {"kernel_size": 3, "p": 2},
    ],
    RandomAdjustSharpness: [(-1,), (129,), (2, 1.5)],
    RandomRotation: [
        (-1,), ((30, 10),), (NAN,), ("north",), {"degrees": 1, "interpolation": "bicubic"},
        {"degrees": 1, "fill": (1, 2)}, {"degrees": 1, "p": 1.5},
    ],
    RandomAffine: [
        (-1,), {"degrees": 1, "translate": (0.5, 1.5)}, {"degrees": 1, "translate": 0.5},
        {"degrees": 1, "scale": (0, 1)}, {"degrees": 1, "scale": (2, 1)}, {"degrees": 1, "shear": 90},
        {"degrees": 1, "shear": (1, 2, 3)}, {"degrees": 1, "interpolation": "cubic"}, {"degrees": 1, "p": -1},
    ],
    RandAugment: [(-1,), (1.5,), (INFINITE,), (2, 31), (2, -1), {"num_magnitude_bins": 1}],
    TrivialAugmentWide: [(1,), {"interpolation": "bicubic"}, {"fill": (1, 2)}],
    AugMix: [{"severity": 11}, {"chain_depth": 0}, {"alpha": 0}],
    RandomHSV: [{"hue": 0.6}, {"saturation": 1.1}, {"value": -0.1}, {"p": 2}],
    ImageMixup: [(0, False)],
    LabelMixup: [(-1, True)],
    ImageCutMix: [(INFINITE, False)],
    LabelCutMix: [(NAN, False), (1.0, False, (0, 20)), (1.0, False, (224,)), (1.0, False, (2.5, 3))],
    ImageMixupOrCutMix: [(0, 1, True), (1, -1, True), (1, 1, True, 1.5)],
    LabelMixupOrCutMix: [(NAN, 1, True), (1, 1, False, 0.5, (224,))],
    MixupToOneHot: [(0,), (2.5,), ([3],)],
    NormalizeImage: [
        ((0, 0), STD), (MEAN, (1, 0, 1)), (MEAN, (1, -1, 1)), ((0, NAN, 0), STD), ([[0] * 3], STD),
    ],
    Poison: [
        (MASK[:5], ALPHA, [1]), (MASK[..., 0], ALPHA, [1]), (MASK, ALPHA, [1], (3, 2)), (MASK, ALPHA, [1], (1, 2, 3)),
        (MASK, ALPHA, [-1]),
    ],
    ReplaceLabel: [
        ([0.5], 1), ([-1.0], 1), ([NAN], 1), ([INFINITE], 1), ([2.0**64], 1), (["1"], 1), ([[1]], 1),
    ],
    Mosaic: [(2,), {"center": (0.7, 0.2)}, {"center": 0.5}, {"center": (-0.1, 0.5)}],
    TransformKeypoints: [
        {"columns": 4}, {"outside": "drop"}, {"relative": True, "centers": True}, {"flip_pairs": [(0, 0)]},
        {"flip_pairs": [(0, 1), (2, 1)]}, {"flip_pairs": [(0, 1, 2)]}, {"flip_pairs": [(0, 1), (2,)]},
        {"flip_pairs": (0, 1)}, {"flip_pairs": [(0, -1)]}, {"flip_pairs": [(0, 0.5)]},
    ],
    TransformBoxes: [{"box_format": "yxyx"}, {"keep": "some"}, {"min_visible": 1.5}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("transform", "arguments"),
    [(transform, arguments) for transform, refused in REFUSED.items() for arguments in refused],
)
def test_an_argument_out_of_its_range_is_refused_when_the_operation_is_made(transform, arguments):
    with pytest.raises(OptionError, match=rf"(?s)\b{transform.__name__}\b.*expected"):
        transform(**arguments) if isinstance(arguments, dict) else transform(*arguments)
