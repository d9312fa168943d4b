"""Philox 4x32-10: counter-based random numbers, which depend on seed, epoch, sample and operation only.

After Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC'11).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._compile.compile import compiled
from gpubeton.pipeline.draw_ids import repeats_of, sample_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Operation

_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW_WORD, _WORD_BITS = np.uint64(0xFFFFFFFF), np.uint64(32)
_SCALE = 2.0**-32

_WORD = 0xFFFFFFFF
_NUMBERS_PER_BLOCK = 4
_NO_FIELD = 0xFFFF
"""Field number of random numbers that operations of several fields share."""


@compiled
def fill_uniform(
    low: int,  # word of the key
    high: int,
    epoch: int,
    samples: NDArray[np.uint64],  # (N,) uint64
    counters: NDArray[np.uint32],  # (B, 2) uint32: operation and block of each block of four numbers
    numbers: NDArray[np.float64],  # (4 * B, N) float64, C-contiguous, written
) -> None:
    """Compute Philox 4x32-10 for each block and sample: multiples of 2**-32, at least 0 and less than 1."""
    for block in range(len(counters)):
        rng_stream, number = np.uint64(counters[block, 0]), np.uint64(counters[block, 1])
        rows = numbers[4 * block : 4 * block + 4]
        # LLVM makes SIMD instructions of this loop: whole vectors of samples.
        for n in range(len(samples)):
            first, second, third, fourth = np.uint64(epoch), samples[n] & _LOW_WORD, rng_stream, number
            key, other_key = np.uint64(low), np.uint64(high)
            for _ in range(_ROUNDS):
                product, other = first * _MULTIPLIERS[0], third * _MULTIPLIERS[1]
                first, second = (other >> _WORD_BITS) ^ second ^ key, other & _LOW_WORD
                third, fourth = (product >> _WORD_BITS) ^ fourth ^ other_key, product & _LOW_WORD
                key, other_key = (key + _KEY_STEPS[0]) & _LOW_WORD, (other_key + _KEY_STEPS[1]) & _LOW_WORD
            rows[0, n], rows[1, n] = np.int64(first) * _SCALE, np.int64(second) * _SCALE
            rows[2, n], rows[3, n] = np.int64(third) * _SCALE, np.int64(fourth) * _SCALE


def uniform(seed: int, epoch: int, samples: NDArray[np.uint64], operation: int, count: int) -> NDArray[np.float64]:
    """Draw random numbers, (N, count), at least 0 and less than 1: multiples of 2**-32."""
    # The key is the seed, low word first; the counter of a block of four numbers is (epoch, sample, operation, block),
    # and `operation` is a number of `RngStreams`. More numbers do not change the first ones.
    # The high word of the seed counts how often the sample came before, if `samples` are draw ids.
    return uniforms(seed, epoch, samples, [(operation, count)])[0]


def uniforms(
    seed: int, epoch: int, samples: NDArray[np.uint64], requests: Sequence[tuple[int, int]]
) -> list[NDArray[np.float64]]:
    """Call `uniform` for several pairs of operation and count, at little more than the cost of one."""
    columns = _numbers(seed, epoch, np.array(samples, np.uint64), _counters(tuple(requests))).T
    numbers, start = [], 0
    for _, count in requests:
        numbers.append(columns[:, start : start + count])
        start += _blocks(count) * _NUMBERS_PER_BLOCK
    return numbers


def sort_keys(seed: int, epoch: int, rng_stream: int, count: int, first: int = 0) -> NDArray[np.uint64]:
    """Draw random numbers, (count,), to sort by: the same on every machine and with every version of numpy."""
    # They are those from number `first` on of an endless list.
    pairs = np.arange(first // 2, -(-(first + count) // 2), dtype=np.uint64)
    # A block that no sample's numbers reach.
    numbers = _numbers(seed, epoch, pairs, np.array([[rng_stream, _WORD]], np.uint32))
    words = np.ascontiguousarray((numbers * 2.0**32).astype(np.uint32).T)
    return words.view(np.uint64).reshape(-1)[first % 2 :][:count]


class BatchNumbers:
    """The random numbers of one operation for the samples of a batch; a `Uniform`."""

    def __init__(
        self,
        seed: int,
        epoch: int,
        samples: NDArray[np.uint64],  # (N,) sample ids
        rng_stream: int,
        first: NDArray[np.float64] | None = None,  # (N, count) those that `uniforms` has drawn
    ) -> None:
        self._seed, self._epoch, self._samples, self._stream, self._first = seed, epoch, samples, rng_stream, first

    def __call__(self, count: int, rows: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        first = self._first
        if first is not None and count <= first.shape[1]:
            return first[:, :count] if rows is None else first[rows, :count]
        samples = self._samples if rows is None else self._samples[rows]
        return uniform(self._seed, self._epoch, samples, self._stream, count)


class RngStreams:
    """Numbers the random operations of one pipeline, so that each has a stream of random numbers."""

    def __init__(self, field_number: int, ordinal: int = 0) -> None:
        self._field_number = field_number
        self._ordinal = ordinal  # random operations before the next one; the decoder counts

    def next(self, operation: Operation) -> int | None:
        """Give the stream's number of the next operation of the pipeline; None if it draws nothing."""
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
def _counters(requests: tuple[tuple[int, int], ...]) -> NDArray[np.uint32]:
    """List operation and block of every block of four numbers of one sample, (B, 2)."""
    pairs = [(operation, block) for operation, count in requests for block in range(_blocks(count))]
    return np.array(pairs, np.uint32).reshape(len(pairs), 2)


def _numbers(
    seed: int,
    epoch: int,
    samples: NDArray[np.uint64],  # (N,)
    counters: NDArray[np.uint32],  # (B, 2)
) -> NDArray[np.float64]:  # (4 * B, N)
    numbers = np.empty((len(counters) * _NUMBERS_PER_BLOCK, len(samples)))
    key, repeats = int(seed), repeats_of(samples)
    if repeats.any():
        for repeat in np.unique(repeats).tolist():
            rows = repeats == repeat
            numbers[:, rows] = _numbers(key + (repeat << 32), epoch, sample_ids(samples[rows]), counters)
        return numbers
    fill_uniform(key & _WORD, (key >> 32) & _WORD, int(epoch) & _WORD, samples, counters, numbers)
    return numbers
