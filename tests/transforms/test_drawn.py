"""The parameters that `drawn` returns for each operation suffice to repeat it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._batch.step_rows import HSV, PERSPECTIVE, SHARPNESS, STEP_COLUMNS, step_rows, words
from gpubeton._batch.warp_steps import perspective_rows
from gpubeton.pipeline.state import State
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
    PerSample,
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
    RandomQuarterTurn,
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
from gpubeton.transforms.blur import blur_steps
from gpubeton.transforms.color_jitter import color_steps
from gpubeton.transforms.policies import policy_rows
from gpubeton.transforms.transform import Transform
from gpubeton.transforms.warps import affine_rows, warp_steps
from tests.reference.color import BRIGHTNESS, CONTRAST, HUE, ONE, SATURATION

#: Kinds of step rows, by those of the reference.
STEP_KINDS = [1 + kind for kind in (BRIGHTNESS, CONTRAST, SATURATION, HUE)]
COUNT, SIZE = 12, (20, 26)
NHWC = State(jit_mode=True, device=torch.device("cpu"), shape=(*SIZE, 3), dtype=np.dtype("uint8"))
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, *SIZE, 3), dtype=np.uint8)


def uniform(count, rows=None):
    numbers = np.random.default_rng(1).random((COUNT, 200))[:, :count]
    return numbers if rows is None else numbers[rows]


def always(count, rows=None):
    return np.zeros((COUNT if rows is None else len(rows), count))


def flagged(operation, flags):
    """The operation done to those images that the flags name."""
    chosen = np.flatnonzero(flags)
    row = operation.draw(always, COUNT, NHWC)[:1]
    images = IMAGES.copy()
    images[chosen] = operation.apply(IMAGES[chosen], np.repeat(row, len(chosen), axis=0))
    return images


def painted(boxes):
    images = IMAGES.copy()
    for image, (top, left, height, width) in zip(images, boxes.tolist(), strict=True):
        image[top : top + height, left : left + width] = 0
    return images


def moved(shifts):
    images = np.zeros_like(IMAGES)
    for source, image, (down, right) in zip(IMAGES, images, shifts.tolist(), strict=True):
        padded = np.pad(source, ((9, 9), (9, 9), (0, 0)))
        image[:] = padded[9 - down : 9 - down + SIZE[0], 9 - right : 9 - right + SIZE[1]]
    return images


def windows(boxes, padding=0):
    padded = np.pad(IMAGES, ((0, 0), (padding,) * 2, (padding,) * 2, (0, 0)))
    return np.stack(
        [
            image[padding + top : padding + top + height, padding + left : padding + left + width]
            for image, (top, left, height, width) in zip(padded, boxes.tolist(), strict=True)
        ]
    )


def blended(kind, factor):
    return ColorJitter().apply(IMAGES.copy(), color_steps(STEP_KINDS[kind], factor))


def jittered(order, **factors):
    by_kind = np.stack([factors[name] for name in ("brightness", "contrast", "saturation", "hue")], axis=1)
    factor = np.take_along_axis(by_kind, order, axis=1)
    rows = np.zeros((COUNT, order.shape[1], STEP_COLUMNS), np.int32)
    for row, column in np.ndindex(order.shape):
        rows[row, column] = color_steps(STEP_KINDS[order[row, column]], factor[row, column : column + 1])[0, 0]
    return ColorJitter().apply(IMAGES.copy(), rows)


def augmented(policy, operation, magnitude):
    """Rows found by operation and magnitude, which may be of either sign."""
    bins = policy.num_magnitude_bins
    possible = policy_rows(policy.space, bins, SIZE, policy.interpolation, policy.fill)
    rows = []
    for operations, sizes in zip(operation.tolist(), magnitude.tolist(), strict=True):
        for which, size in zip(operations, sizes, strict=True):
            name, least, largest, both = policy.space[which]
            largest *= 1 if not name.startswith("Translate") or largest >= 1 else SIZE[name == "TranslateX"]
            column = 0 if largest == least else round((abs(size) - least) / (largest - least) * (bins - 1))
            rows.append(possible[which, column, int(both and size < 0)])
    return policy.apply(IMAGES.copy(), np.stack(rows).reshape(COUNT, -1, STEP_COLUMNS))


def warped(*arguments, **named):
    return warp_steps("nearest", (0, 0, 0), affine_rows(SIZE, *arguments, **named))


def perspective(corners):
    start = np.array([[0, 0], [25, 0], [25, 19], [0, 19]])
    warps = perspective_rows(np.broadcast_to(start, corners.shape), corners)
    parameters = np.hstack([np.zeros((COUNT, 2), np.int32), words(warps), np.ones((COUNT, 1), np.int32)])
    return RandomPerspective().apply(IMAGES.copy(), step_rows(PERSPECTIVE, parameters))


def mixed(partner, share):
    image, other = IMAGES.astype(np.int64), IMAGES[partner].astype(np.int64)
    weight = np.rint(share * ONE).astype(np.int64)[:, None, None, None]
    return ((weight * image + (ONE - weight) * other) >> 15).astype(np.uint8)


def pasted(partner, share, box):
    images = IMAGES.copy()
    for row, (top, left, height, width) in enumerate(box.tolist()):
        images[row, top : top + height, left : left + width] = IMAGES[
            partner[row], top : top + height, left : left + width
        ]
        assert share[row] == pytest.approx(1 - height * width / (SIZE[0] * SIZE[1]), abs=1e-12)
    return images


def mixed_or_pasted(cutmix, partner, share, box):
    assert cutmix.any()
    assert (box[~cutmix] == [0, 0, *SIZE]).all()
    box, area = np.where(cutmix[:, None], box, 0), np.where(cutmix, share, 1)
    return np.where(cutmix[:, None, None, None], pasted(partner, area, box), mixed(partner, share))


def tiled(partner, box):
    images = np.full_like(IMAGES, 7)
    for image, others, boxes in zip(images, partner.tolist(), box.tolist(), strict=True):
        for number, (other, (top, left, height, width)) in enumerate(zip(others, boxes, strict=True)):
            rows = slice(-height, None) if number >= 2 and height else slice(height)
            columns = slice(-width, None) if number % 2 and width else slice(width)
            image[rows, columns] = IMAGES[other, top : top + height, left : left + width]
    return images


CROP = RandomResizedCrop((0.2, 1), (0.7, 1.4), 9)
AFFINE = RandomAffine(30, (0.2, 0.2), (0.5, 2), (-20, 20, -10, 10), p=0.7)

CASES = [
    (RandomHorizontalFlip(), lambda flip: np.where(flip[:, None, None, None], IMAGES[:, :, ::-1], IMAGES)),
    (RandomTranslate(8), moved),
    (Cutout(7), painted),
    (RandomErasing(p=0.7), painted),
    (RandomCrop((12, 14), padding=4), lambda boxes: windows(boxes, 4)),
    (CornerCrop((12, 14)), windows),
    (CROP, lambda boxes: RandomResizedCrop((1, 1), (1, 1), 9).apply(IMAGES, boxes)),
    (RandomBrightness(0.6), lambda factor: blended(BRIGHTNESS, factor)),
    (RandomContrast(0.6), lambda factor: blended(CONTRAST, factor)),
    (RandomSaturation(0.6), lambda factor: blended(SATURATION, factor)),
    (RandomGrayscale(0.5), lambda flags: flagged(RandomGrayscale(0.5), flags)),
    (ColorJitter(0.4, 0.4, 0.4, 0.2, p=0.8), jittered),
    (ColorJitter(contrast=0.4, hue=0.2), jittered),
    *((operation, lambda flags, operation=operation: flagged(operation, flags)) for operation in (
        RandomSolarization(p=0.5), RandomPosterize(3, p=0.5), RandomInvert(0.5), RandomAutocontrast(0.5),
        RandomEqualize(0.5),
    )),
    (RandomAdjustSharpness(1.7, p=0.5), lambda factor: RandomAdjustSharpness(2).apply(
        IMAGES.copy(), step_rows(SHARPNESS, np.rint(factor * ONE).astype(np.int32)[:, None]))),
    (RandomGaussianBlur(5, p=0.6), None),
    (RandomRotation(70, p=0.8), lambda angle: RandomRotation(0).apply(IMAGES.copy(), warped(angle=-angle))),
    (AFFINE, lambda angle, translate, scale, shear: AFFINE.apply(
        IMAGES.copy(), warped(angle, tuple(translate.T), scale, tuple(shear.T)))),
    (RandomVerticalFlip(), lambda flip: np.where(flip[:, None, None, None], IMAGES[:, ::-1], IMAGES)),
    (RandomPerspective(0.6, 0.7), perspective),
    (RandomHSV(0.2), lambda hue, saturation, value: RandomHSV().apply(IMAGES.copy(), step_rows(
        HSV, np.rint(np.stack([saturation, value, hue], axis=1) * ONE).astype(np.int32)))),
    (AutoAugment("cifar10"), lambda operation, magnitude: augmented(AutoAugment("cifar10"), operation, magnitude)),
    (RandAugment(3, 20), lambda operation, magnitude: augmented(RandAugment(3, 20), operation, magnitude)),
    (TrivialAugmentWide(), lambda operation, magnitude: augmented(TrivialAugmentWide(), operation, magnitude)),
    (ImageMixup(0.5, False), mixed),
    (ImageMixup(0.5, True), mixed),
    (ImageCutMix(1.0, False), pasted),
    (ImageMixupOrCutMix(0.5, 1.0, False), mixed_or_pasted),
    (Mosaic(0.8), tiled),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "redo"), CASES, ids=[type(operation).__name__ for operation, _ in CASES])
def test_drawn_parameters_suffice_to_repeat_an_operation(operation, redo):
    drawn = operation.drawn(uniform, COUNT, NHWC)
    assert all(len(values) == COUNT for values in drawn.values())
    redo = redo_blur if operation is CASES_BLUR else redo
    expected = operation.apply(IMAGES.copy(), operation.draw(uniform, COUNT, NHWC))
    alone, named = drawn.pop("", None), drawn
    result = redo(**named) if alone is None else redo(alone, **named)
    assert result.shape == expected.shape
    assert np.array_equal(result, expected)
    assert not np.array_equal(expected, IMAGES)


CASES_BLUR = next(operation for operation, _ in CASES if isinstance(operation, RandomGaussianBlur))


def redo_blur(sigma):
    assert (sigma == 0).any()
    return RandomGaussianBlur(5).apply(IMAGES.copy(), blur_steps(np.maximum(sigma, 1e-3), 5))


def test_every_operation_that_draws_has_been_done_again():
    import gpubeton.transforms as all_of_them

    drawing = {
        transform
        for name in all_of_them.__all__
        if isinstance(transform := getattr(all_of_them, name), type)
        and issubclass(transform, Transform)
        and transform.is_random
    }
    assert drawing - {type(operation) for operation, _ in CASES} == {
        *(LabelMixup, LabelCutMix, LabelMixupOrCutMix, PerSample),
        # Their own tests do them again, and the one of images that are square.
        *(AugMix, RandomApply, RandomChoice, RandomOrder, ThreeAugment, RandomQuarterTurn, TimmAugment),
    }


def test_labels_are_mixed_as_their_images():
    label = State(jit_mode=True, device=torch.device("cpu"), shape=(1,), dtype=np.dtype("int64"))
    for mix_images, mix_labels in (
        (ImageMixup(0.4, False), LabelMixup(0.4, False)),
        (ImageCutMix(1, False), LabelCutMix(1, False, SIZE)),
        (ImageMixupOrCutMix(0.4, 1, False), LabelMixupOrCutMix(0.4, 1, False, size=SIZE)),
    ):
        of_image, of_label = mix_images.drawn(uniform, COUNT, NHWC), mix_labels.drawn(uniform, COUNT, label)
        assert of_image["partner"].tolist() == of_label["partner"].tolist()
        assert of_image["share"].tolist() == pytest.approx(of_label["share"].tolist(), abs=1e-12)


def test_a_users_operation_returns_its_draws():
    class Shake(Transform):
        is_random = True

        def draw(self, uniform, count, state):
            return uniform(2)

        def declare_state_and_memory(self, previous_state):
            return previous_state, None

        def apply(self, batch, draw=None):
            return batch

    assert np.array_equal(Shake().drawn(uniform, COUNT, NHWC)[""], uniform(2))
    Shake.draw = lambda *_: None
    assert Shake().drawn(uniform, COUNT, NHWC) == {}
