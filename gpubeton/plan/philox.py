"""Philox 4x32-10: random numbers as a pure function of where they are used.

After Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC'11). A counter of four words
and a key of two give four random words; there is no state to carry, so the numbers of one sample do not depend on the
batch, the worker or the rank that needs them.
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
_COUNTERS_PER_CHUNK = 1 << 13
"""Counters worked on at a time, so that their words stay in the cache."""


def philox4x32(counter: NDArray[np.uint32], key: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Turn counters into random words.

    Parameters
    ----------
    counter : ndarray of uint32, shape (N, 4)
        A counter per row; equal counters give equal words.
    key : ndarray of uint32, shape (2,)
        The key of all of them.

    Returns
    -------
    ndarray of uint32, shape (N, 4)
        Four random words per row.

    Examples
    --------
    >>> [hex(word) for word in philox4x32(np.zeros((1, 4), "u4"), np.zeros(2, "u4"))[0]]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    words = np.array(counter.T, np.uint32, order="C")
    _rounds(words, _round_keys(int(key[0]), int(key[1])))
    return np.ascontiguousarray(words.T)


def uniform(seed: int, epoch: int, samples: NDArray[np.uint64], operation: int, count: int) -> NDArray[np.float64]:
    """Random numbers of samples, for one operation in one epoch.

    The key is the seed, low word first; the counter of a block of four numbers is (epoch, sample, operation, block).

    Parameters
    ----------
    seed : int
        The loader's seed; its low 64 bits are used.
    epoch : int
        Number of the epoch; its low 32 bits are used.
    samples : ndarray of uint64, shape (N,)
        Sample ids, below 2**32.
    operation : int
        What the numbers are for: field number << 16 | ordinal among the random operations of the field's pipeline.
    count : int
        Numbers per sample; the first of them do not depend on how many are asked for.

    Returns
    -------
    ndarray of float64, shape (N, count)
        Multiples of 2**-32, at least 0 and less than 1.

    Examples
    --------
    >>> twice = [uniform(7, 0, np.array([5, 6], "u8"), 0, count) for count in (2, 8)]
    >>> np.array_equal(twice[0], twice[1][:, :2])
    True
    """
    return uniforms(seed, epoch, samples, [(operation, count)])[0]


def uniforms(
    seed: int, epoch: int, samples: NDArray[np.uint64], wanted: Sequence[tuple[int, int]]
) -> list[NDArray[np.float64]]:
    """Random numbers of samples for several operations: `uniform` of each, at little more than the cost of one.

    Parameters
    ----------
    seed, epoch : int
        As for `uniform`.
    samples : ndarray of uint64, shape (N,)
        Sample ids, below 2**32.
    wanted : sequence of tuple of int
        Each operation and how many numbers per sample it wants.

    Returns
    -------
    list of ndarray of float64, each of shape (N, count)
        Multiples of 2**-32, at least 0 and less than 1.

    Examples
    --------
    >>> [numbers.shape for numbers in uniforms(7, 0, np.arange(5, dtype="u8"), [(0, 16), (1, 2)])]
    [(5, 16), (5, 2)]
    """
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
    """Random numbers to sort by: the same on every machine and with every version of numpy.

    Parameters
    ----------
    seed : int
        The loader's seed; its low 64 bits are used.
    epoch : int
        Number of the epoch; its low 32 bits are used.
    stream : int
        Tells the keys of one purpose from those of another, below 2**32.
    count : int
        How many.

    Returns
    -------
    ndarray of uint64, shape (count,)
        Random 64-bit numbers.

    Examples
    --------
    >>> sort_keys(7, 0, 0, 3).shape
    (3,)
    """
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
    """Random numbers for some rows of a batch; with its first four arguments bound it is a `Uniform`."""
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
    """Operation and block of every counter that one sample needs, shape (2, blocks of all operations, 1)."""
    pairs = [(operation, block) for operation, count in wanted for block in range(_blocks(count))]
    return np.array(pairs, np.uint32).reshape(len(pairs), 2).T[:, :, None]


@lru_cache(maxsize=64)
def _round_keys(low: int, high: int) -> NDArray[np.uint32]:
    """Keys of the ten rounds, shape (10, 2, 1), the two of every even round swapped: see `_rounds`."""
    number = np.arange(_ROUNDS, dtype=np.uint64)[:, None]
    keys = (np.array([low, high], np.uint64) + number * np.array(_KEY_STEPS, np.uint64)) & np.uint64(_WORD)
    keys[::2] = keys[::2, ::-1]
    return keys.astype(np.uint32)[:, :, None]


def _rounds(words: NDArray[np.uint32], round_keys: NDArray[np.uint32]) -> None:
    """Turn counters, shape (4, N), into random words, in place."""
    for start in range(0, words.shape[1], _COUNTERS_PER_CHUNK):
        _chunk_rounds(words[:, start : start + _COUNTERS_PER_CHUNK], round_keys)


def _chunk_rounds(words: NDArray[np.uint32], round_keys: NDArray[np.uint32]) -> None:
    """Ten rounds, three numpy calls each: for a batch the time goes into calls, not into arithmetic.

    The even words (0 and 2) are multiplied; the high halves of the products, mixed with the odd words (1 and 3) and the
    key, are the next even words, the low halves the next odd ones. A round also swaps the two of each pair. Instead of
    moving them, the even words stay where they are and are read as (2, 0) after every other round.
    """
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
