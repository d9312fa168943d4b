from __future__ import annotations

import numpy as np
import pytest

from gpubeton._cpu.jpeg.markers import probe_jpegs
from gpubeton._plan.routes import HEIGHT, KIND, PROBE_COLUMNS, SAMPLING, TABLES, WIDTH, JpegKind, Sampling
from tests.cpu import damage
from tests.cpu.guarded import Slots
from tests.cpu.making import joined, segments
from tests.cpu.pictures import decoded, jpeg, photo, pillow_jpeg, planes
from tests.cpu.plain_jpeg import JFIF, components_of, write

ROWS, COLUMNS = 27, 35
PHOTO = photo(ROWS, COLUMNS)
FILE = jpeg(PHOTO, 85)
ADOBE = b"Adobe\0\x64\0\0\0\0"
SOF0, DHT, SOS, APP0, APP14 = 0xC0, 0xC4, 0xDA, 0xE0, 0xEE


def probe(*files):
    """Probe files, each of which ends right before an unreadable page."""
    slots = Slots(len(files), max(map(len, files)) + 1)
    places = [slots.ending(i, data) for i, data in enumerate(files)]
    address = np.array([place.ctypes.data for place in places], np.uint64)
    size = np.array([len(data) for data in files], np.uint64)
    result = np.full((len(files), PROBE_COLUMNS), 77, np.int32)
    probe_jpegs(address, size, result)
    return result


def kind(data):
    return JpegKind(probe(data)[0, KIND])


def changed(marker, change, data=FILE):
    """The file with the content of all segments of a kind changed."""
    return joined([(m, change(content) if m == marker else content) for m, content in segments(data)])


def replaced(content, position, *values):
    return content[:position] + bytes(values) + content[position + len(values) :]


def renamed(old, new, data=FILE):
    parts = segments(data)
    place = 2
    for marker, content in parts[1:]:
        if marker == old:
            return data[:place] + bytes([0xFF, new]) + data[place + 2 :]
        place += 4 + (len(content))
    raise AssertionError(old)


def with_segments(*new, data=FILE):
    parts = segments(data)
    return joined([parts[0], *new, *parts[1:]])


def without(marker, data=FILE):
    return joined([part for part in segments(data) if part[0] != marker])


def renamed_to_rgb(data):
    """The file with components named R, G and B."""
    return changed(SOF0, lambda frame: replaced(replaced(replaced(frame, 6, 82), 9, 71), 12, 66), data)


@pytest.mark.parametrize(
    ("sampling", "number"),
    [
        ("4:4:4", Sampling.FULL),
        ("4:2:2", Sampling.HALF_ACROSS),
        ("4:2:0", Sampling.HALF_BOTH),
        ("4:4:0", Sampling.HALF_DOWN),
        ("gray", Sampling.GRAY),
    ],
)
def test_a_baseline_file_is_known_with_its_size_and_sampling(sampling, number):
    assert probe(jpeg(PHOTO, sampling=sampling))[:, :TABLES].tolist() == [[JpegKind.BASELINE, ROWS, COLUMNS, number]]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 700), (300, 2), (257, 511)])
def test_sizes_are_read_as_they_are(height, width):
    assert probe(jpeg(photo(height, width)))[0, [HEIGHT, WIDTH]].tolist() == [height, width]


def test_the_hash_of_the_tables_changes_with_them_and_with_nothing_else():
    files = [FILE, pillow_jpeg(PHOTO, optimize=True), pillow_jpeg(PHOTO, restart_marker_blocks=1), jpeg(PHOTO, 31)]
    hashes = [int(probe(data)[0, TABLES]) for data in files]
    assert len(set(hashes)) == len(files)
    assert min(hashes) >= 0
    assert probe(with_segments((0xFE, b"a comment")))[0, TABLES] == hashes[0]


def test_restart_markers_comments_and_other_tables_do_not_change_the_kind():
    for data in (
        pillow_jpeg(PHOTO, optimize=True, restart_marker_blocks=1),
        pillow_jpeg(PHOTO, comment=b"\xff\xda\xff\xc2" * 9),
        with_segments((0xE1, b"Exif\0\0" + FILE)),  # a thumbnail: a whole file in a segment
        FILE[:2] + b"\xff\xff\xff" + FILE[2:],  # fill bytes
        renamed(SOF0, 0xC1),  # extended sequential, 8 bits
    ):
        assert probe(data)[:, :TABLES].tolist() == [[JpegKind.BASELINE, ROWS, COLUMNS, Sampling.HALF_BOTH]]


