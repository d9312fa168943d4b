"""Machines without AVX2, which take the portable form of every instruction, decode to the same bits."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_machine_with_no_vector_instructions_but_the_oldest_decodes_the_same(tmp_path):
    command = [sys.executable, "-m", "tests.cpu.made_pictures", str(tmp_path)]
    subprocess.run(command, check=True, timeout=300)
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    ran = subprocess.run(command, env=environment, check=True, timeout=300, capture_output=True, text=True)
    assert ran.stdout == "without AVX2\n"
