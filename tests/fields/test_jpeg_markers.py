from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gpubeton.fields.jpeg_markers import read_frame
from tests.golden.make_opencv_writer import picture


def jpeg(mode="RGB", **options):
    file = io.BytesIO()
    Image.fromarray(picture(30, 50)).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def segment(marker, body):
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


BASELINE = jpeg()
GRAY = jpeg("L")


def test_a_baseline_file_is_plain():
    frame = read_frame(BASELINE)
    assert frame.is_plain
    assert (frame.marker, frame.precision, frame.height, frame.width) == (0xC0, 8, 30, 50)
    assert frame.components == (1, 2, 3)


@pytest.mark.parametrize("options", [{"subsampling": 0}, {"subsampling": 1}, {"quality": 1}, {"optimize": True}])
def test_sampling_and_tables_do_not_matter(options):
    assert read_frame(jpeg(**options)).is_plain


def test_gray_is_plain():
    assert read_frame(GRAY).is_plain


@pytest.mark.parametrize("content", [jpeg(progressive=True), jpeg("CMYK")])
def test_progressive_and_cmyk_are_not_plain(content):
    frame = read_frame(content)
    assert (frame.height, frame.width) == (30, 50)
    assert not frame.is_plain


def with_colors(app=b"", identifiers=b"\1\2\3"):
    """The baseline file without its JFIF marker, with another one and other component identifiers."""
    start = BASELINE.index(b"\xff\xe0")
    stop = start + 2 + int.from_bytes(BASELINE[start + 2 : start + 4], "big")
    content = bytearray(BASELINE[:start] + app + BASELINE[stop:])
    frame = content.index(b"\xff\xc0")
    content[frame + 10 : frame + 19 : 3] = identifiers
    return bytes(content)


def adobe(transform):
    return segment(0xEE, b"Adobe" + bytes(6) + bytes([transform]))


JFIF = segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")


@pytest.mark.parametrize(
    ("content", "is_plain"),
    [
        (with_colors(), True),
        (with_colors(identifiers=b"RGB"), False),
        (with_colors(adobe(0)), False),
        (with_colors(adobe(1)), True),
        (with_colors(adobe(1), b"RGB"), True),
        (with_colors(JFIF + adobe(0)), True),
        (with_colors(JFIF, b"RGB"), True),
    ],
)
def test_the_color_space_is_that_of_libjpeg(content, is_plain):
    assert read_frame(content).is_plain == is_plain


def test_libjpeg_agrees_on_which_files_are_rgb():
    for content, is_plain in [(with_colors(adobe(0)), False), (with_colors(JFIF + adobe(0)), True)]:
        same = np.array_equal(np.asarray(Image.open(io.BytesIO(content))), np.asarray(Image.open(io.BytesIO(BASELINE))))
        assert same == is_plain


def test_twelve_bits_are_not_plain():
    content = bytearray(BASELINE)
    content[content.index(b"\xff\xc0") + 4] = 12
    assert not read_frame(bytes(content)).is_plain


def test_a_file_without_its_end_is_not_plain():
    assert not read_frame(BASELINE[:-2]).is_plain
    assert not read_frame(BASELINE[: len(BASELINE) // 2 + 400]).is_plain


def test_bytes_after_the_end_do_not_matter():
    assert read_frame(BASELINE + bytes(100)).is_plain


def test_an_end_inside_a_thumbnail_is_not_the_end_of_the_image():
    content = BASELINE[:2] + segment(0xE1, b"Exif\0\0" + GRAY) + BASELINE[2:-2]
    frame = read_frame(content)
    assert (frame.components, frame.is_complete) == ((1, 2, 3), False)


def test_fill_bytes_and_lone_markers_are_passed_over():
    assert read_frame(BASELINE[:2] + b"\xff\xff\xff" + BASELINE[3:]).is_plain
    assert read_frame(BASELINE[:2] + b"\xff\x01" + BASELINE[2:]).is_plain


@pytest.mark.parametrize("content", [b"", b"\xff", b"\xff\xd8", b"\xff\xd8\xff\xd9", b"\x89PNG" + bytes(100)])
def test_a_value_other_than_a_jpeg_has_no_frame(content):
    assert read_frame(content) is None


@pytest.mark.parametrize("length", [0, 1])
@pytest.mark.parametrize("marker", [b"\xff\xe0", b"\xff\xda"])
def test_a_segment_shorter_than_its_own_length_is_damage(marker, length):
    content = bytearray(BASELINE)
    start = content.index(marker)
    content[start + 2 : start + 4] = bytes([0, length])
    assert read_frame(bytes(content)) is None


@pytest.mark.parametrize("marker", [b"\xff\xe0", b"\xff\xc0", b"\xff\xda"])
def test_a_segment_that_passes_the_end_of_the_file_leaves_nothing_plain(marker):
    content = bytearray(BASELINE)
    start = content.index(marker)
    content[start + 2 : start + 4] = b"\xff\xff"
    frame = read_frame(bytes(content))
    assert frame is None or not frame.is_plain


def test_a_frame_whose_length_contradicts_its_components_is_none():
    content = bytearray(BASELINE)
    content[content.index(b"\xff\xc0") + 9] = 4
    assert read_frame(bytes(content)) is None


@given(st.data())
def test_damaged_markers_give_a_frame_or_none(data):
    content = bytearray(BASELINE)
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read_frame(bytes(content[: data.draw(st.integers(0, len(content)))]))


@given(st.binary(max_size=300))
def test_random_bytes_after_the_start_give_a_frame_or_none(content):
    read_frame(b"\xff\xd8\xff" + content)
