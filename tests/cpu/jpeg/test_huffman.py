from __future__ import annotations

import numba
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubeton._cpu.jpeg.entropy import one_symbol
from gpubeton._cpu.jpeg.huffman import (
    END_OF_BLOCK,
    ENDED,
    LOOKUPS,
    NOWHERE,
    PAIR_BITS,
    SKIP_BITS,
    UNDECODED,
    allocate_tables,
    build_tables,
    is_prefix_code,
)
from tests.cpu.plain_jpeg import codes_of, tables_of, usual_tables


@numba.njit(cache=True)
def build(tables, slot, number, is_ac):
    lengths, symbols = tables.source[slot, :16], tables.source[slot, 16:]
    single, limits, offsets = tables.single[slot], tables.limits[slot], tables.offsets[slot]
    build_tables(lengths, symbols, is_ac, single, tables.pair[number], tables.skip[number], limits, offsets)


@numba.njit(cache=True)
def symbol_at(tables, slot, window):
    return one_symbol(window, tables.single[slot].ctypes.data, slot, tables)


def built(lengths, symbols, *, is_ac):
    tables = allocate_tables()
    slot = 5 if is_ac else 1
    tables.source[slot, :16] = lengths
    tables.source[slot, 16 : 16 + len(symbols)] = symbols
    build(tables, slot, 1, is_ac)
    return tables, slot


@st.composite
def codes(draw, *, is_ac):
    """16 code-length counts that leave no code of ones alone (T.81 C.2), and as many symbols."""
    most = 162 if is_ac else 12
    free, lengths = 1, []
    for bits in range(16):
        free *= 2
        left = most - sum(lengths)
        # Mostly few short codes, so that long ones come up.
        count = draw(st.integers(0, max(0, min(free - 1, left, 1 if bits < 6 else 60))))
        free -= count
        lengths.append(count)
    if sum(lengths) == 0:
        lengths[15] = 1
    categories = range(12)
    everything = [16 * run + size for run in range(16) for size in categories] if is_ac else list(categories)
    symbols = draw(st.permutations(everything))[: sum(lengths)]
    return lengths, symbols


class Plain:
    """Decodes symbol by symbol from a string of bits."""

    def __init__(self, lengths, symbols):
        self.symbols = {format(code, f"0{length}b"): s for s, (code, length) in codes_of(lengths, symbols).items()}

    def first(self, bits):
        """Symbol and length of the code at the start, or None if the bits are too few or none begins so."""
        for length in range(1, min(16, len(bits)) + 1):
            if bits[:length] in self.symbols:
                return self.symbols[bits[:length]], length
        return None

    def steps(self, bits):
        """AC symbols while they are whole: (bits used so far, run, value, whether the block ends)."""
        used, results = 0, []
        while (step := self.first(bits[used:])) is not None:
            (run, size), length = divmod(step[0], 16), step[1]
            value_bits = bits[used + length : used + length + size]
            used += length + size
            if size == 0 and run != 15:
                return [*results, (used, 0, None, True)]
            value = None
            if len(value_bits) == size:
                value = int(value_bits or "0", 2)
                value += 1 - (1 << size) if size and value_bits[0] == "0" else 0
            results.append((used, run, value, False))
        return results


def bits_of(number, count):
    return format(number, f"0{count}b")


