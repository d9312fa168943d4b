"""Warps and perspective as steps: to the bit the formulas, for images of every kind and size."""

from __future__ import annotations

import os
import subprocess
import sys

import llvmlite.binding
import numpy as np
import pytest
from PIL import Image

from gpubeton._batch.step_rows import PERSPECTIVE, WARP_BILINEAR, WARP_NEAREST
from gpubeton._batch.warp_steps import IDENTITY, LARGEST_DIVISOR, perspective_rows
from gpubeton.transforms.warps import affine_rows
from tests.cpu.carried_out import KINDS, carried_out, noise, size_of, warp_row
from tests.reference.exact_steps import affine_places, perspective_places, read

BITS = {WARP_NEAREST: 0, WARP_BILINEAR: 11}


def drawn_warp(random, size):
    """The numbers of a warp: some far outside, some very large or small, some sheared to the utmost."""
    shift = random.uniform(-1, 1, 2) * random.choice([0, 1, 7, 500, 1e6])
    angles = random.uniform(-1, 1, 3) * (180, *random.choice([0, 20, 89], 2))
    warp = {"angle": angles[0], "translate": shift, "scale": 2.0 ** random.uniform(-8, 8), "shear": angles[1:]}
    if random.random() < 0.3:
        warp["scale"] = random.choice([2.0**-8, 1.0, 2.0**8])
    if random.random() < 0.3:
        return np.add(IDENTITY, random.integers(-3, 4, 6) << random.integers(0, 35, 6))
    return affine_rows(size, **warp)[0]


