"""Other types of CPU: those without AVX2 decode to the same bits, and very old ones are refused."""

from __future__ import annotations

import os
import subprocess
import sys


def run(folder, cpu):
    """Make pictures for a type of CPU, or compare with those that are there."""
    environment = {**os.environ, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""} if cpu else None
    command = [sys.executable, "-m", "tests.cpu.made_pictures", str(folder)]
    return subprocess.run(command, env=environment, check=False, timeout=300, capture_output=True, text=True)


def test_the_portable_form_of_each_instruction_decodes_the_same(tmp_path):
    assert run(tmp_path, None).returncode == 0
    other = run(tmp_path, "haswell")  # without the list of its features, as a container image sets it
    assert other.stdout == "without AVX2\n", other.stderr


def test_a_cpu_that_cannot_round_to_half_floats_is_an_error_that_says_so(tmp_path):
    ran = run(tmp_path, "nehalem")
    assert ran.returncode == 1
    assert "NUMBA_CPU_NAME=haswell" in ran.stderr
