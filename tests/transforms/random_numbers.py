"""Random numbers for the draws of transforms."""

from __future__ import annotations

import numpy as np


def numbers(count, rows=None):
    """Numbers of 20,000 samples, or of some rows; the same however many are asked for."""
    result = np.random.default_rng(1).random((20_000, 8))[:, :count]
    return result if rows is None else result[rows]