@pytest.mark.parametrize(
    ("data", "expected", "sampling"),
    [
        (pillow_jpeg(PHOTO, progressive=True), JpegKind.ELABORATE, Sampling.HALF_BOTH),
        (pillow_jpeg(PHOTO, "L", progressive=True), JpegKind.ELABORATE, Sampling.GRAY),
        (jpeg(PHOTO, sampling="4:1:1"), JpegKind.ELABORATE, Sampling.QUARTER_ACROSS),
        (pillow_jpeg(PHOTO, "CMYK"), JpegKind.FOREIGN, -1),
        (pillow_jpeg(PHOTO, keep_rgb=True), JpegKind.FOREIGN, Sampling.FULL),
    ],
    ids=["progressive", "progressive gray", "4:1:1", "CMYK", "RGB"],
)
def test_each_other_kind_of_libjpegs_files_is_recognized(data, expected, sampling):
    assert probe(data)[0, [KIND, SAMPLING]].tolist() == [expected, sampling]
    assert probe(data)[0, [HEIGHT, WIDTH]].tolist() == [ROWS, COLUMNS]


@pytest.mark.parametrize("marker", [0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF])
def test_lossless_hierarchical_and_arithmetic_files_are_foreign(marker):
    assert kind(renamed(SOF0, marker)) == JpegKind.FOREIGN


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ((0x42, 0x11, 0x11), JpegKind.ELABORATE),
        ((0x14, 0x11, 0x11), JpegKind.FOREIGN),
        ((0x31, 0x11, 0x11), JpegKind.FOREIGN),
        ((0x22, 0x21, 0x21), JpegKind.FOREIGN),
        ((0x22, 0x11, 0x12), JpegKind.FOREIGN),
        ((0x11, 0x22, 0x22), JpegKind.FOREIGN),
        ((0, 0, 0), JpegKind.FOREIGN),
    ],
)
def test_rare_samplings_are_left_to_the_cpu(factors, expected):
    def change(frame):
        for component, factor in enumerate(factors):
            frame = replaced(frame, 7 + 3 * component, factor)
        return frame

    assert kind(changed(SOF0, change)) == expected


def test_files_of_twelve_bits_two_colors_or_four_are_foreign():
    assert kind(changed(SOF0, lambda frame: replaced(frame, 0, 12))) == JpegKind.FOREIGN
    assert kind(changed(SOF0, lambda frame: replaced(frame[:12], 5, 2))) == JpegKind.FOREIGN
    assert kind(changed(SOF0, lambda frame: replaced(frame + b"\x04\x11\0", 5, 4))) == JpegKind.FOREIGN


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (without(APP0), JpegKind.BASELINE),
        (renamed_to_rgb(without(APP0)), "RGB"),
        (renamed_to_rgb(FILE), JpegKind.BASELINE),
        (changed(SOF0, lambda frame: replaced(replaced(frame, 6, 82), 9, 71), without(APP0)), JpegKind.BASELINE),
        (with_segments((APP14, ADOBE + b"\0"), data=without(APP0)), "RGB"),
        (with_segments((APP14, ADOBE + b"\1"), data=without(APP0)), JpegKind.BASELINE),
        (with_segments((APP14, ADOBE + b"\2"), data=without(APP0)), "RGB"),  # of no meaning for three colors
        (with_segments((APP14, ADOBE + b"\0"), JFIF, data=without(APP0)), JpegKind.BASELINE),
        (with_segments((APP14, ADOBE[:9]), data=without(APP0)), JpegKind.BASELINE),
        (with_segments((APP14, ADOBE + b"\0"), (APP14, b"something else"), data=without(APP0)), "RGB"),
        (with_segments((APP14, b"Adobo\0\x64\0\0\0\0\1"), data=without(APP0)), JpegKind.BASELINE),
        (with_segments((APP0, b"JFXX\0\x10"), data=without(APP0)), JpegKind.BASELINE),
        (with_segments((APP0, b"JFIF\0"), data=renamed_to_rgb(without(APP0))), "RGB"),  # too short for libjpeg
    ],
)
def test_the_color_space_follows_libjpegs_rule(data, expected):
    """A JFIF marker means YCbCr; without one Adobe's segment counts; then the components' names."""
    assert kind(data) == (JpegKind.FOREIGN if expected == "RGB" else expected)


