"""Philox 4x32-10, round by round: in Python's integers, or in arrays of them."""

from __future__ import annotations

import numpy as np

WORD = 0xFFFFFFFF


def philox4x32(counter, key):
    """The four random words of one counter: integers, or arrays of uint64."""
    first, second, third, fourth = counter
    low, high = key
    for _ in range(10):
        product, other = first * 0xD2511F53, third * 0xCD9E8D57
        first, second = (other >> 32) ^ second ^ low, other & WORD
        third, fourth = (product >> 32) ^ fourth ^ high, product & WORD
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return [first, second, third, fourth]


def sort_keys(seed, epoch, stream, count, first=0):
    """Keys to sort by, (count,): from number `first` on, two of each counter."""
    pairs = np.arange(first // 2, -(-(first + count) // 2), dtype=np.uint64)
    epochs, streams, blocks = (np.full_like(pairs, word) for word in (epoch, stream, WORD))
    words = philox4x32([epochs, pairs, streams, blocks], [seed & WORD, (seed >> 32) & WORD])
    keys = np.stack([words[0] | words[1] << 32, words[2] | words[3] << 32], axis=1)
    return keys.reshape(-1)[first % 2 :][:count]
