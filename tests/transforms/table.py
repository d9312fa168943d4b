"""The transforms that keep the promises of `test_every_transform.py`."""

from __future__ import annotations

from functools import partial

from gpubeton.transforms import (
    AugMix,
    AutoAugment,
    ColorJitter,
    CornerCrop,
    Cutout,
    ImageCutMix,
    ImageMixup,
    ImageMixupOrCutMix,
    LabelCutMix,
    LabelMixup,
    LabelMixupOrCutMix,
    Mosaic,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomBrightness,
    RandomChoice,
    RandomContrast,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomGaussianBlur,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomHSV,
    RandomInvert,
    RandomOrder,
    RandomPerspective,
    RandomPosterize,
    RandomResizedCrop,
    RandomRotation,
    RandomSaturation,
    RandomSolarization,
    RandomTranslate,
    RandomVerticalFlip,
    ThreeAugment,
    TimmAugment,
    TrivialAugmentWide,
)

FILL = 9.8, 200.5, 77.0
WINDOWS = [
    RandomCrop((14, 25)),
    RandomCrop(20, 2, FILL),
    CornerCrop((14, 16)),
    RandomResizedCrop((0.1, 0.9), (0.7, 1.4), 16),
]
GEOMETRY = [
    RandomHorizontalFlip(),
    Cutout(7, FILL),
    RandomTranslate(5, FILL),
    RandomErasing(0.7, value=FILL),
    RandomErasing(0.7, value=FILL, count=3),
]
BLENDS = [RandomBrightness(0.5, p=0.8), RandomContrast(0.5, p=0.8), RandomSaturation(0.5, p=0.8)]
#: They take levels of 8 and of 16 bits.
WARPS = [
    RandomRotation(40, "bilinear", FILL, p=0.8),
    RandomAffine(30, (0.2, 0.1), (0.5, 2), (-20, 10, 5, 30), fill=FILL, p=0.8),
    RandomPerspective(0.6, 0.8, fill=FILL),
    RandomVerticalFlip(0.6),
    RandomOrder([RandomTranslate(5, FILL), RandomRotation(30), RandomHorizontalFlip(1)]),
]
#: They take levels only.
LEVELS = [
    RandomGrayscale(0.5),
    ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
    ColorJitter(contrast=0.4),
    RandomSolarization(100.5, 0.6),
    RandomPosterize(3, 0.6),
    RandomInvert(0.6),
    RandomAutocontrast(0.6),
    RandomEqualize(0.6),
    RandomGaussianBlur(5, p=0.6),
    RandomAdjustSharpness(2, p=0.6),
    *WARPS,
    RandAugment(3, 20),
    TrivialAugmentWide(interpolation="bilinear", fill=FILL),
    RandomHSV(0.1, p=0.8),
    AutoAugment("svhn"),
    AugMix(5, 2),
    ThreeAugment(),
    TimmAugment("rand-m9-n3-p0.8-mstd0.5-inc1", fill=FILL),
    TimmAugment("augmix-m5-w2", "nearest"),
    RandomApply([ColorJitter(0.4), Cutout(7, FILL), RandomInvert(0.5)], 0.7),
    RandomChoice([RandomGaussianBlur(19, 2.0, p=1), RandomErasing(1, value=FILL), RandomAffine(30)], [2, 1, 1]),
]
#: What happens to an image has to do with its own sample only.
ALONE = [*WINDOWS, *GEOMETRY, *BLENDS, *LEVELS]
IMAGE_MIXES = [
    ImageMixup(0.4, False),
    ImageMixup(0.4, True),
    ImageCutMix(1.0, False),
    ImageCutMix(1.0, True),
    ImageMixupOrCutMix(0.4, 1.0, False),
]
LABEL_MIXES = [
    LabelMixup(0.4, False),
    LabelMixup(0.4, True),
    LabelCutMix(1.0, False),
    LabelCutMix(1.0, True, (20, 30)),
    LabelMixupOrCutMix(0.4, 1.0, False),
]
MOSAICS = [Mosaic(0.8), Mosaic(center=(0, 1))]
IMAGE_TRANSFORMS = [*ALONE, *IMAGE_MIXES, *MOSAICS]
#: They take a probability as the next argument.
SOMETIMES = {
    "flip": RandomHorizontalFlip,
    "erasing": RandomErasing,
    "brightness": partial(RandomBrightness, 0.5),
    "contrast": partial(RandomContrast, 0.5),
    "saturation": partial(RandomSaturation, 0.5),
    "grayscale": RandomGrayscale,
    "solarization": partial(RandomSolarization, 100.5),
    "posterize": partial(RandomPosterize, 3),
    "invert": RandomInvert,
    "autocontrast": RandomAutocontrast,
    "equalize": RandomEqualize,
    "blur": partial(RandomGaussianBlur, 3, (0.5, 1.5)),
    "sharpness": partial(RandomAdjustSharpness, 2),
    "vertical flip": RandomVerticalFlip,
    "hsv": partial(RandomHSV, 0.0, 0.0, 0.9),
    "applied": partial(RandomApply, [RandomInvert(1)]),
    "rotation": partial(RandomRotation, (30, 60), "nearest", (0, 0, 0)),
}
