from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.kernels.host_build import ROOT, build, kernel_names, needs_compiler
from tests.kernels.test_sanitized_steps import sanitizer

pytestmark = needs_compiler

IMAGES = ["canary", "gather", "resample", "taps"]
STEPS = ["image_steps", "mix"]
JPEGS = ["jpeg_across", "jpeg_down", "jpeg_huffman", "jpeg_idct", "jpeg_taps"]


#: Macros for kernels, and the arguments of the program that runs them.
SIGNS = pytest.mark.parametrize(("defines", "arguments"), [((), ()), (("SIGNED_WEIGHTS",), ("signed",))])


def run_sanitized(program, library, arguments=()):
    environment = dict(os.environ, LD_PRELOAD=sanitizer(), ASAN_OPTIONS="detect_leaks=0", PYTHONPATH=str(ROOT))
    return subprocess.run(
        [sys.executable, "-m", f"tests.kernels.{program}", str(library), *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@SIGNS
def test_the_kernels_that_make_images_touch_no_memory_but_their_own_and_compute_nothing_undefined(defines, arguments):
    done = run_sanitized("sanitized_images", build(IMAGES, sanitize="memory", defines=defines), arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


@SIGNS
def test_the_kernels_that_decode_jpegs_touch_no_memory_but_their_own_and_compute_nothing_undefined(defines, arguments):
    done = run_sanitized("sanitized_jpegs", build(JPEGS, sanitize="memory", defines=defines), arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


def test_every_kernel_is_run_with_sanitizers():
    assert kernel_names() == sorted({*IMAGES, *STEPS, *JPEGS})