def corners(size, random=None, distortion=0.5, count=1):
    """Corners of an image, and of where `RandomPerspective` of torchvision puts them."""
    height, width = size
    start = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]])
    if random is None:
        return start[None]
    inward = random.integers(0, np.array([distortion * (width // 2), distortion * (height // 2)]) + 1, (count, 4, 2))
    return start + inward * [[1, 1], [-1, 1], [-1, -1], [1, -1]]


def drawn_perspective(random, size, number):
    start = corners(size)
    if number % 4 == 3:  # any four points, also with crossing sides
        return perspective_rows(start, random.uniform(-1.5, 2.5, (1, 4, 2)) * size[::-1])[0]
    return perspective_rows(start, corners(size, random, (0.1, 0.5, 1.0)[number % 4]))[0]


def warped(seed):
    """Warped images, of a machine's own code."""
    random, images = np.random.default_rng(seed), []
    for number, kind in enumerate(list(KINDS) * 2):
        size = size_of(random, number)
        image, fill = noise(random, *size, kind)
        rows = [warp_row(step, fill, drawn_warp(random, size)) for step in BITS]
        rows.append(warp_row(PERSPECTIVE, fill, drawn_perspective(random, size, number), number % 2))
        images += [carried_out(image, row) for row in rows]
    return images


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", BITS)
def test_a_warp_equals_the_formula(step, kind):
    random = np.random.default_rng(step)
    for number in range(96 if kind == "rgb" else 32):
        size = size_of(random, number)
        image, fill = noise(random, *size, kind)
        numbers = drawn_warp(random, size)
        expected = read(image, *affine_places(numbers, size, BITS[step]), fill)
        assert np.array_equal(carried_out(image, warp_row(step, fill, numbers)), expected), (number, size, numbers)


@pytest.mark.parametrize("step", BITS)
def test_every_width_is_read_to_its_last_pixel(step):
    random = np.random.default_rng(0)
    for side in (*range(1, 71), 112, 113, 127, 128, 129, 256, 257):
        for size in ((side, 70), (3, side)):
            image, fill = noise(random, *size, "rgb")
            numbers = affine_rows(size, angle=random.uniform(-180, 180))[0]
            expected = read(image, *affine_places(numbers, size, BITS[step]), fill)
            assert np.array_equal(carried_out(image, warp_row(step, fill, numbers)), expected), size


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [0, 11])
def test_a_perspective_equals_the_formula(bits, kind):
    random = np.random.default_rng(bits)
    for number in range(96 if kind == "rgb" else 32):
        size = size_of(random, number)
        image, fill = noise(random, *size, kind)
        numbers = drawn_perspective(random, size, number)
        expected = read(image, *perspective_places(numbers, size, bits), fill)
        result = carried_out(image, warp_row(PERSPECTIVE, fill, numbers, int(bits > 0)))
        assert np.array_equal(result, expected), (number, size, numbers)


@pytest.mark.parametrize("size", [(2, 4096), (4096, 3), (2, 8192), (8192, 2)])
def test_the_largest_images_in_perspective_equal_the_formula(size):
    random = np.random.default_rng(0)
    image, fill = noise(random, *size, "rgb")
    for _ in range(8):
        ends = corners(size) + random.uniform(-0.4, 0.4, (1, 4, 2)) * size[::-1]
        numbers = perspective_rows(corners(size), ends)[0]
        expected = read(image, *perspective_places(numbers, size, 11), fill)
        assert np.array_equal(carried_out(image, warp_row(PERSPECTIVE, fill, numbers, 1)), expected)


def test_divisors_at_their_bounds_and_quotients_next_to_whole_numbers_equal_the_formula():
    random = np.random.default_rng(0)
    for divisor in (
        -1,
        0,
        1,
        2,
        3,
        LARGEST_DIVISOR - 1,
        LARGEST_DIVISOR,
        LARGEST_DIVISOR + 1,
        *range(10**7, 10**7 + 9),
    ):
        for bits in (0, 11):
            image, fill = noise(random, 9, 40, "rgb")
            # From row to row one more or less than a multiple of the divisor.
            step = random.integers(1, 2048) * max(divisor, 1)
            numbers = [step, 1, -4, -step, 1, 40 * step - 4, 0, 0, divisor << 16]
            expected = read(image, *perspective_places(numbers, (9, 40), bits), fill)
            assert np.array_equal(carried_out(image, warp_row(PERSPECTIVE, fill, numbers, int(bits > 0))), expected)


@pytest.mark.parametrize("bits", [0, 11])
def test_numerators_of_every_magnitude_equal_the_formula(bits):
    random = np.random.default_rng(bits)
    for exponent in range(36, 63):
        for divisor in (-1, 0, 1, 1 << 13, LARGEST_DIVISOR - 1, LARGEST_DIVISOR, LARGEST_DIVISOR + 1):
            image, fill = noise(random, 9, 40, "rgb")
            # Along a row, and from row to row, they change their sign.
            across, down = random.choice([-1, 1], 2) << exponent
            numbers = [-across // 20, 0, across, 0, -down // 5, down, 0, 0, divisor << 16]
            expected = read(image, *perspective_places(numbers, (9, 40), bits), fill)
            result = carried_out(image, warp_row(PERSPECTIVE, fill, numbers, int(bits > 0)))
            assert np.array_equal(result, expected), (exponent, divisor)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (37, 50), (16, 16)])
def test_identity_changes_nothing(size, kind):
    image, fill = noise(np.random.default_rng(0), *size, kind)
    for step in BITS:
        assert np.array_equal(carried_out(image, warp_row(step, fill, IDENTITY)), image)
    (numbers,) = perspective_rows(corners(size), corners(size))
    for is_bilinear in (0, 1):
        assert np.array_equal(carried_out(image, warp_row(PERSPECTIVE, fill, numbers, is_bilinear)), image)


def test_perspective_rows_lead_from_ends_to_starts():
    random, size = np.random.default_rng(0), (224, 300)
    (start,) = corners(size)
    for end in corners(size, random, 0.5, 200):
        matrix = perspective_rows(start[None], end[None]).astype(np.float64).reshape(3, 3) / [[1], [1], [2.0**16]]
        assert np.abs(at_points(matrix, end - 0.5) - start).max() < 300 * 2.0**-28
        a, b, c, d, e, f, g, h = coefficients(start, end)
        x, y = inner = random.uniform(0, size[::-1])
        divisor = g * x + h * y + 1
        expected = (a * x + b * y + c) / divisor, (d * x + e * y + f) / divisor
        assert np.allclose(at_points(matrix, inner[None] - 0.5), expected, rtol=2.0**-20, atol=2.0**-20)
        divisors = np.column_stack([end - 0.5, np.ones(4)]) @ matrix[2]
        assert divisors.min() > 0
        assert divisors.max() <= (LARGEST_DIVISOR + 1) / 2 + 1


def coefficients(start, end):
    """The eight of torchvision's and Pillow's perspective."""
    lines, (x, y) = [], end.T.astype(np.float64)
    one, none = np.ones(4), np.zeros(4)
    for axis, columns in enumerate(([x, y, one, none, none, none], [none, none, none, x, y, one])):
        lines.append(np.stack([*columns, -x * start[:, axis], -y * start[:, axis]], axis=1))
    return np.linalg.solve(np.concatenate(lines), start.T.ravel().astype(np.float64))


def at_points(matrix, points):
    """Where points between pixels are read; places have half a unit more."""
    above = np.column_stack([points, np.ones(len(points))]) @ matrix.T
    return (above[:, :2] / above[:, 2:] - 0.5) / 2048 + 0.5


@pytest.mark.parametrize(
    "end",
    [
        [[5, 5]] * 4,
        [[0, 0], [9, 9], [4, 4], [0, 9]],
        [[0, 0], [9, 0], [9, 0], [0, 9]],
        [[0, 0], [2, 0], [4, 0], [6, 0]],
    ],
)
def test_corners_without_an_area_leave_the_image_as_it_is(end):
    image, fill = noise(np.random.default_rng(0), 10, 10, "rgb")
    for starts, ends in ((corners((10, 10)), np.array([end])), (np.array([end]), corners((10, 10)))):
        (numbers,) = perspective_rows(starts, ends)
        assert np.array_equal(carried_out(image, warp_row(PERSPECTIVE, fill, numbers, 1)), image)


def test_corners_whose_sides_cross_in_the_middle_have_a_side_in_front():
    # What RandomPerspective(1.0) may draw for an image of 2 x 2: divisors add up to 0.
    (numbers,) = perspective_rows(corners((2, 2)), np.array([[[0, 0], [0, 1], [1, 0], [1, 1]]]))
    divisors = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]]) @ numbers[6:]
    assert divisors.max() > 0


