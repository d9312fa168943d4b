"""Philox 4x32-10: counter-based random numbers, which depend on seed, epoch, sample and operation only.

After Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC'11).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Operation

_ROUNDS = 10
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_NUMBERS_PER_BLOCK = 4
_SCALE = 2.0**-32
_NO_FIELD = 0xFFFF
"""Field number of random numbers that operations of several fields share."""
_COUNTERS_PER_CHUNK = 1 << 13  # computed at a time, so that their words stay in the cache


def philox4x32(counter: NDArray[np.uint32], key: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Compute four random words from each row of counters, (N, 4), and the key, (2,)."""
    words = np.array(counter.T, np.uint32, order="C")
    _rounds(words, _round_keys(int(key[0]), int(key[1])))
    return np.ascontiguousarray(words.T)


def uniform(seed: int, epoch: int, samples: NDArray[np.uint64], operation: int, count: int) -> NDArray[np.float64]:
    """Draw random numbers, (N, count), at least 0 and less than 1: multiples of 2**-32."""
    # The key is the seed, low word first; the counter of a block of four numbers is (epoch, sample, operation, block),
    # and `operation` is the stream number of `StreamNumbers`. More numbers do not change the first ones.
    return uniforms(seed, epoch, samples, [(operation, count)])[0]


def uniforms(
    seed: int, epoch: int, samples: NDArray[np.uint64], wanted: Sequence[tuple[int, int]]
) -> list[NDArray[np.float64]]:
    """Call `uniform` for several pairs of operation and count, at little more than the cost of one."""
    operation_words = _operation_words(tuple(wanted))
    num_blocks, num_samples = operation_words.shape[1], len(samples)
    words = np.empty((4, num_blocks, num_samples), np.uint32)
    words[0] = epoch & _WORD
    words[1] = samples
    words[2:] = operation_words
    _rounds(words.reshape(4, num_blocks * num_samples), _round_keys(seed & _WORD, (seed >> 32) & _WORD))
    numbers = np.empty((num_blocks, _NUMBERS_PER_BLOCK, num_samples))
    np.multiply(words.transpose(1, 0, 2), _SCALE, out=numbers)
    columns = numbers.reshape(num_blocks * _NUMBERS_PER_BLOCK, num_samples).T
    found, start = [], 0
    for _, count in wanted:
        found.append(columns[:, start : start + count])
        start += _blocks(count) * _NUMBERS_PER_BLOCK
    return found


def sort_keys(seed: int, epoch: int, stream: int, count: int) -> NDArray[np.uint64]:
    """Draw random numbers, (count,), to sort by: the same on every machine and with every version of numpy."""
    words = np.empty((4, -(-count // 2)), np.uint32)
    words[0] = epoch & _WORD
    words[1] = np.arange(words.shape[1], dtype=np.uint32)
    words[2] = stream
    words[3] = _WORD  # a block that no sample's numbers reach
    _rounds(words, _round_keys(seed & _WORD, (seed >> 32) & _WORD))
    return np.ascontiguousarray(words.T).view(np.uint64).reshape(-1)[:count]


def uniform_of_rows(
    seed: int,
    epoch: int,
    samples: NDArray[np.uint64],  # (N,) sample ids
    stream: int,
    count: int,
    rows: NDArray[np.intp] | None = None,  # (R,)
) -> NDArray[np.float64]:
    """Draw random numbers for some rows of a batch; with its first four arguments bound it is a `Uniform`."""
    return uniform(seed, epoch, samples if rows is None else samples[rows], stream, count)


class StreamNumbers:
    """Numbers the random operations of one pipeline, so that each has a stream of random numbers."""

    def __init__(self, field_number: int, ordinal: int = 0) -> None:
        self._field_number = field_number
        self._ordinal = ordinal  # random operations before the next one; the decoder counts

    def next(self, operation: Operation) -> int | None:
        """Give the stream number of the next operation of the pipeline; None if it draws nothing."""
        if not getattr(operation, "is_random", False):
            return None
        shared: int | None = getattr(operation, "shared_numbers", None)
        if shared is not None:  # e.g. mixup draws the same for images and labels
            return _NO_FIELD << 16 | shared
        self._ordinal += 1
        return self._field_number << 16 | (self._ordinal - 1)


def _blocks(count: int) -> int:
    return -(-count // _NUMBERS_PER_BLOCK)


@lru_cache(maxsize=64)
def _operation_words(wanted: tuple[tuple[int, int], ...]) -> NDArray[np.uint32]:
    """List operation and block of every counter of one sample, (2, blocks of all operations, 1)."""
    pairs = [(operation, block) for operation, count in wanted for block in range(_blocks(count))]
    return np.array(pairs, np.uint32).reshape(len(pairs), 2).T[:, :, None]


@lru_cache(maxsize=64)
def _round_keys(low: int, high: int) -> NDArray[np.uint32]:
    """Compute the keys of the ten rounds, (10, 2, 1), the two of every even round swapped: see `_chunk_rounds`."""
    number = np.arange(_ROUNDS, dtype=np.uint64)[:, None]
    keys = (np.array([low, high], np.uint64) + number * np.array(_KEY_STEPS, np.uint64)) & np.uint64(_WORD)
    keys[::2] = keys[::2, ::-1]
    return keys.astype(np.uint32)[:, :, None]


def _rounds(words: NDArray[np.uint32], round_keys: NDArray[np.uint32]) -> None:
    """Replace counters, (4, N), by random words."""
    for start in range(0, words.shape[1], _COUNTERS_PER_CHUNK):
        _chunk_rounds(words[:, start : start + _COUNTERS_PER_CHUNK], round_keys)


def _chunk_rounds(words: NDArray[np.uint32], round_keys: NDArray[np.uint32]) -> None:
    """Compute ten rounds of three numpy calls each: for a batch the calls take the time, not the arithmetic."""
    # The even words (0 and 2) are multiplied; the high halves of the products, mixed with the odd words (1 and 3) and
    # the key, are the next even words, the low halves the next odd ones. A round also swaps the two of each pair.
    # Instead of being moved, the even words are read as (2, 0) after every other round.
    even, odd_swapped = words[::2], words[3::-2]
    mixed = np.empty_like(even)
    products = [np.empty(even.shape, "<u8") for _ in range(2)]
    halves = [product.view("<u4").reshape(*even.shape, 2) for product in products]
    high, low_swapped = [half[..., 1] for half in halves], [half[::-1, :, 0] for half in halves]
    multipliers = (_MULTIPLIERS, _MULTIPLIERS[::-1])
    for number, round_key in enumerate(round_keys):
        now = number % 2
        np.multiply(even, multipliers[now], out=products[now])
        np.bitwise_xor(high[now], odd_swapped, out=mixed)
        np.bitwise_xor(mixed, round_key, out=mixed)
        even, odd_swapped = mixed, low_swapped[now]
    words[::2], words[3::-2] = even, odd_swapped
