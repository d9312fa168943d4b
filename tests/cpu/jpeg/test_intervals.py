"""The restart intervals of a scan: any data get the verdict of a plain loop."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubeton._cpu.jpeg.codes import CUT_SHORT, DAMAGED_SCAN, OK, SEPARATE_SCANS
from tests.cpu.decoder import FLAT, random_blocks
from tests.cpu.making import decode_crop, draw_of, program_of, stored_jpeg
from tests.cpu.plain_jpeg import Component, write

PROGRAM = program_of(8, 8)


def plain_verdict(content, count):
    """The verdict about a scan of `count` restart intervals, byte by byte (E.1.4)."""
    number, i = 0, 0
    while i + 1 < len(content):
        marker = content[i + 1]
        if content[i] != 0xFF or marker in (0, 0xFF):
            i += 2 if content[i : i + 2] == b"\xff\0" else 1
            continue
        i += 2
        if marker == 0xD9:
            return OK if number == count - 1 else DAMAGED_SCAN
        if not 0xD0 <= marker <= 0xD7:
            return SEPARATE_SCANS
        if number == count - 1 or marker != 0xD0 + number % 8:
            return DAMAGED_SCAN
        number += 1
    return CUT_SHORT


runs = st.binary(max_size=70) | st.sampled_from([b"\xff\0", b"\xff\xff", b"\xff", b"\0", b"\xff\xd9", b"\xff\xda\0\2"])
restarts = st.integers(0, 7).map(lambda n: bytes([0xFF, 0xD0 + n]))
anything = st.lists(runs | restarts, max_size=20).map(b"".join)


@st.composite
def sound(draw):
    """Data with the right restart markers, and the number of their intervals."""
    pieces = draw(st.lists(st.binary(max_size=90), min_size=2, max_size=12))
    content = b""
    for number, piece in enumerate(pieces):
        marker = 0xD9 if number == len(pieces) - 1 else 0xD0 + number % 8
        content += piece.replace(b"\xff", b"\xff\0") + b"\xff" * draw(st.integers(1, 3)) + bytes([marker])
    return content + draw(st.binary(max_size=40)), len(pieces)


@given(sound() | st.tuples(anything, st.integers(2, 12)))
@example((b"\xff", 2))
@example((b"", 2))
@example((b"\xff\xd0\xff\xd1\xff\xd2", 2))
@settings(max_examples=400)
def test_any_data_get_the_verdict_of_a_plain_loop(case):
    content, count = case
    components = [Component(1, 1, 1, random_blocks(count, 3, 0.1, 0).reshape(1, count, 64), FLAT)]
    headers = write(components, 8, 8 * count, restart_interval=1)
    headers = headers[: headers.index(b"\xff\xda") + 10]
    image = stored_jpeg(headers + content, 8, 8 * count)
    _, code, _ = decode_crop(image, PROGRAM, draw_of(PROGRAM, (0, 0, 8, 8 * count)))
    expected = plain_verdict(content, count)
    # Data that are whole may still be no codes.
    assert code == expected or (code, expected) == (DAMAGED_SCAN, OK)