@given(codes(is_ac=True) | codes(is_ac=False), st.lists(st.integers(0, (1 << 62) - 1), min_size=20, max_size=20))
@settings(max_examples=60)
def test_any_code_is_found_among_short_and_long_ones(code, windows):
    lengths, symbols = code
    is_ac = len(symbols) > 12 or max(symbols) > 11
    (tables, slot), plain = built(lengths, symbols, is_ac=is_ac), Plain(lengths, symbols)
    longest = [int(bits, 2) << (62 - len(bits)) for bits in plain.symbols if len(bits) > 9]
    for window in [*windows, *longest]:
        length, size, run = symbol_at(tables, slot, window << 2 if window < 1 << 61 else (window << 2) - (1 << 64))
        expected = plain.first(bits_of(window, 62))
        if expected is None:
            assert length == 0
        else:
            symbol = expected[0]
            ends = is_ac and symbol % 16 == 0 and symbol != 0xF0
            assert (length, size) == (expected[1], symbol % 16)
            assert run == (END_OF_BLOCK if ends else symbol // 16)


def check_pair(entry, plain, bits):
    """An entry of `pair` holds the first symbol, with any bits after the index, and a second one if it is within."""
    index = bits[:PAIR_BITS]
    symbol, length = plain.first(index) or (0, 0)
    run, size = divmod(symbol, 16)
    if length == 0 or length + size > 56 // LOOKUPS or (size > 0 and length == PAIR_BITS):
        assert entry == UNDECODED << 8
        return
    used, passed, place, second_place = (entry >> shift & 255 for shift in (0, 8, 16, 24))
    if size == 0 and run != 15:
        assert (used, passed, place, second_place) == (length, ENDED, NOWHERE, NOWHERE)
        return
    value = (int(bits, 2) << 64 - len(bits) >> (entry >> 56 & 255)) + (entry >> 32 & 0xFFFF) & 0xFFFF
    assert (place, value) == (run, plain.steps(bits)[0][2] & 0xFFFF)
    whole = [step for step in plain.steps(index) if step[0] <= PAIR_BITS]
    if len(whole) > 1 and whole[1][3]:
        assert (used, passed, second_place) == (whole[1][0], ENDED + run + 1, NOWHERE)
    elif len(whole) > 1 and -128 <= whole[1][2] <= 127:
        both, second_run, second, _ = whole[1]
        assert (used, passed, second_place) == (both, run + second_run + 2, run + 1 + second_run)
        assert entry >> 48 & 0xFF == second & 0xFF
    else:
        assert (used, passed, second_place) == (length + size, run + 1, NOWHERE)


@given(codes(is_ac=True), st.lists(st.integers(0, (1 << 20) - 1), min_size=7, max_size=7))
@settings(max_examples=12)
def test_pairs_and_skips_equal_decoding_symbol_by_symbol(code, later):
    (tables, _), plain = built(*code, is_ac=True), Plain(*code)
    for number in range(1 << PAIR_BITS):
        bits = bits_of(number, PAIR_BITS) + bits_of(later[number % len(later)], 20)
        check_pair(int(tables.pair[1, number]), plain, bits)
    for number in range(0, 1 << SKIP_BITS, 3):
        check_skip(int(tables.skip[1, number]), plain.steps(bits_of(number, SKIP_BITS)))


def check_skip(entry, steps):
    """An entry of `skip` may stop early, but all that it skips must be in the bits."""
    if entry == 0:
        # Longer codes are left to the search.
        assert not steps or steps[0][0] > PAIR_BITS or steps[0][1] + 1 > 63
        return
    used, passed, ended = entry & 63, entry >> 8 & 255, entry >> 16
    k = 0
    for bits, run, _, ends in steps:
        k += 0 if ends else run + 1
        if bits == used:
            assert (passed, ended) == (k, int(ends))
            return
    raise AssertionError(f"no symbol ends after {used} bits")


def test_the_usual_tables_decode_every_symbol():
    for key, (lengths, symbols) in tables_of(usual_tables()).items():
        tables, slot = built(lengths, symbols, is_ac=key >= 16)
        for symbol, (code, length) in codes_of(lengths, symbols).items():
            window = (code << (64 - length)) | 0x1234
            result = symbol_at(tables, slot, window - (1 << 64) if window >> 63 else window)
            assert result[:2] == (length, symbol % 16)


@given(st.lists(st.integers(0, 255), min_size=16, max_size=16) | codes(is_ac=True).map(lambda code: code[0]))
@example([2, *[0] * 15])
@example([0, 3, *[1] * 7, 2, *[0] * 6])
def test_counts_that_overflow_or_use_a_code_of_ones_alone_are_no_prefix_code(lengths):
    fits = all(sum(n * 2 ** (bits - i) for i, n in enumerate(lengths[: bits + 1])) < 2 << bits for bits in range(16))
    assert is_prefix_code.py_func(np.array(lengths, np.int64), sum(lengths)) == fits
    assert not is_prefix_code.py_func(np.array(lengths, np.int64), sum(lengths) + 1)
