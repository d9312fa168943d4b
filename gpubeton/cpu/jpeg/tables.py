"""A worker's quantisation and Huffman tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton.cpu.jpeg.huffman import PAIR_BITS, SINGLE_BITS, SKIP_BITS

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array


class Tables(NamedTuple):
    """Quantisation and Huffman tables; slots 0..3 are DC, 4..7 AC.

    Those of the last image stay: most images of a data set carry the same ones, and building them takes longer than
    comparing.
    """

    multipliers: Array  # int16 (4, 64), row-major
    source: Array  # uint8 (8, 272): 16 code-length counts and 256 symbols, as the file has them
    built: Array  # uint8 (8,): whether `source` is what the look-ups were built from
    known: Array  # uint8 (12,): Huffman slots and quantisation tables that this image defines
    identifiers: Array  # int64 (3,)
    single: Array
    pair: Array
    skip: Array
    limits: Array
    offsets: Array


def allocate_tables() -> Tables:
    """Allocate tables that no image has filled yet."""
    return Tables(
        multipliers=np.zeros((4, 64), np.int16),
        source=np.zeros((8, 272), np.uint8),
        built=np.zeros(8, np.uint8),
        known=np.zeros(12, np.uint8),
        identifiers=np.zeros(3, np.int64),
        single=np.zeros((8, 1 << SINGLE_BITS), np.uint32),
        pair=np.zeros((4, 1 << PAIR_BITS), np.int64),
        skip=np.zeros((4, 1 << SKIP_BITS), np.uint32),
        limits=np.zeros((8, 18), np.int64),
        offsets=np.zeros((8, 18), np.int64),
    )
