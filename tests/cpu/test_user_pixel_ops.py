"""Pixel operations of users inside the pass: to the bit what they do by themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpubeton.cpu.user_pixel_ops import USER_OP_FIELDS, user_ops_of
from gpubeton.cpu.worker_pool import WorkerPool
from gpubeton.fields.image_decoders import RandomResizedCropRGBImageDecoder
from gpubeton.pipeline.compiler import Compiler
from gpubeton.plan.fusion import compile_image_program
from gpubeton.transforms import (
    ColorJitter,
    Cutout,
    NormalizeImage,
    PixelOperation,
    RandomContrast,
    RandomHorizontalFlip,
)
from tests.cpu.making import job_of, stored_jpeg, stored_raw
from tests.cpu.pictures import jpeg, photo
from tests.transforms.pixel_operations import CASES

SAMPLES = np.arange(6, dtype=np.uint64)
CROP = RandomResizedCropRGBImageDecoder((37, 50))
IN_ORDER = {
    "alone": ["position"],
    "two": ["one parameter", "out of range"],
    "among others": [ColorJitter(0.4, 0.4, 0.4, 0.1), "one parameter", RandomContrast(0.5, 1.0), "position"],
    "before a contrast": ["position", RandomContrast(0.5, 1.0), "one parameter"],
    "behind a contrast that may be idle": ["one parameter", RandomContrast(0.5, 0.5), "position"],
}


def compiled(*operations):
    return compile_image_program("image", 0, [CROP, *operations], np.full(6, 64), np.full(6, 80))


def made(program):
    pictures = [photo(64, 80, number) for number in range(6)]
    images = [stored_raw(one) if number % 2 else stored_jpeg(jpeg(one)) for number, one in enumerate(pictures)]
    draws = program.draw(5, 2, SAMPLES, np.full(6, 64), np.full(6, 80))
    job = replace(job_of(program, images, draws), colors=program.draw_colors(5, 2, SAMPLES))
    pool = WorkerPool([program], len(images), num_workers=0, ring=1)
    assert pool.decode(0, job) == []
    return job.out


@pytest.mark.parametrize("names", IN_ORDER)
def test_the_pass_makes_what_each_operation_makes_by_itself(names):
    own = [CASES[one].make(p=0.7) if isinstance(one, str) else one for one in IN_ORDER[names]]
    normalize = NormalizeImage((120, 110, 100), (60, 50, 40), np.float16)
    program = compiled(RandomHorizontalFlip(), *own, normalize)
    assert [note for _, note in program.notes] == ["fused"] * (3 + len(own))
    levels, steps, place = made(compiled(RandomHorizontalFlip())), program.draw_colors(5, 2, SAMPLES), 0
    assert 0 < (steps[:, -1] == 0).sum() < 6 or names in {"before a contrast", "alone"}
    for color, _ in program.colors:
        levels = color.apply(levels, steps[:, place : place + 2 * color.num_steps])
        place += 2 * color.num_steps
    assert np.array_equal(made(program), program.table[levels, np.arange(3)])


def test_what_is_painted_before_is_changed_and_what_is_painted_after_is_not():
    negative = CASES["out of range"].make()
    before, after = made(compiled(Cutout(20, (7, 7, 7)), negative)), made(compiled(negative, Cutout(20, (7, 7, 7))))
    changed = ((7 - 128) * 3 <= 0) * 0, 77, 255
    assert [(batch == color).all(axis=-1).sum() >= 400 for batch, color in ((before[0], changed), (after[0], 7))] == [
        True,
        True,
    ]
    assert not (before == 7).all(axis=-1).any()


def test_programs_have_their_own_operations():
    one, two = CASES["one parameter"].make(), CASES["position"].make()
    table = user_ops_of([compiled(two), compiled(), compiled(one, two, one)])
    assert (table[:, ::USER_OP_FIELDS] != 0).sum(axis=1).tolist() == [1, 0, 3]
    assert table[2, :6:2].tolist() == [table[2, 0], table[0, 0], table[2, 0]], "compiled once"
    assert table[:, 1].tolist() == [2, 0, 1]
    assert table[2, 1:6:2].tolist() == [1, 2, 1]


GAIN = np.array([0.5], np.float32)


def dimmed(r, g, b):
    return r * GAIN[0], g, b


def test_another_loader_compiles_an_operation_anew_only_if_what_it_reads_has_changed():
    programs = [compiled(PixelOperation("r *= 0.5f;", dimmed))]
    first = user_ops_of(programs)
    Compiler.begin()
    assert user_ops_of(programs)[0, 0] == first[0, 0]
    GAIN[0] = 0.25
    Compiler.begin()
    assert user_ops_of(programs)[0, 0] != first[0, 0]


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (40, 90)])
def test_outputs_of_any_size_are_changed(size):
    crop = RandomResizedCropRGBImageDecoder(size)
    own = [ColorJitter(0.4, 0.4, 0.4, 0.1), CASES["position"].make()]
    for operations in (own, own[:1]):
        plain = compile_image_program("image", 0, [crop], np.full(6, 64), np.full(6, 80))
        program = compile_image_program("image", 0, [crop, *operations], np.full(6, 64), np.full(6, 80))
        levels, steps, place = made(plain), program.draw_colors(5, 2, SAMPLES), 0
        for color, _ in program.colors:
            levels = color.apply(levels, steps[:, place : place + 2 * color.num_steps])
            place += 2 * color.num_steps
        assert np.array_equal(made(program), levels)
