from __future__ import annotations

import numpy as np
import pytest

from gpubeton._cpu.jpeg.codes import (
    CUT_SHORT,
    DAMAGED_HEADER,
    DAMAGED_SCAN,
    DAMAGED_TABLE,
    NOT_BASELINE,
    NOT_YCBCR,
    ODD_PRECISION,
    ODD_SAMPLING,
    OK,
    SEPARATE_SCANS,
)
from tests.cpu.making import draw_of, joined, make_alone, program_of, segments, stored_jpeg, whole
from tests.cpu.pictures import decoded, jpeg, photo, pillow_jpeg, planes
from tests.cpu.plain_jpeg import JFIF, components_of, quantization_of, tables_of, write

HEIGHT, WIDTH = 27, 35
FILE = jpeg(photo(HEIGHT, WIDTH), 85)
PROGRAM = program_of(HEIGHT, WIDTH)
ADOBE = b"Adobe\0\x64\0\0\0\0"
EXIF = b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0"


def alone(data, size=(HEIGHT, WIDTH)):
    image = stored_jpeg(data, *size)
    out, codes = make_alone(PROGRAM, [image], [draw_of(PROGRAM, whole(image))])
    return out[0], int(codes[0])


def changed(marker, change, data=FILE):
    """The file with the content of all segments of a kind changed."""
    return joined([(m, change(content) if m == marker else content) for m, content in segments(data)])


def replaced(content, position, *values):
    return content[:position] + bytes(values) + content[position + len(values) :]


def with_segments(*new, data=FILE):
    """The file with segments put in right after its start."""
    parts = segments(data)
    return joined([parts[0], *new, *parts[1:]])


def split_tables():
    """Each Huffman table in a separate segment."""
    parts = []
    for marker, content in segments(FILE):
        if marker == 0xC4:
            for key, (lengths, symbols) in tables_of(content).items():
                parts.append((marker, bytes([key, *lengths, *symbols])))
        else:
            parts.append((marker, content))
    return joined(parts)


def joined_tables():
    """All tables of a kind in one segment."""
    parts = segments(FILE)
    kinds = {kind: b"".join(content for marker, content in parts if marker == kind) for kind in (0xC4, 0xDB)}
    rest = [part for part in parts if part[0] not in kinds]
    scan = next(i for i, part in enumerate(rest) if part[0] == 0xDA)
    return joined([*rest[:scan], *kinds.items(), *rest[scan:]])


def with_fill_bytes():
    """0xFF before every marker but the first, three of them."""
    return b"\xff\xd8" + b"".join(b"\xff\xff\xff" + joined([part]) for part in segments(FILE)[1:])


SOUND = {
    "exif": with_segments((0xE1, EXIF)),
    "a comment": with_segments((0xFE, b"\xff\xd9 not the end \xff\xda")),
    "an empty segment": with_segments((0xE5, b"")),
    "all other segments": with_segments(*((marker, b"x" * marker) for marker in range(0xE1, 0xEE))),
    "the largest segment": with_segments((0xE2, b"\xff" * 65533)),
    "fill bytes": with_fill_bytes(),
    "bytes after the end": FILE + b"\xff\xd8\xff\xc0trailing",
    "tables apart": split_tables(),
    "tables together": joined_tables(),
    "an extended frame": FILE.replace(b"\xff\xc0", b"\xff\xc1"),
    "a restart interval of none": with_segments((0xDD, b"\0\0")),
    "a table that is replaced": with_segments((0xDB, b"\0" + b"\1" * 64)),
    "no JFIF segment": joined([part for part in segments(FILE) if part[0] != 0xE0]),
    "adobe's YCbCr": joined([(0xEE, ADOBE + b"\1") if m == 0xE0 else (m, c) for m, c in segments(FILE)]),
    "JFIF before adobe": with_segments(JFIF, (0xEE, ADOBE + b"\0")),
}


@pytest.mark.parametrize("name", SOUND)
def test_segments_without_pixel_data_do_not_change_pixels(name):
    assert np.array_equal(decoded(SOUND[name]), decoded(FILE)), "the file does not match its name"
    out, code = alone(SOUND[name])
    assert code == OK
    assert np.array_equal(out, alone(FILE)[0])


def frame_changed(position, *values):
    return changed(0xC0, lambda content: replaced(content, position, *values))


def rgb_file(*, identifiers=(82, 71, 66), colors=()):
    components = components_of(photo(HEIGHT, WIDTH), ((1, 1),) * 3, identifiers=identifiers)
    return write(components, HEIGHT, WIDTH, colors=colors)


def ycc_file(sampling, **options):
    ycc = planes(jpeg(photo(HEIGHT, WIDTH), 95, "4:4:4"))
    return write(components_of(ycc, sampling), HEIGHT, WIDTH, **options)


