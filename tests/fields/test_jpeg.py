from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gpubeton.fields.jpeg import read_frame
from tests.golden.make_opencv_writer import picture


def jpeg(mode="RGB", **options):
    file = io.BytesIO()
    Image.fromarray(picture(30, 50)).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def segment(marker, body):
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


BASELINE = jpeg()
GRAY = jpeg("L")


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


def changed(marker, offset, content):
    """The baseline file with other bytes from some place after a marker on."""
    start = BASELINE.index(marker) + offset
    return BASELINE[:start] + content + BASELINE[start + len(content) :]


def test_a_file_that_every_decoder_takes_is_baseline():
    frame = read_frame(BASELINE)
    assert frame.is_baseline
    assert (frame.marker, frame.precision, frame.height, frame.width) == (0xC0, 8, 30, 50)
    assert frame.components == (1, 2, 3)
    options = {"subsampling": 0}, {"subsampling": 1}, {"quality": 1}, {"optimize": True}
    for content in (
        *(*(jpeg(**changes) for changes in options), GRAY, BASELINE + bytes(100)),
        # Fill bytes and lone markers are passed over.
        *(BASELINE[:2] + b"\xff\xff\xff" + BASELINE[3:], BASELINE[:2] + b"\xff\x01" + BASELINE[2:]),
        # The color space is that of libjpeg.
        *(with_colors(), with_colors(adobe(1)), with_colors(adobe(1), b"RGB")),
        *(with_colors(JFIF + adobe(0)), with_colors(JFIF, b"RGB")),
    ):
        assert read_frame(content).is_baseline


@pytest.mark.parametrize(
    "content",
    [
        jpeg(progressive=True),
        jpeg("CMYK"),
        with_colors(identifiers=b"RGB"),
        with_colors(adobe(0)),
        changed(b"\xff\xc0", 4, b"\x0c"),  # 12 bits
        BASELINE[:-2],
        BASELINE[: len(BASELINE) // 2 + 400],
    ],
)
def test_other_files_have_their_size_and_are_not_baseline(content):
    frame = read_frame(content)
    assert (frame.height, frame.width, frame.is_baseline) == (30, 50, False)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"\xff\xd8",
        b"\xff\xd8\xff\xd9",
        b"\x89PNG" + bytes(100),
        # Segments shorter than the number of their bytes.
        *(changed(marker, 2, bytes([0, length])) for marker in (b"\xff\xe0", b"\xff\xda") for length in (0, 1)),
        # A frame whose length contradicts its components.
        changed(b"\xff\xc0", 9, b"\x04"),
    ],
)
def test_a_value_other_than_a_jpeg_has_no_frame(content):
    assert read_frame(content) is None


def test_libjpeg_agrees_on_which_files_are_rgb():
    for content, is_baseline in [(with_colors(adobe(0)), False), (with_colors(JFIF + adobe(0)), True)]:
        same = np.array_equal(np.asarray(Image.open(io.BytesIO(content))), np.asarray(Image.open(io.BytesIO(BASELINE))))
        assert same == is_baseline


def test_an_end_inside_a_thumbnail_is_not_the_end_of_the_image():
    content = BASELINE[:2] + segment(0xE1, b"Exif\0\0" + GRAY) + BASELINE[2:-2]
    frame = read_frame(content)
    assert (frame.components, frame.is_complete) == ((1, 2, 3), False)


@pytest.mark.parametrize("marker", [b"\xff\xe0", b"\xff\xc0", b"\xff\xda"])
def test_a_segment_that_passes_the_end_of_the_file_leaves_nothing_baseline(marker):
    content = bytearray(BASELINE)
    start = content.index(marker)
    content[start + 2 : start + 4] = b"\xff\xff"
    frame = read_frame(bytes(content))
    assert frame is None or not frame.is_baseline


@given(st.data())
def test_damaged_markers_give_a_frame_or_none(data):
    content = bytearray(BASELINE)
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read_frame(bytes(content[: data.draw(st.integers(0, len(content)))]))


@given(st.binary(max_size=300))
def test_random_bytes_after_the_start_give_a_frame_or_none(content):
    read_frame(b"\xff\xd8\xff" + content)
