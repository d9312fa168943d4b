"""Steps on levels, colors and neighbors: to the bit those of the reference, on images of every size."""

from __future__ import annotations

import os
import subprocess
import sys

import llvmlite.binding
import numpy as np
import pytest

from gpubeton._batch.run_steps import STEP_FUNCTIONS, run_listed
from gpubeton._batch.step_code import addresses_of, image_nbytes, layout_of, memory_nbytes
from gpubeton._batch.step_rows import (
    AUTOCONTRAST,
    BLUR,
    BRIGHTNESS,
    CONTRAST,
    EQUALIZE,
    HUE,
    INVERT,
    POSTERIZE,
    SATURATION,
    SHARPNESS,
    SOLARIZE,
    SOLARIZE_ADD,
    step_rows,
)
from gpubeton.transforms.blur import bell_weights
from tests.reference import steps as reference
from tests.reference.color import MAX_FACTOR, ONE

FENCE = 64
FACTORS = [0, 1, ONE // 2, ONE - 1, ONE, ONE + 1, 50_000, 3 * ONE, MAX_FACTOR * ONE]
PARAMETERS = {
    BRIGHTNESS: [(factor,) for factor in FACTORS],
    CONTRAST: [(factor,) for factor in FACTORS],
    SATURATION: [(factor,) for factor in FACTORS],
    HUE: [(turn,) for turn in (-ONE // 2, -5_000, -1, 0, 1, 2_731, ONE // 2)],
    SOLARIZE: [(threshold,) for threshold in (0, 1, 128, 255, 256)],
    SOLARIZE_ADD: [(added,) for added in (0, 1, 110, 128, 255)],
    POSTERIZE: [(bits,) for bits in range(9)],
    INVERT: [()],
    AUTOCONTRAST: [()],
    EQUALIZE: [()],
    SHARPNESS: [(factor,) for factor in (*FACTORS[:-1], 128 * ONE)],
}
SHAPES = [(n, 71 - n) for n in range(1, 71)] + [(n, n) for n in (1, 2, 3, 8, 64)] + [(1, 600), (600, 1), (224, 223)]


def images(shape, channels, seed):
    """Noise, dark noise, black and white, and a single level."""
    noise = np.random.default_rng(seed).integers(0, 256, (*shape, channels), np.uint8)
    return noise, noise // 40 + 17, noise // 128 * np.uint8(255), np.full_like(noise, 255)


def made(image, kind, parameters):
    """The image after the step, which finds all memory dirty and writes nothing beyond it."""
    sizes = [image_nbytes(*image.shape, 1)] * 2 + [memory_nbytes(*image.shape, [kind])]
    buffers = [np.full(size + 2 * FENCE, 0xA5, np.uint8) for size in sizes]
    rows = step_rows(kind, np.array([parameters], np.int32)).reshape(1, -1)
    result = image.copy()
    layout = layout_of(*image.shape, image.dtype)
    inner = [buffer[FENCE:-FENCE] for buffer in buffers]
    run_listed(result.reshape(1, -1), rows, addresses_of(STEP_FUNCTIONS, [kind]), *inner, layout)
    for buffer in buffers:
        assert (buffer[:FENCE] == 0xA5).all()
        assert (buffer[-FENCE:] == 0xA5).all()
    return result


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("kind", PARAMETERS)
def test_steps_equal_the_reference(kind, channels):
    choices = PARAMETERS[kind]
    if channels == 1 and kind == SATURATION:
        choices = [(ONE,)]  # gray images have none
    for number, shape in enumerate(SHAPES):
        for place, image in enumerate(images(shape, channels, number)):
            parameters = choices[(number + place) % len(choices)]
            result = made(image, kind, parameters)
            assert np.array_equal(result, reference.step(image, kind, *parameters)), (shape, place, parameters)


def weights_of(reach, random):
    """A bell, or any weights of which none is negative and the middle one is not 0."""
    if random.random() < 0.5:
        return bell_weights(random.uniform(0.2, 9, 1), 2 * reach + 1)[0, reach:]
    sides = np.sort(random.integers(0, ONE // 2, reach))
    sides = np.diff(sides, prepend=0)
    return np.array([ONE - 2 * sides.sum(), *sides])


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_blurs_equal_the_reference(channels):
    random = np.random.default_rng(channels)
    for number, shape in enumerate(SHAPES):
        furthest = min(shape) - 1
        for reach in {1, random.integers(1, furthest + 1), min(furthest, 90)} if furthest > 0 else ():
            parameters = reach, *weights_of(reach, random)
            image = images(shape, channels, number)[random.integers(4)]
            result = made(image, BLUR, parameters)
            assert np.array_equal(result, reference.step(image, BLUR, *parameters)), (shape, parameters)


def test_images_too_small_for_a_blur_stay_and_so_do_those_with_one_weight():
    image = images((4, 9), 3, 0)[0]
    assert np.array_equal(made(image, BLUR, (4, 0, 0, 0, 0, ONE // 2)), image)
    assert np.array_equal(made(image, BLUR, (3, ONE, 0, 0, 0)), image)


@pytest.mark.campaign
@pytest.mark.skipif(
    not llvmlite.binding.get_host_cpu_features().get("avx2", False), reason="the machine code needs a CPU with AVX2"
)
@pytest.mark.parametrize("features", ["", "+avx,+avx2,+fma,+bmi2,+f16c,+sse4.2"])
def test_machines_of_2013_make_the_same(features):
    environment = {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not campaign"]
    subprocess.run([sys.executable, "-m", "pytest", *options, __file__], env=environment, check=True)
