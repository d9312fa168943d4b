"""Batch: what the engine hands on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

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
    arrival : callable or None
        To be called in the thread that receives the batch: lets the stream on which torch works there wait for the
        GPU. None if nothing was made on one.
    """

    number: int
    samples: NDArray[np.uint64]
    outputs: tuple[Any, ...] | None
    bad: tuple[BadSample, ...]
    arrival: Callable[[], None] | None = None