def test_the_components_of_the_first_scan_decide_whether_there_are_several():
    ycc = planes(jpeg(PHOTO, 95, "4:4:4"))
    assert kind(write(components_of(ycc, ((1, 1), (1, 1), (1, 1))), ROWS, COLUMNS)) == JpegKind.BASELINE
    assert kind(changed(SOS, lambda scan: replaced(scan, 0, 1))) == JpegKind.ELABORATE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\xff\xd8",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xd9",
        bytes(400),
        b"\x89PNG\r\n\x1a\n" * 9,
        FILE[1:],
        b"\xff\xd8" + b"\xff" * 300,
        FILE[: FILE.index(b"\xff\xda")],
        FILE[: FILE.index(b"\xff\xda") + 2],
        FILE[: FILE.index(b"\xff\xda") + 4],
        FILE[: FILE.index(b"\xff\xc0") + 11],
        FILE[: FILE.index(b"\xff\xda")] + b"\xff\xd9" * 4,
        FILE[:2] + b"\xff\xd0" + FILE[2:],
        FILE[:2] + b"\xff\x01" + FILE[2:],
        FILE[:2] + b"\xff\xe5\0\1" + FILE[2:],
        FILE[:20] + b"\0\0" + FILE[20:],
        without(SOF0),
        with_segments((SOF0, bytes(4))),
        joined([part for part in segments(FILE) for _ in range(1 + (part[0] == SOF0))]),
        changed(SOF0, lambda frame: frame[:-1]),
        changed(SOF0, lambda frame: frame + b"\0"),
        changed(SOF0, lambda frame: replaced(frame, 5, 4)),
        changed(SOF0, lambda frame: replaced(frame, 1, 0x40, 0, 0x40, 0)),  # 16384 x 16384 pixels
    ],
)
def test_a_file_without_a_valid_header_is_damaged(data):
    assert kind(data) == JpegKind.DAMAGED


def test_every_beginning_of_a_file_is_damaged_and_not_read_past():
    """NvJPEG refuses the whole batch for a file without its end, or decodes a part of it without an error."""
    rows = probe(*(FILE[:stop] for stop in range(len(FILE))))
    assert (rows[:, KIND] == JpegKind.DAMAGED).all()
    scan = FILE.index(b"\xff\xda") + 14
    assert kind(FILE[:scan] + b"\xff\xd9") == JpegKind.BASELINE
    assert kind(FILE[:scan] + b"\xff") == JpegKind.DAMAGED


@pytest.mark.parametrize("after", [b"\0", b"\xff", b"\xff\xff\xd9\xff", b"\xd9" * 9, bytes(5000)])
def test_bytes_after_the_end_do_no_harm(after):
    assert kind(FILE + after) == JpegKind.BASELINE


def test_the_end_of_a_thumbnail_is_not_the_files():
    assert kind(with_segments((0xE1, b"Exif\0\0" + FILE))[:-2]) == JpegKind.DAMAGED


def test_images_of_one_batch_do_not_touch_each_others_rows():
    files = [FILE, b"no", pillow_jpeg(PHOTO, "CMYK"), jpeg(photo(9, 8), sampling="gray"), FILE]
    together = probe(*files)
    assert together.tolist() == [probe(file)[0].tolist() for file in files]


def sizes_of_libjpeg(data):
    try:
        return decoded(data).shape[:2]
    except ValueError:
        return None


def test_damaged_files_are_surveyed_without_reading_past_them_and_never_with_a_size_that_libjpeg_denies():
    rng = np.random.default_rng(5)
    sound = [
        *(jpeg(PHOTO, 70, sampling) for sampling in ("4:2:0", "4:4:4", "gray")),
        pillow_jpeg(PHOTO, progressive=True, quality=50),
        pillow_jpeg(PHOTO, "CMYK", quality=50),
        pillow_jpeg(PHOTO, quality=60, restart_marker_blocks=1),
    ]
    files = [damage.WAYS[i % len(damage.WAYS)](sound[int(rng.integers(len(sound)))], rng) for i in range(1500)]
    rows = probe(*files)
    decodable = [JpegKind.BASELINE, JpegKind.ELABORATE]
    compared = 0
    for data, row in zip(files, rows, strict=True):
        size = sizes_of_libjpeg(data)
        if row[KIND] in decodable and size is not None:
            compared += 1
            assert tuple(row[[HEIGHT, WIDTH]]) == size
    assert compared > 300
    # All files that decode without a warning are known, except for markers that only libjpeg forgives.
    unknown = [data for data, row in zip(files, rows, strict=True) if row[KIND] == 0 and sizes_of_libjpeg(data)]
    assert len(unknown) < 40
