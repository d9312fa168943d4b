"""Operations on gray images and on those with transparency, on arrays and on tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._batch.step_rows import KEEP, KIND, PARAMETERS
from gpubeton.errors import PipelineError
from gpubeton.pipeline.state import State
from gpubeton.transforms import (
    ColorJitter,
    ImageCutMix,
    ImageMixup,
    RandomAutocontrast,
    RandomBrightness,
    RandomContrast,
    RandomEqualize,
    RandomInvert,
    RandomPosterize,
    RandomSaturation,
    RandomSolarization,
)

LEVELS = [RandomAutocontrast(1), RandomEqualize(1), RandomInvert(1), RandomPosterize(3, 1), RandomSolarization(90, 1)]
SHAPE = 40, 41


def noise(channels, count=5):
    return np.random.default_rng(channels).integers(20, 200, (count, *SHAPE, channels), np.uint8)


def draw_of(operation, channels, count=5):
    numbers = np.random.default_rng(3).random((count, 64))
    state = State(True, "cpu", (*SHAPE, channels), np.dtype("uint8"))
    operation.declare_state_and_memory(state)
    return operation.draw(
        lambda columns, rows=None: (numbers if rows is None else numbers[rows])[:, :columns], count, state
    )


def applied(operation, images, draw):
    """Apply it to an array; check that tensors give the same."""
    expected = operation.apply(images.copy(), draw)
    for tensor in (torch.from_numpy(images.copy()), torch.from_numpy(images.copy()).permute(0, 3, 1, 2)):
        result = operation.apply(tensor, draw)
        result = result.permute(0, 2, 3, 1) if result.shape[1] != SHAPE[0] else result
        assert np.array_equal(result.numpy(), expected)
    return expected


@pytest.mark.parametrize("operation", LEVELS, ids=lambda operation: type(operation).__name__)
def test_levels_of_gray_images_change_as_those_of_a_channel_do(operation):
    gray, draw = noise(1), draw_of(operation, 1)
    wide = operation.apply(gray.repeat(3, axis=3), draw)
    result = applied(operation, gray, draw)
    assert np.array_equal(result, wide[..., :1])
    assert not np.array_equal(result, gray)


@pytest.mark.parametrize("operation", [*LEVELS, RandomBrightness(0.5, 1), RandomContrast(0.5, 1)])
def test_transparency_does_not_change(operation):
    images, draw = noise(4), draw_of(operation, 4)
    result = applied(operation, images, draw)
    assert np.array_equal(result[..., 3], images[..., 3])
    assert np.array_equal(result[..., :3], operation.apply(images[..., :3].copy(), draw))


@pytest.mark.parametrize("operation", [RandomBrightness(0.6, 1), RandomContrast(0.6, 0.7)])
def test_brightness_and_contrast_of_gray_images_are_the_float64_reference_rounded_down(operation):
    images, draw = noise(1, 40), draw_of(operation, 1, 40)
    drawn = draw[:, 0, PARAMETERS].astype(np.float64)[:, None, None, None] / 2**15
    factor = np.where(draw[:, :1, KIND, None, None] == KEEP, 1, drawn)
    mean = images.mean(axis=(1, 2, 3), keepdims=True) if isinstance(operation, RandomContrast) else 0
    exact = np.clip(factor * images + (1 - factor) * mean, 0, 255)
    result = applied(operation, images, draw).astype(int)
    # The added term is rounded down first, by less than 2**-15.
    assert ((result <= exact + 1e-9) & (result > exact - 1 - 2**-14)).all()


@pytest.mark.parametrize("operation", [ImageMixup(0.7, same_lambda=False), ImageCutMix(1.0, same_lambda=False)])
@pytest.mark.parametrize("channels", [1, 4])
def test_images_of_any_channels_are_mixed_channel_by_channel(operation, channels):
    images, draw = noise(channels), draw_of(operation, channels)
    result = applied(operation, images, draw)
    for channel in range(channels):
        wide = images[..., channel : channel + 1].repeat(3, axis=3)
        assert np.array_equal(result[..., channel], operation.apply(wide, draw)[..., 0])


@pytest.mark.parametrize("operation", [ColorJitter(brightness=0.1), RandomSaturation(0.5)])
@pytest.mark.parametrize("channels", [1, 4])
def test_colors_are_refused_for_images_without(operation, channels):
    with pytest.raises(PipelineError, match="works on RGB images"):
        operation.declare_state_and_memory(State(True, "cpu", (*SHAPE, channels), np.dtype("uint8")))
