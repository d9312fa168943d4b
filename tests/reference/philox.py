"""Philox 4x32-10 in Python's integers, round by round."""

from __future__ import annotations

WORD = 0xFFFFFFFF


def philox4x32(counter, key):
    """The four random words of one counter."""
    first, second, third, fourth = counter
    low, high = key
    for _ in range(10):
        product, other = first * 0xD2511F53, third * 0xCD9E8D57
        first, second = (other >> 32) ^ second ^ low, other & WORD
        third, fourth = (product >> 32) ^ fourth ^ high, product & WORD
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return [first, second, third, fourth]
