"""Runs augment.cu, compiled with the sanitizer of threads, blocks at the same time: what one does not wait for shows.

A program of its own: the sanitizer has to be loaded before Python. `test_phase_scheduler.py` starts it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from gpubeton.batch.color_formulas import BRIGHTNESS, CONTRAST, SATURATION
from tests.kernels.host_build import RANDOM, HostKernels
from tests.kernels.launching import change_colors
from tests.kernels.sanitized_colors import unguarded

STEPS = np.array([BRIGHTNESS, 20_000, CONTRAST, 40_000, SATURATION, 30_000, CONTRAST, 20_000], np.int32)


def run(kernels):
    """Several batches, each with all phases: taps, resampling, two sums, colors."""
    images = np.random.default_rng(0).integers(0, 256, (4, 140, 150, 3), np.uint8)
    steps = np.tile(STEPS, (len(images), 1))
    for seed in range(8):
        how = {"kernels": kernels, "order": RANDOM, "seed": seed}
        change_colors(images, steps, place=unguarded, how=how)


if __name__ == "__main__":
    run(HostKernels(Path(sys.argv[1])))
    print("done")
