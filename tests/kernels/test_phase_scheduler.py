"""Blocks of augment.cu wait for those that make what they read: held to by the compiler's sanitizer of threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpubeton.gpu.launch import blocks_of_image
from tests.kernels.host_build import ROOT, build, needs_compiler
from tests.kernels.test_sanitized_colors import sanitizer

pytestmark = [needs_compiler, pytest.mark.timeout(300)]


def run_sanitized(*macros):
    library = build(["augment"], sanitize="threads", defined=macros)
    options = "halt_on_error=1 exitcode=66 report_signal_unsafe=0"
    environment = dict(os.environ, LD_PRELOAD=sanitizer("libtsan"), TSAN_OPTIONS=options, PYTHONPATH=str(ROOT))
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.sanitized_phases", str(library)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel lays memory out as the sanitizer of threads cannot take it")
    return done


def test_blocks_read_nothing_before_it_is_there():
    done = run_sanitized()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


def test_if_they_did_not_wait_it_would_show():
    done = run_sanitized("GPUBETON_NEVER_WAIT")
    assert done.returncode == 66
    assert "data race" in done.stderr


def test_a_batch_is_made_with_as_many_blocks_as_its_phases_have():
    # Taps of both axes, bands of 8 rows; 16384 pixels of each sum, 8192 pixels of colors.
    assert blocks_of_image(224, 224, None) == 2 * 2 + 28
    assert blocks_of_image(224, 224, 2) == 2 * 2 + 28 + 2 * 4 + 7
    assert blocks_of_image(1, 129, 0) == 2 * 2 + 1 + 1
