"""The window order in a few lines, of a whole epoch at once."""

from __future__ import annotations

import numpy as np

from tests.reference.philox import sort_keys
from tests.reference.quasi_random_order import page_turns

WINDOW_STREAM = 4


def window(indices, pages, streams, width, seed, epoch):
    """Shuffle the ids, (N,), whose pages are (N,): sort by turn, cut into streams, sort each by its keys."""
    ids, pages = np.asarray(indices, np.uint64), np.asarray(pages)
    turn = page_turns(seed, epoch, pages)
    by_turn = np.argsort(turn, kind="stable")
    keys = (sort_keys(seed, epoch, WINDOW_STREAM, len(ids)) >> np.uint64(64 - 24)) * np.uint64(width)
    keys += turn[by_turn].astype(np.uint64) << np.uint64(24)
    order = np.empty_like(ids)
    for number, (part, part_keys) in enumerate(
        zip(np.array_split(by_turn, streams), np.array_split(keys, streams), strict=True)
    ):
        order[number::streams] = ids[part[np.argsort(part_keys, kind="stable")]]
    return order
