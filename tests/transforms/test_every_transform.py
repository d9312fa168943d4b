"""What all transforms that draw promise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.pipeline import Compiler
from gpubeton.transforms import *  # noqa: F403  (representations are read back)
from gpubeton.transforms import Pad, RandomResizedCrop
from tests.apply import FUSED, LAYOUTS, SIMULATED, apply, apply_to_images, as_nhwc_array, in_layout, state_of
from tests.transforms.table import (
    ALONE,
    IMAGE_MIXES,
    IMAGE_TRANSFORMS,
    LABEL_MIXES,
    LEVELS,
    MOSAICS,
    SOMETIMES,
    WARPS,
    WINDOWS,
)

SAMPLES = np.array([9, 4, 7, 1, 0, 3], np.uint64)
IMAGES = np.random.default_rng(0).integers(9, 240, (6, 20, 30, 3), np.uint8)
IMAGES[1] //= 3
IMAGES[4, 3:] = 255
LABELS = np.array([[3], [1], [4], [1], [5], [9]])
NHWC, LABEL = state_of(IMAGES), state_of(LABELS)
EVERY = [*IMAGE_TRANSFORMS, *LABEL_MIXES]
IN_PLACE = [transform for transform in IMAGE_TRANSFORMS if transform not in [*WINDOWS, *MOSAICS]]


def name_of(operation):
    return type(operation).__name__


def batch_of(operation):
    return (LABELS if operation in LABEL_MIXES else IMAGES).copy()


@cache
def expected_of(operation):
    return apply([operation], IMAGES.copy())


@pytest.mark.parametrize("operation", IMAGE_TRANSFORMS, ids=name_of)
def test_every_executor_gives_the_same_images(operation, executor):
    result = apply_to_images(executor, [operation], IMAGES)
    # Right after the decoder, only the part is decoded.
    most = executor in {FUSED, SIMULATED} and isinstance(operation, RandomResizedCrop)
    assert np.abs(result.astype(int) - expected_of(operation)).max() <= most
    assert not np.array_equal(result, IMAGES)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operation", IMAGE_TRANSFORMS, ids=name_of)
def test_code_that_is_not_compiled_gives_the_same_images(operation, layout, monkeypatch):
    expected = expected_of(operation)
    monkeypatch.setattr(Compiler, "is_enabled", False)
    assert np.array_equal(apply_to_images(layout, [operation], IMAGES), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operation", IN_PLACE, ids=name_of)
def test_images_are_changed_in_place(operation, layout):
    batch = in_layout(IMAGES, layout)
    assert apply([operation], batch) is batch
    assert not np.array_equal(as_nhwc_array(batch, layout), IMAGES)


@pytest.mark.parametrize("operation", ALONE, ids=name_of)
def test_an_image_depends_on_its_sample_the_epoch_and_the_seed_and_not_on_its_batch(operation):
    whole, part = (apply([operation], IMAGES[rows], seed=5, samples=SAMPLES[rows]) for rows in ([*range(6)], [3, 0, 5]))
    assert np.array_equal(part, whole[[3, 0, 5]])
    for other in ({"seed": 6}, {"seed": 5, "epoch": 1}, {"seed": 5, "field": 1}):
        assert not np.array_equal(apply([operation], IMAGES.copy(), samples=SAMPLES, **other), whole)
    assert not np.array_equal(apply([operation], IMAGES.copy(), seed=5, samples=SAMPLES[::-1]), whole)


@pytest.mark.parametrize("name", SOMETIMES)
def test_images_change_as_often_as_asked(name):
    images = np.random.default_rng(1).integers(20, 200, (4000, 16, 17, 3), np.uint8)
    for p in (0, 0.3, 1):
        changed = (apply([SOMETIMES[name](p)], images.copy()) != images).any(axis=(1, 2, 3))
        # Four standard deviations; few images stay because of the factor that was drawn for them.
        assert abs(changed.mean() - p) <= 0.03 * (p > 0)


@pytest.mark.parametrize("operation", [*IMAGE_TRANSFORMS, Pad(1)], ids=name_of)
def test_labels_are_refused(operation):
    with pytest.raises(PipelineError, match=rf"{name_of(operation)} works on images"):
        operation.declare_state_and_memory(LABEL)


@pytest.mark.parametrize("operation", [*LEVELS, *IMAGE_MIXES], ids=name_of)
def test_only_images_of_levels_are_taken(operation):
    assert operation.declare_state_and_memory(NHWC) == (NHWC, None)
    name = name_of(operation)
    if operation not in IMAGE_MIXES:
        with pytest.raises(PipelineError, match=rf"{name} works on levels.* float32\. .*before Normalize"):
            operation.declare_state_and_memory(state_of(torch.zeros((1, 3, 20, 30))))
    with pytest.raises(PipelineError, match=rf"{name} works on levels.* int16\. .*before Normalize"):
        operation.declare_state_and_memory(replace(NHWC, dtype=np.dtype("int16")))
    if operation in WARPS:
        return
    advice = r"NormalizeImage\(0, 257" if operation in IMAGE_MIXES else "8 bits"
    with pytest.raises(PipelineError, match=rf"uint16\. .*{advice}"):
        operation.declare_state_and_memory(replace(NHWC, dtype=np.dtype("uint16")))


@pytest.mark.parametrize("operation", EVERY, ids=name_of)
def test_apply_without_a_draw_names_the_missing_argument(operation):
    with pytest.raises(TypeError, match=rf"{name_of(operation)}.apply .*draw\(\)"):
        operation.apply(batch_of(operation))


@pytest.mark.parametrize("operation", [*EVERY, Pad(1)], ids=name_of)
def test_generated_code_draws_for_itself(operation):
    batch = batch_of(operation)
    after, _ = operation.declare_state_and_memory(state_of(batch))
    assert operation.generate_code()(batch, None).shape == (len(batch), *after.shape)


@pytest.mark.parametrize("operation", [*IMAGE_MIXES, *LABEL_MIXES, *MOSAICS], ids=name_of)
def test_a_batch_of_nothing_stays_one(operation):
    assert len(apply([operation], batch_of(operation)[:0])) == 0


@pytest.mark.parametrize("operation", EVERY, ids=name_of)
def test_a_representation_can_be_read_back_before_planning_and_after_it(operation):
    before = repr(operation)
    assert repr(eval(before)) == before
    operation.declare_state_and_memory(state_of(batch_of(operation)))
    assert repr(operation) == before
