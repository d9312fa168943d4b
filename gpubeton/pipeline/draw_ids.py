"""Numbers that draws are made for: a sample that comes again in an epoch gets other draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A draw id is the sample id, and how often the sample came before in the epoch in the upper bits.
_BITS = np.uint64(40)
_MOST_REPEATS = np.uint64((1 << 24) - 1)


def draw_ids(samples: NDArray[np.uint64], repeats: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Number samples, (N,), that come in an epoch for the first time (0) or again."""
    return samples | (repeats.astype(np.uint64) & _MOST_REPEATS) << _BITS


def sample_ids(draw_ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Give the sample ids, (N,)."""
    return draw_ids & np.uint64((1 << 40) - 1)


def repeats_of(draw_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Give how often each sample came before in the epoch, (N,)."""
    return (draw_ids >> _BITS).astype(np.int64)
