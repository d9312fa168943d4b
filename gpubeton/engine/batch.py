"""Batch: what the engine hands on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.engine.bad_images import BadSample


@dataclass(frozen=True, eq=False)
class Batch:
    """A finished batch.

    Parameters
    ----------
    number : int
        Which batch of the epoch, from 0.
    samples : ndarray of uint64, shape (N,)
        Sample ids of its rows.
    outputs : tuple of ndarray or torch.Tensor, or None
        Its outputs, which belong to whoever has the batch. None if no sample is left of it.
    bad : tuple of BadSample
        The samples that were left out or replaced.
    """

    number: int
    samples: NDArray[np.uint64]
    outputs: tuple[Any, ...] | None
    bad: tuple[BadSample, ...]
