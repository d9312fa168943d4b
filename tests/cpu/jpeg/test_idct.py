"""Samples of coefficients: those of libjpeg-turbo to the bit. `tests.cpu.made_pictures` has other machines'."""

from __future__ import annotations

import numpy as np
import pytest
import simplejpeg

from gpubeton._cpu.jpeg.codes import OK
from tests.cpu.decoder import FLAT, gray_jpeg, random_blocks
from tests.cpu.making import decode_crop, draw_of, program_of, stored_jpeg, whole


def assert_decoded_as_libjpeg_does(data):
    image = stored_jpeg(data)
    program = program_of(image.height, image.width)
    pixels, code, _ = decode_crop(image, program, draw_of(program, whole(image)))
    assert code == OK
    assert np.array_equal(pixels, simplejpeg.decode_jpeg(data, strict=True))


@pytest.mark.parametrize("amplitude", [1, 4, 30, 200, 800])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.5, 1.0])
def test_samples_are_libjpegs_to_the_bit(amplitude, share):
    """Blocks without AC coefficients have a separate path."""
    blocks = random_blocks(400, amplitude, share, amplitude)
    blocks[::3, 0] = np.random.default_rng(8).integers(-1023, 1024, 134)
    assert_decoded_as_libjpeg_does(gray_jpeg(blocks))


@pytest.mark.parametrize("multiplier", [1, 7, 16, 255])
def test_blocks_without_ac_coefficients_are_flat_for_every_quantized_level(multiplier):
    most = min(2047 // multiplier, 1023)
    levels = np.arange(-most, most + 1)
    blocks = np.zeros((int(np.ceil(len(levels) ** 0.5)) ** 2, 64), int)
    blocks[: len(levels), 0] = levels
    assert_decoded_as_libjpeg_does(gray_jpeg(blocks, FLAT * multiplier))
