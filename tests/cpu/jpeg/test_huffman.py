"""Huffman tables: images of any code are decoded, and counts that are no prefix code are refused."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubeton._cpu.jpeg.codes import DAMAGED_TABLE, OK
from tests.cpu.decoder import gray_jpeg, random_blocks
from tests.cpu.making import decode_crop, draw_of, joined, program_of, segments, stored_jpeg, whole
from tests.cpu.pictures import decoded

DC_SYMBOLS = list(range(12))
AC_SYMBOLS = [0, 0xF0, *(16 * run + size for run in range(16) for size in range(1, 11))]


@st.composite
def tables(draw, key, symbols):
    """The content of a DHT segment: a drawn code of all symbols, which leaves no code of ones alone (T.81 C.2)."""
    free, left, lengths = 1, len(symbols), []
    for bits in range(16):
        free *= 2
        # Mostly few short codes, so that long ones come up; room for the others is left.
        most = free - 1 - -(-left // (1 << (15 - bits)))
        count = left if bits == 15 else draw(st.integers(0, max(0, min(most, left, 1 if bits < 6 else 60))))
        free, left = free - count, left - count
        lengths.append(count)
    return bytes([key, *lengths, *draw(st.permutations(symbols))])


# Of blocks that are full of large coefficients, samples may be beyond +-8000: there 32 bits overflow in one decoder,
# and not in the other.
@given(tables(0x00, DC_SYMBOLS), tables(0x10, AC_SYMBOLS), st.floats(0.02, 0.5), st.integers(0, 10))
@settings(max_examples=40)
def test_images_of_any_code_are_decoded(dc, ac, share, amplitude_bits):
    blocks = random_blocks(64, (1 << amplitude_bits) - 1, share, amplitude_bits)
    blocks[:, 0] = random_blocks(64, 1023, 1, amplitude_bits)[:, 0]
    data = gray_jpeg(blocks, dht=dc + ac)
    image, expected = stored_jpeg(data), decoded(gray_jpeg(blocks))
    # The crops pass over the MCUs above and beside them.
    for box in (whole(image), (40, 40, 24, 24), (20, 0, 8, 64)):
        top, left, height, width = box
        program = program_of(height, width)
        pixels, code, _ = decode_crop(image, program, draw_of(program, box))
        assert code == OK
        assert np.array_equal(pixels, expected[top : top + height, left : left + width])


SMALL = gray_jpeg(random_blocks(4, 3, 0.1, 0))


@given(
    st.lists(st.integers(0, 255), min_size=16, max_size=16)
    | tables(0x10, AC_SYMBOLS).map(lambda content: list(content[1:17]))
)
@example([2, *[0] * 15])
@example([0, 3, *[1] * 7, 2, *[0] * 6])
def test_counts_that_overflow_or_use_a_code_of_ones_alone_are_refused(lengths):
    fits = all(sum(n * 2 ** (bits - i) for i, n in enumerate(lengths[: bits + 1])) < 2 << bits for bits in range(16))
    table = bytes([0x10, *lengths]) + bytes(sum(lengths))
    parts = [(m, c[: c.index(b"\x10", 17)] + table if m == 0xC4 else c) for m, c in segments(SMALL)]
    program = program_of(16, 16)
    _, code, _ = decode_crop(stored_jpeg(joined(parts), 16, 16), program, draw_of(program, (0, 0, 16, 16)))
    assert (code == DAMAGED_TABLE) == (not fits or sum(lengths) > 256)
