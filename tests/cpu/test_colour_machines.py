"""Machines with and without AVX-512 change colours to the same bits."""

from __future__ import annotations

import os
import subprocess
import sys

import llvmlite.binding
import numpy as np
import pytest

from gpubeton.transforms import colour_lines
from tests.cpu.changed_colours import changed, drawn


def test_images_are_what_lines_make_of_them():
    for seed in range(120):
        image, steps = drawn(seed)
        colour_lines.apply_steps(image[None], steps[None])
        assert np.array_equal(changed(seed), image), seed


@pytest.mark.skipif(
    not llvmlite.binding.get_host_cpu_features().get("avx2", False), reason="the machine code needs a CPU with AVX2"
)
def test_a_machine_of_2013_makes_the_same(tmp_path):
    environment = {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-m", "tests.cpu.changed_colours", str(tmp_path / "images.npz")]
    subprocess.run(command, env=environment, check=True, timeout=300)
    with np.load(tmp_path / "images.npz") as images:
        assert not images["has_tables"]
        for seed in range(120):
            assert np.array_equal(images[f"arr_{seed}"], changed(seed)), seed
