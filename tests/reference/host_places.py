"""What virtual nodes promise, in a few lines, from a whole epoch at once."""

from __future__ import annotations

import numpy as np

from tests.reference.philox import sort_keys

PAGE_STREAM, WINDOW_STREAM, NODE_STREAM = 1, 4, 5


def window_of_nodes(indices, pages, nodes, width, seed, epoch):
    """The order of an epoch: fixed parts of the pages, in each of which pages and then samples are shuffled."""
    ids, pages = np.asarray(indices, np.uint64), np.asarray(pages)
    fixed = np.argsort(sort_keys(0, 0, NODE_STREAM, pages.max() + 1)[pages], kind="stable")
    distinct, page = np.unique(pages, return_inverse=True)
    shuffled = np.argsort(np.argsort(sort_keys(seed, epoch, PAGE_STREAM, len(distinct)), kind="stable"))
    keys = sort_keys(seed, epoch, WINDOW_STREAM, len(ids)) >> np.uint64(64 - 24)
    order, turn, place = np.empty_like(ids), 0, 0
    for node, samples in enumerate(np.array_split(fixed, nodes)):
        part = samples[np.argsort(shuffled[page[samples]], kind="stable")]
        turns = turn + np.unique(shuffled[page[part]], return_inverse=True)[1]
        sort = [
            int(t) * 2**24 + int(key) * width for t, key in zip(turns, keys[place : place + len(part)], strict=True)
        ]
        order[node::nodes] = ids[part[np.argsort(np.array(sort, np.uint64), kind="stable")]]
        turn, place = turn + len(np.unique(turns)), place + len(part)
    return order
