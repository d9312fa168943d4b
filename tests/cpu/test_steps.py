"""Steps inside the pass: to the bit those on a finished batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpubeton._batch.run_steps import run_steps
from gpubeton._cpu.worker_pool import WorkerPool
from gpubeton._plan.fusion import compile_image_program
from gpubeton.fields import ImageField
from gpubeton.fields.image_decoders import RandomResizedCropImageDecoder
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.format.field_arguments import IMAGE_KINDS
from gpubeton.transforms import (
    ColorJitter,
    Cutout,
    ImageCutMix,
    ImageMixup,
    NormalizeImage,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomAutocontrast,
    RandomBrightness,
    RandomContrast,
    RandomEqualize,
    RandomErasing,
    RandomGaussianBlur,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomPosterize,
    RandomRotation,
    RandomSaturation,
    RandomTranslate,
    TrivialAugmentWide,
)
from tests.cpu.making import job_of, stored_jpeg, stored_raw
from tests.cpu.pictures import jpeg, photo

SIZE = 37, 50
SAMPLES = np.arange(6, dtype=np.uint64)


def compiled(operations, kind="rgb"):
    heights, widths = np.full(6, 64), np.full(6, 80)
    operations[0].accept_field(ImageField(kind))
    return compile_image_program("image", 0, operations, heights, widths)


def stored():
    pictures = [photo(64, 80, number) for number in range(6)]
    return [
        stored_raw(picture) if number % 2 else stored_jpeg(jpeg(picture)) for number, picture in enumerate(pictures)
    ]


def made(program, images):
    """What the pool writes, with all that is fused."""
    sizes = np.full(len(images), 64), np.full(len(images), 80)
    draws = program.draw(5, 2, SAMPLES, *sizes)
    job = replace(job_of(program, images, draws), steps=program.draw_steps(5, 2, SAMPLES))
    pool = WorkerPool([program], len(images), num_workers=0, ring=1)
    assert pool.decode(0, job) == []
    return job.out


def step_by_step(operations, images, kind="rgb"):
    """The same, the steps of the finished crops."""
    levels = made(compiled(operations[:1], kind), images)
    run_steps(levels, compiled(operations, kind).draw_steps(5, 2, SAMPLES))
    return levels


@pytest.mark.parametrize(
    "colors",
    [
        [RandomBrightness(0.5, 1)],
        [RandomContrast(0.7, 1)],
        [RandomSaturation(0.9, 1)],
        [ColorJitter(0.4, 0.4, 0.4, 0.2)],
        [RandomGrayscale(0.5), RandomContrast(0.5), RandomBrightness(0.5), RandomContrast(0.9, 1)],
        [ColorJitter((1.5, 200), (0, 60), (0, 256), 0.5)],
        [RandomBrightness(0.5, 0), RandomContrast(0.5, 0), ColorJitter(0.4, hue=0.1, p=0.3)],
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [None, np.float16, np.float32, "bfloat16"])
def test_fused_color_steps_equal_the_operations_one_by_one(colors, dtype):
    import torch

    operations = [RandomResizedCropRGBImageDecoder(SIZE), *colors]
    expected = step_by_step(operations, stored())
    if dtype is not None:
        normalize = NormalizeImage([120, 110, 100], [60, 61, 62], torch.bfloat16 if dtype == "bfloat16" else dtype)
        operations.append(normalize)
        expected = normalize.table()[expected, np.arange(3)]
    result = made(compiled(operations), stored())
    assert np.array_equal(result.view(f"u{result.itemsize}"), expected.view(f"u{result.itemsize}"))
    assert (result != made(compiled([*operations[:1], *operations[1 + len(colors) :]]), stored())).any()


LISTS = [
    [RandAugment(4, 20)],
    [RandomRotation(30, "bilinear"), Cutout(9), ColorJitter(0.4, 0.4, 0.4, 0.2), RandomHorizontalFlip()],
    [RandomContrast(0.5, 1), RandomTranslate(7), RandomContrast(0.5, 1), RandomAdjustSharpness(2, 1)],
    [
        ColorJitter(0.4, 0.4),
        RandomGaussianBlur(9, p=1),
        RandomEqualize(1),
        RandomPosterize(3),
        RandomBrightness(0.9, 1),
    ],
    [RandomBrightness(0.5, 1), RandomErasing(1.0, value=(9, 8, 7)), RandomHorizontalFlip(), RandomEqualize(1)],
    [RandomAffine(40, (0.2, 0.2), (0.5, 1.5), 20), RandomAutocontrast(1), TrivialAugmentWide(), Cutout(5)],
]


@pytest.mark.parametrize("operations", LISTS, ids=lambda operations: type(operations[0]).__name__)
@pytest.mark.parametrize("dtype", [None, np.float16])
def test_fused_steps_equal_those_of_a_finished_batch(operations, dtype):
    listed = [RandomResizedCropImageDecoder(SIZE), *operations]
    program = compiled(listed)
    assert len(program.steps) == len(operations)
    expected = step_by_step(listed, stored())
    if dtype is not None:
        listed.append(NormalizeImage([120, 110, 100], [60, 61, 62], dtype))
        expected = listed[-1].table()[expected, np.arange(3)]
    assert np.array_equal(made(compiled(listed), stored()), expected)


@pytest.mark.parametrize("kind", [kind for kind in IMAGE_KINDS if kind != "rgb"])
def test_images_of_other_kinds_are_moved_in_the_pass(kind):
    moves = [RandomRotation(30, "bilinear", (5,)), RandomHorizontalFlip(), RandomTranslate(5, (3,)), Cutout(9, (7,))]
    listed = [RandomResizedCropImageDecoder(SIZE), *moves]
    stored_kind, random = IMAGE_KINDS[kind], np.random.default_rng(0)
    shape = 6, 64, 80, stored_kind.channels
    pixels = random.integers(0, stored_kind.max_level, shape, endpoint=True).astype(stored_kind.dtype)
    images = [stored_raw(image) for image in pixels]
    assert len(compiled(listed, kind).steps) == 4
    assert np.array_equal(made(compiled(listed, kind), images), step_by_step(listed, images, kind))


def test_color_steps_change_rectangles_painted_before_them_and_none_painted_after():
    fills = (200, 100, 50), (9, 8, 7)
    early, late = Cutout(20, fills[0]), Cutout(6, fills[1])
    darken = ColorJitter(brightness=(0.5, 0.5))
    result = made(compiled([RandomResizedCropRGBImageDecoder(SIZE), early, darken, late]), stored())
    for image in result:
        assert (image == fills[1]).all(axis=-1).sum() >= 36
        assert (image == np.array(fills[0]) // 2).all(axis=-1).sum() >= 20 * 20 - 36
        assert not (image == fills[0]).all(axis=-1).any()


@pytest.mark.parametrize(
    ("operations", "fused"),
    [
        ([RandomBrightness(0.5), Cutout(4), RandomHorizontalFlip()], 3),
        ([RandomBrightness(0.5), Cutout(4), RandomSaturation(0.5)], 3),
        ([RandomContrast(0.5), RandomTranslate(3)], 2),
        ([ImageMixup(0.5, False), RandomHorizontalFlip()], 1),  # its partner may be mirrored, too
        ([ImageCutMix(0.5, False), RandomBrightness(0.5)], 1),
        ([*[ColorJitter(0.1, 0.1, 0.1, 0.1)] * 16, RandomBrightness(0.5)], 16),  # 64 steps
    ],
    ids=str,
)
def test_only_operations_with_the_same_result_are_fused(operations, fused):
    program = compiled([RandomResizedCropRGBImageDecoder(SIZE), *operations])
    assert [note for _, note in program.notes].count("fused") == 1 + fused
