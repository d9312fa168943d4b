"""The quasi-random order, made from arrays of all samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.reference.philox import sort_keys


def quasi_random(
    ids: NDArray[np.uint64],
    pages: NDArray[np.int64],
    batch_size: int,
    seed: int,
    epoch: int,
    rank: tuple[int, int] | None = None,
) -> NDArray[np.uint64]:
    """Shuffle the ids, (N,), of which each has a page, (N,), in groups of pages."""
    turn = page_turns(seed, epoch, pages)
    by_turn = np.argsort(turn, kind="stable")
    first = 0
    if rank is not None:
        number, world = rank
        share = -(-len(ids) // world)
        first = number * share
        by_turn = np.resize(by_turn, share * world)[first : first + share]
    turns, ordinal = np.unique(turn[by_turn], return_inverse=True)
    group = ordinal * -(-len(turns) // (2 * batch_size)) // len(turns)
    keys = sort_keys(seed, epoch, 2, len(by_turn), first) >> np.uint64(24)
    return ids[by_turn[np.lexsort((keys, group))]]


def page_turns(seed: int, epoch: int, pages: NDArray[np.int64]) -> NDArray[np.intp]:
    """Shuffle the pages, (N,), of which each sample has one; give the turn of each sample's page."""
    distinct, page = np.unique(pages, return_inverse=True)
    return np.argsort(np.argsort(sort_keys(seed, epoch, 1, len(distinct)), kind="stable"))[page]
