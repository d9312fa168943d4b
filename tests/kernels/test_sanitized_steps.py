from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.kernels.host_build import ROOT, build, compiler, needs_compiler

pytestmark = needs_compiler


def sanitizer(name="libasan"):
    """Path of one of the compiler's sanitizers; skips the test where it has none."""
    asked = subprocess.run([compiler(), f"-print-file-name={name}.so"], capture_output=True, text=True, check=True)
    if not os.path.isabs(asked.stdout.strip()):  # noqa: PTH117 - a bare name means that there is none
        pytest.skip(f"{compiler()} has no such sanitizer: install {name}")
    return asked.stdout.strip()


def test_the_kernels_of_steps_and_mixes_touch_no_memory_but_their_own_and_compute_nothing_undefined():
    environment = dict(os.environ, LD_PRELOAD=sanitizer(), ASAN_OPTIONS="detect_leaks=0", PYTHONPATH=str(ROOT))
    library = build(["image_steps", "mix"], sanitize="memory")
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.sanitized_steps", str(library)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
