"""Machines with and without AVX-512 change colors to the same bits."""

from __future__ import annotations

import os
import subprocess
import sys

import llvmlite.binding
import numpy as np
import pytest

from gpubeton._batch import color_formulas
from gpubeton._batch.color_formulas import BRIGHTNESS, CONTRAST, ONE, SATURATION
from tests.cpu.changed_colors import changed, drawn

pytestmark = pytest.mark.campaign


def by_lines(image, steps):
    color_formulas.apply_steps(image[None], steps[None])
    return image


def test_images_equal_those_made_line_by_line():
    for seed in range(120):
        assert np.array_equal(changed(*drawn(seed)), by_lines(*drawn(seed))), seed


@pytest.mark.parametrize("later", [[], [CONTRAST, ONE // 2], [CONTRAST, ONE // 2, BRIGHTNESS, 30000, CONTRAST, 50000]])
def test_steps_waiting_for_a_contrast_are_not_lost_where_vectors_end(later):
    too_large = [SATURATION, 3 * ONE]
    steps = np.array([BRIGHTNESS, 20000, CONTRAST, 45000, *later, *too_large], np.int32)
    image, _ = drawn(1)
    assert np.array_equal(changed(image.copy(), steps), by_lines(image, steps))


@pytest.mark.skipif(
    not llvmlite.binding.get_host_cpu_features().get("avx2", False), reason="the machine code needs a CPU with AVX2"
)
def test_a_machine_of_2013_makes_the_same(tmp_path):
    environment = {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-m", "tests.cpu.changed_colors", str(tmp_path / "images.npz")]
    subprocess.run(command, env=environment, check=True)
    with np.load(tmp_path / "images.npz") as images:
        assert not images["has_tables"]
        for seed in range(120):
            assert np.array_equal(images[f"arr_{seed}"], changed(*drawn(seed))), seed