@pytest.mark.parametrize("is_bilinear", [0, 1])
def test_a_perspective_is_that_of_pillow(is_bilinear):
    random, size = np.random.default_rng(0), (120, 160)
    coarse = Image.fromarray(noise(random, 12, 16, "rgb")[0])
    smooth = coarse.resize(size[::-1], Image.Resampling.BICUBIC)
    for end in corners(size, random, 0.6, 8):
        (numbers,) = perspective_rows(corners(size), end[None])
        result = carried_out(np.array(smooth), warp_row(PERSPECTIVE, (0, 0, 0), numbers, is_bilinear))
        resampling = Image.Resampling.BILINEAR if is_bilinear else Image.Resampling.NEAREST
        matrix = coefficients(corners(size)[0], end)
        expected = smooth.transform(size[::-1], Image.Transform.PERSPECTIVE, matrix, resampling)
        # Pillow mixes no fill in at the border.
        places = zip(perspective_places(numbers, size, 11), size[::-1], strict=True)
        inside = np.logical_and(*((place > 0) & (place < 2048 * (side - 1)) for place, side in places))
        away = np.abs(result.astype(int) - np.array(expected))[inside]
        assert inside.mean() > 0.2
        # It rounds down, and the nearest of two pixels as far away may be the other one.
        assert away.max() <= 1 if is_bilinear else (away == 0).mean() > 0.995


@pytest.mark.campaign
@pytest.mark.skipif(
    not llvmlite.binding.get_host_cpu_features().get("avx2", False), reason="the machine code needs a CPU with AVX2"
)
@pytest.mark.parametrize("features", ["", "+avx2"])  # "+avx2" has the instructions that are chosen by name
def test_a_machine_of_2013_warps_to_the_same_bits(features, tmp_path):
    environment = {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    command = [sys.executable, "-m", "tests.cpu.test_warp_steps", str(tmp_path / "images.npz")]
    subprocess.run(command, env=environment, check=True)
    with np.load(tmp_path / "images.npz") as images:
        for number, image in enumerate(warped(0)):
            assert np.array_equal(images[f"arr_{number}"], image), number


if __name__ == "__main__":
    np.savez(sys.argv[1], *warped(0))
