from __future__ import annotations

import numba
import numpy as np
import pytest
import simplejpeg

from gpubeton._cpu import simd
from gpubeton._cpu.image_tasks import aligned
from gpubeton._cpu.jpeg.codes import OK
from gpubeton._cpu.jpeg.idct import COLUMN_BYTES, PLACES, inverse_dct, inverse_dct_of_dc
from tests.cpu.making import draw_of, make_alone, program_of, stored_jpeg, whole
from tests.cpu.plain_jpeg import Component, write

FLAT = np.ones(64, int)


@numba.njit(cache=True)
def transform(coefficients, multipliers, columns):
    for i in range(coefficients.shape[0]):
        inverse_dct(coefficients[i].ctypes.data, multipliers.ctypes.data, columns[i].ctypes.data)


@numba.njit(cache=True)
def transform_dc(value, multiplier, columns):
    inverse_dct_of_dc(value, multiplier, columns.ctypes.data)


def samples(blocks, multipliers, transform=transform):
    """The samples that blocks (n, 64), row-major, become: (n, 8, 8)."""
    count = len(blocks)
    coefficients = aligned(64 * count, np.int16).reshape(count, 64)
    coefficients[:, PLACES] = blocks
    placed = np.zeros(64, np.int16)
    placed[PLACES] = multipliers
    columns = aligned(count * 4 * COLUMN_BYTES, np.uint16).reshape(count, 8, COLUMN_BYTES // 2)
    transform(coefficients, placed, columns)
    assert not (columns[:, :, :8] & 0xFF).any()
    assert not columns[:, :, 8:].any(), "the other block of the column was written"
    return (columns[:, :, :8] >> 8).swapaxes(1, 2)


def random_blocks(count, amplitude, share, seed):
    """Blocks whose coefficients are up to `amplitude`, a `share` of them other than zero."""
    generator = np.random.default_rng(seed)
    blocks = generator.integers(-amplitude, amplitude + 1, (count, 64))
    return blocks * (generator.random((count, 64)) < share)


def libjpegs_samples(blocks):
    """The same by libjpeg-turbo, which is handed the blocks in a gray file."""
    side = round(len(blocks) ** 0.5)
    data = write([Component(1, 1, 1, blocks.reshape(side, side, 64), FLAT)], 8 * side, 8 * side)
    image = simplejpeg.decode_jpeg(data, colorspace="GRAY", strict=True)[..., 0]
    return data, image.reshape(side, 8, side, 8).swapaxes(1, 2).reshape(-1, 8, 8)


@pytest.mark.parametrize("amplitude", [1, 4, 30, 200, 800])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 1.0])
def test_samples_are_libjpegs_to_the_bit(amplitude, share):
    blocks = random_blocks(400, amplitude, share, amplitude)
    assert np.array_equal(samples(blocks, FLAT), libjpegs_samples(blocks)[1])


def test_machines_with_and_without_avx2_make_the_same_of_any_numbers(monkeypatch):
    """Also where sums of 16 bits wrap around, and where the first pass is limited to 16 bits."""
    monkeypatch.setattr(simd, "HAS_AVX2", False)
    portable = numba.njit(transform.py_func)
    for amplitude in (4, 300, 3000, 32767):
        blocks, multipliers = random_blocks(300, amplitude, 0.4, amplitude), np.arange(1, 65)
        expected = samples(blocks, multipliers, portable)
        assert len(np.unique(expected)) > 20
        assert np.array_equal(samples(blocks, multipliers), expected)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 1.0])
def test_blocks_are_equal_through_the_whole_decoder(share):
    """Blocks without AC coefficients have a separate path."""
    blocks = random_blocks(100, 300, share, 7)
    blocks[:, 0] = np.random.default_rng(8).integers(-1023, 1024, 100)
    data, _ = libjpegs_samples(blocks)
    image, program = stored_jpeg(data), program_of(80, 80)
    out, codes = make_alone(program, [image], [draw_of(program, whole(image))])
    assert codes.tolist() == [OK]
    assert np.array_equal(out[0], simplejpeg.decode_jpeg(data, strict=True))


def test_a_block_without_ac_coefficients_is_flat_and_as_the_transform_has_it():
    for multiplier in (1, 7, 16, 255):
        values = np.arange(-2047 // multiplier, 2047 // multiplier + 1)
        blocks = np.zeros((len(values), 64), int)
        blocks[:, 0] = values
        expected = samples(blocks, np.full(64, multiplier))
        columns = aligned(4 * COLUMN_BYTES, np.uint16).reshape(8, COLUMN_BYTES // 2)
        for value, block in zip(values.tolist(), expected, strict=True):
            transform_dc(value, multiplier, columns)
            assert (columns[:, :8] == int(block[0, 0]) << 8).all()
            assert (block == block[0, 0]).all()


def test_samples_are_within_a_level_of_the_exact_transform():
    blocks = random_blocks(200, 60, 0.3, 3)
    k, n = np.mgrid[0:8, 0:8]
    matrix = np.where(k == 0, np.sqrt(1 / 8), 0.5) * np.cos((2 * n + 1) * k * np.pi / 16)
    exact = np.clip(matrix.T @ blocks.reshape(-1, 8, 8) @ matrix + 128, 0, 255)
    assert np.abs(samples(blocks, FLAT) - exact).max() < 0.6