REFUSED = {
    "progressive": (NOT_BASELINE, pillow_jpeg(photo(HEIGHT, WIDTH), progressive=True)),
    "arithmetic": (NOT_BASELINE, FILE.replace(b"\xff\xc0", b"\xff\xc9")),
    "lossless": (NOT_BASELINE, FILE.replace(b"\xff\xc0", b"\xff\xc3")),
    "RGB by its names": (NOT_YCBCR, rgb_file()),
    "RGB by adobe": (NOT_YCBCR, rgb_file(identifiers=(1, 2, 3), colors=((0xEE, ADOBE + b"\0"),))),
    "a JFIF segment that is too short": (NOT_YCBCR, rgb_file(colors=((0xE0, b"JFIF\0"),))),
    "CMYK": (NOT_YCBCR, pillow_jpeg(photo(HEIGHT, WIDTH), "CMYK")),
    "4:1:1": (ODD_SAMPLING, jpeg(photo(HEIGHT, WIDTH), 85, "4:1:1")),
    "4:1:0": (ODD_SAMPLING, ycc_file(((4, 2), (1, 1), (1, 1)))),
    "chroma of two kinds": (ODD_SAMPLING, ycc_file(((2, 2), (2, 1), (1, 1)))),
    "12 bits": (ODD_PRECISION, frame_changed(0, 12)),
    "16-bit quantization": (ODD_PRECISION, ycc_file(((2, 2), (1, 1), (1, 1)), wide=True)),
    "separate scans": (SEPARATE_SCANS, ycc_file(((2, 2), (1, 1), (1, 1)), separate=True)),
    "nothing": (DAMAGED_HEADER, b""),
    "three bytes": (DAMAGED_HEADER, FILE[:3]),
    "no start": (DAMAGED_HEADER, FILE[2:]),
    "no frame": (DAMAGED_HEADER, joined([part for part in segments(FILE) if part[0] != 0xC0])),
    "no scan": (DAMAGED_HEADER, joined([part for part in segments(FILE) if part[0] != 0xDA])),
    "a frame of no components": (NOT_YCBCR, changed(0xC0, lambda content: content[:5] + b"\0")),
    "a frame that is too short": (DAMAGED_HEADER, changed(0xC0, lambda content: content[:-1])),
    "a frame that is too long": (DAMAGED_HEADER, changed(0xC0, lambda content: content + b"\0")),
    "no rows": (DAMAGED_HEADER, frame_changed(1, 0, 0)),
    "no columns": (DAMAGED_HEADER, frame_changed(3, 0, 0)),
    "255 components": (DAMAGED_HEADER, frame_changed(5, 255)),
    "luma sampled by none": (ODD_SAMPLING, frame_changed(7, 0)),
    "luma sampled by 15": (ODD_SAMPLING, frame_changed(7, 0xFF)),
    "a quantization table of number 4": (DAMAGED_TABLE, frame_changed(8, 4)),
    "a quantization table that is missing": (DAMAGED_TABLE, frame_changed(8, 3)),
    "a quantization table cut short": (DAMAGED_TABLE, changed(0xDB, lambda content: content[:-1])),
    "a Huffman table that is missing": (DAMAGED_TABLE, changed(0xDA, lambda content: replaced(content, 2, 0x20))),
    "a Huffman table of number 4": (DAMAGED_TABLE, changed(0xDA, lambda content: replaced(content, 2, 0x04))),
    "a Huffman table of another class": (DAMAGED_TABLE, changed(0xC4, lambda content: replaced(content, 0, 0x20))),
    "a Huffman table cut short": (DAMAGED_TABLE, changed(0xC4, lambda content: content[:-1])),
    "three codes of one bit": (DAMAGED_TABLE, changed(0xC4, lambda content: replaced(content, 1, 3))),
    "more symbols than there are": (DAMAGED_TABLE, changed(0xC4, lambda content: replaced(content, 1, *[255] * 16))),
    "a DC category of 12": (DAMAGED_TABLE, changed(0xC4, lambda content: replaced(content, 17, 12))),
    "a restart interval of three bytes": (DAMAGED_HEADER, with_segments((0xDD, b"\0\0\0"))),
    "a scan of other components": (DAMAGED_HEADER, changed(0xDA, lambda content: replaced(content, 1, 9))),
    "restart markers without an announcement": (DAMAGED_SCAN, changed(0xDA, lambda content: content + b"\xff\xd0")),
    "restart markers that are missing": (DAMAGED_SCAN, with_segments((0xDD, b"\0\1"))),
    "no end": (CUT_SHORT, FILE[:-2]),
    "half a marker at the end": (CUT_SHORT, FILE[:-1]),
    "half the scan": (CUT_SHORT, FILE[: -len(FILE) // 3]),
    "half the scan, then the end": (DAMAGED_SCAN, FILE[: -len(FILE) // 3] + b"\xff\xd9"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_for_another_decoder_is_refused_with_the_right_reason(name):
    expected, data = REFUSED[name]
    assert alone(data)[1] == expected


def test_a_segment_longer_than_the_file_is_not_followed():
    start = FILE.index(b"\xff\xdb")
    for length in (0, 1, len(FILE) - start - 1, 65535):
        data = FILE[: start + 2] + length.to_bytes(2, "big") + FILE[start + 4 :]
        assert alone(data)[1] == DAMAGED_HEADER


def test_tables_of_the_last_image_are_not_taken_for_this_ones():
    """They stay built, since most images carry the same; a file without them is damaged all the same."""
    bare = joined([part for part in segments(FILE) if part[0] != 0xC4])
    other = with_segments((0xDB, quantization_of(np.full(64, 99), 0)), data=bare)
    images = [stored_jpeg(data, HEIGHT, WIDTH) for data in (FILE, bare, FILE, other)]
    _, codes = make_alone(PROGRAM, images, [draw_of(PROGRAM, whole(image)) for image in images])
    assert codes.tolist() == [OK, DAMAGED_TABLE, OK, DAMAGED_TABLE]


def test_tables_are_rebuilt_after_a_damaged_file_changed_half_of_one():
    half = changed(0xC4, lambda content: replaced(content, 1, 3))
    images = [stored_jpeg(data, HEIGHT, WIDTH) for data in (FILE, half, FILE)]
    out, codes = make_alone(PROGRAM, images, [draw_of(PROGRAM, whole(image)) for image in images])
    assert codes.tolist() == [OK, DAMAGED_TABLE, OK]
    assert np.array_equal(out[0], out[2])
