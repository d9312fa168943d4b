"""Colors that are changed inside the pass: to the bit what the operations do by themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpubeton._cpu.worker_pool import WorkerPool
from gpubeton._plan.fusion import compile_image_program
from gpubeton.fields.image_decoders import RandomResizedCropRGBImageDecoder
from gpubeton.transforms import (
    ColorJitter,
    Cutout,
    ImageCutMix,
    ImageMixup,
    NormalizeImage,
    RandomBrightness,
    RandomContrast,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomSaturation,
    RandomTranslate,
)
from tests.cpu.making import job_of, stored_jpeg, stored_raw
from tests.cpu.pictures import jpeg, photo

SIZE = 37, 50
SAMPLES = np.arange(6, dtype=np.uint64)


def compiled(operations):
    heights, widths = np.full(6, 64), np.full(6, 80)
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
    job = replace(job_of(program, images, draws), colors=program.draw_colors(5, 2, SAMPLES))
    pool = WorkerPool([program], len(images), num_workers=0, ring=1)
    assert pool.decode(0, job) == []
    return job.out


def step_by_step(operations, images):
    """The same, each operation by itself on the finished crops of the one before."""
    program = compiled(operations)
    geometry = [operation for operation in operations if isinstance(operation, RandomResizedCropRGBImageDecoder)]
    levels = made(compiled(geometry), images)
    drawn = dict(
        zip(
            [id(operation) for operation, _ in program.colors],
            [operation for operation, _ in program.colors],
            strict=True,
        )
    )
    assert len(drawn) == len(program.colors)
    for color, _ in program.colors:
        steps = program.draw_colors(5, 2, SAMPLES)
        begin = 2 * sum(operation.num_steps for operation, _ in program.colors[: list(drawn).index(id(color))])
        levels = color.apply(levels, steps[:, begin : begin + 2 * color.num_steps])
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


def test_color_steps_change_rectangles_painted_before_them_and_none_painted_after():
    fills = (200, 100, 50), (9, 8, 7)
    early, late = Cutout(20, fills[0]), Cutout(6, fills[1])
    darken = ColorJitter(brightness=(0.5, 0.5))
    result = made(compiled([RandomResizedCropRGBImageDecoder(SIZE), early, darken, late]), stored())
    program = compiled([RandomResizedCropRGBImageDecoder(SIZE), early, darken, late])
    assert (program.early_paints, program.max_paints) == (1, 2)
    for image in result:
        assert (image == fills[1]).all(axis=-1).sum() >= 36
        assert (image == np.array(fills[0]) // 2).all(axis=-1).sum() >= 20 * 20 - 36
        assert not (image == fills[0]).all(axis=-1).any()


@pytest.mark.parametrize(
    ("operations", "fused"),
    [
        ([RandomBrightness(0.5), Cutout(4), RandomHorizontalFlip()], 3),
        ([RandomBrightness(0.5), Cutout(4), RandomSaturation(0.5)], 2),  # the cutout's color would change
        ([RandomBrightness(0.5), RandomTranslate(3)], 2),
        ([RandomContrast(0.5), RandomTranslate(3)], 1),  # the mean is of the image before it is moved
        ([ImageMixup(0.5, False), RandomHorizontalFlip()], 1),  # its partner may be mirrored, too
        ([ImageCutMix(0.5, False), RandomBrightness(0.5)], 1),
        ([*[ColorJitter(0.1, 0.1, 0.1, 0.1)] * 6, RandomBrightness(0.5)], 6),  # 24 steps
    ],
    ids=str,
)
def test_only_operations_with_the_same_result_are_fused(operations, fused):
    program = compiled([RandomResizedCropRGBImageDecoder(SIZE), *operations])
    assert [note for _, note in program.notes].count("fused") == 1 + fused
