"""Other types of CPU: those without AVX2, and aarch64, make the same bits; very old ones are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.campaign

AARCH64 = Path(__file__).resolve().parents[2] / "tools" / "aarch64.sh"


def run(folder, cpu):
    """Make pictures for a type of CPU, or compare with those that are there."""
    environment = {**os.environ, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""} if cpu else None
    command = [sys.executable, "-m", "tests.cpu.made_pictures", str(folder)]
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)


def test_the_portable_form_of_each_instruction_decodes_the_same(tmp_path):
    assert run(tmp_path, None).returncode == 0
    other = run(tmp_path, "haswell")  # without the list of its features, as a container image sets it
    assert other.stdout == "without AVX2\n", other.stderr


def test_a_cpu_without_conversion_to_half_floats_raises_an_error_that_names_it(tmp_path):
    ran = run(tmp_path, "nehalem")
    assert ran.returncode == 1
    assert "NUMBA_CPU_NAME=haswell" in ran.stderr


@pytest.mark.skipif(
    not (AARCH64.parents[1] / "build" / "aarch64" / "complete").exists(), reason="tools/aarch64.sh was not run"
)
@pytest.mark.timeout(3600)  # the emulator compiles
def test_aarch64_makes_the_same(tmp_path):
    assert run(tmp_path, None).returncode == 0
    command = [AARCH64, "-m", "tests.cpu.made_pictures", tmp_path]
    other = subprocess.run(command, check=False, capture_output=True, text=True)
    assert other.stdout == "without AVX2\n", other.stderr
