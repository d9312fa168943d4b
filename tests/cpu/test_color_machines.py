"""Machines with and without AVX-512 change colors to the same bits."""

from __future__ import annotations

import os
import subprocess
import sys

import llvmlite.binding
import numba
import numpy as np
import pytest

from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.step_rows import BRIGHTNESS, CONTRAST, SATURATION
from gpubeton._compile.simd import has_feature
from tests.cpu.changed_colors import changed, changed_by_lines, drawn


def test_images_equal_those_made_line_by_line():
    for seed in range(120):
        assert np.array_equal(changed(*drawn(seed)), changed_by_lines(*drawn(seed))), seed


@pytest.mark.parametrize("later", [[], [CONTRAST, ONE // 2], [CONTRAST, ONE // 2, BRIGHTNESS, 30000, CONTRAST, 50000]])
def test_steps_waiting_for_a_contrast_are_not_lost_where_vectors_end(later):
    too_large = [SATURATION, 3 * ONE]
    steps = [BRIGHTNESS, 20000, CONTRAST, 45000, *later, *too_large]
    image, _ = drawn(1)
    assert np.array_equal(changed(image, steps), changed_by_lines(image, steps))


@pytest.mark.campaign
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


@pytest.mark.parametrize(
    ("cpu", "chosen", "uses_avx", "host", "has_tables"),
    [
        ("generic", None, 1, "avx512vbmi", False),
        ("generic", "+sse4.2,+avx2", 1, "avx512vbmi", False),
        ("generic", "+avx512f,+avx512vbmi,+avx512bw", 1, "avx2", True),
        ("generic", "+avx512bw,-avx512vbmi,+avx512vbmi2", 1, "avx512vbmi", False),
        (None, None, 1, "avx2", False),
        (None, None, 1, "avx512vbmi", True),
        (None, None, 0, "avx512vbmi", False),
    ],
)
def test_only_instructions_of_the_machine_that_numba_compiles_for_are_used(
    monkeypatch, cpu, chosen, uses_avx, host, has_tables
):
    """``NUMBA_ENABLE_AVX=0``, too: LLVM ends the process if it is asked for an instruction that it may not use."""
    monkeypatch.setattr(numba.config, "CPU_NAME", cpu)
    monkeypatch.setattr(numba.config, "CPU_FEATURES", chosen)
    monkeypatch.setattr(numba.config, "ENABLE_AVX", uses_avx)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {host: True})
    assert has_feature("avx512vbmi") == has_tables
