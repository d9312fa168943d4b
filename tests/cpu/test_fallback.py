from __future__ import annotations

import base64
import io
import warnings

import numpy as np
import pytest
from PIL import Image

from gpubeton.cpu.fallback import UndecodableError, decode_rgb, jpeg_size
from gpubeton.cpu.jpeg.codes import MANY_INTERVALS
from tests.cpu.making import (
    draw_of,
    joined,
    make,
    make_alone,
    make_one,
    program_of,
    segments,
    stored_jpeg,
    stored_raw,
    whole,
)
from tests.cpu.pictures import decoded, jpeg, photo, pillow_jpeg, planes
from tests.cpu.plain_jpeg import components_of, write

HEIGHT, WIDTH = 27, 35
PROGRAM = program_of(16, 12)

#: 24 x 20 pixels, made by ``jpegtran -arithmetic`` from a file of quality 40.
ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABQODxIPDRQSEBIXFRQYHjIhHhwcHj0sLiQySUBMS0dARkVQWnNiUFVtVkVGZIhlbXd7gYKBTmCNl4x9"
    "lnN+gXz/2wBDARUXFx4aHjshITt8U0ZTfHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHz/yQARCAAYABQD"
    "ASIAAhEBAxEB/8wACgAQEAUBEBEF/9oADAMBAAIRAxEAPwDQqAJ8DqVpYs/J8/fuN0AutLuXksYIg46Dd7G2u1PDdA9EwvgNd2FP3mNCRTo1i7Y+"
    "sYh5Yl4AoAPlj8v9iYLmqlCF0MIJzXL/AMgCiq6Z/wBDeozOyVYSXESd7oBnGKvESbiwSN8ExSMpsnAltRdShOPE3/MMeYv/AAuC5VbCcP/Z"
)


def ycc_file(sampling, **options):
    ycc = planes(jpeg(photo(HEIGHT, WIDTH), 95, "4:4:4"))
    return write(components_of(ycc, sampling), HEIGHT, WIDTH, **options)


def rgb_file():
    return write(
        components_of(photo(HEIGHT, WIDTH), ((1, 1),) * 3, identifiers=(82, 71, 66)), HEIGHT, WIDTH, colours=()
    )


SIMPLEJPEGS = {
    "progressive": pillow_jpeg(photo(HEIGHT, WIDTH), progressive=True),
    "progressive gray": pillow_jpeg(photo(HEIGHT, WIDTH), "L", progressive=True),
    "RGB by its names": rgb_file(),
    "RGB by adobe": pillow_jpeg(photo(HEIGHT, WIDTH), keep_rgb=True),
    "4:1:1": jpeg(photo(HEIGHT, WIDTH), 85, "4:1:1"),
    "separate scans": ycc_file(((2, 2), (1, 1), (1, 1)), separate=True),
    "separate scans with restart markers": ycc_file(((2, 1), (1, 1), (1, 1)), separate=True, restart_interval=2),
    "16-bit quantisation": ycc_file(((1, 1),) * 3, wide=True),
    "arithmetic": ARITHMETIC,
}

#: What simplejpeg has no names for or does not turn into RGB.
PILLOWS = {
    "CMYK": pillow_jpeg(photo(HEIGHT, WIDTH), "CMYK"),
    "4:1:0": ycc_file(((4, 2), (1, 1), (1, 1))),
    "chroma of two kinds": ycc_file(((2, 2), (2, 1), (1, 1))),
    "more chroma than luma": ycc_file(((1, 1), (2, 2), (1, 1))),
    "luma sampled by three": ycc_file(((3, 1), (1, 1), (1, 1))),
}


def pillows(data):
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def made(data):
    image = stored_jpeg(data, *jpeg_size(data))
    return make_one(PROGRAM, image, draw_of(PROGRAM, (1, 2, 13, 11), flip=1))


def expected(pixels):
    """The same crop of the same pixels, stored raw."""
    return make_one(PROGRAM, stored_raw(pixels), draw_of(PROGRAM, (1, 2, 13, 11), flip=1))


@pytest.mark.parametrize("name", SIMPLEJPEGS)
def test_what_libjpeg_turbo_decodes_becomes_what_its_pixels_stored_raw_become(name):
    data = SIMPLEJPEGS[name]
    assert np.array_equal(decode_rgb(data), decoded(data))
    assert np.array_equal(made(data), expected(decoded(data)))


@pytest.mark.parametrize("name", PILLOWS)
def test_what_only_pillow_decodes_becomes_what_its_pixels_stored_raw_become(name):
    data = PILLOWS[name]
    assert np.array_equal(decode_rgb(data), pillows(data))
    assert np.array_equal(made(data), expected(pillows(data)))


def test_inks_with_a_transform_are_decoded_too():
    """YCCK: Y, Cb, Cr and black."""
    adobe = (0xEE, b"Adobe\0\x64\0\0\0\0\2")
    inks = np.dstack([planes(jpeg(photo(HEIGHT, WIDTH), 95, "4:4:4")), photo(HEIGHT, WIDTH, 1)[..., 0]])
    data = write(components_of(inks, ((1, 1),) * 4), HEIGHT, WIDTH, colours=(adobe,))
    assert np.array_equal(decode_rgb(data), pillows(data))


def test_more_restart_intervals_than_are_kept_track_of_are_decoded_too():
    gray = planes(jpeg(photo(520, 1024), 95, "gray"))[..., :1]
    data = write(components_of(gray, ((1, 1),), np.full(64, 99)), 520, 1024, restart_interval=1)
    image, draw = stored_jpeg(data), draw_of(PROGRAM, (300, 700, 100, 200))
    assert make_alone(PROGRAM, [image], [draw])[1].tolist() == [MANY_INTERVALS]
    wanted = make_one(PROGRAM, stored_raw(decoded(data)), draw)
    assert np.array_equal(make_one(PROGRAM, image, draw), wanted)


def cut(data):
    return data[: len(data) * 3 // 4]


BAD = {
    "12 bits": (
        joined([(m, b"\x0c" + c[1:]) if m == 0xC0 else (m, c) for m, c in segments(jpeg(photo(9, 9)))]),
        "more than 8 bits; libjpeg-turbo: Unsupported JPEG data precision 12",
    ),
    "lossless": (jpeg(photo(9, 9)).replace(b"\xff\xc0", b"\xff\xc3"), "not a baseline JPEG; libjpeg-turbo: "),
    "a progressive file cut short": (cut(SIMPLEJPEGS["progressive"]), "not a baseline JPEG; libjpeg-turbo: "),
    "a baseline file cut short": (jpeg(photo(9, 9))[:-4], "it ends before its last marker; libjpeg-turbo: "),
    "CMYK cut short": (cut(PILLOWS["CMYK"]), "neither YCbCr nor gray; libjpeg-turbo: "),
    "CMYK with an end too early": (cut(PILLOWS["CMYK"]) + b"\xff\xd9", "nor gray; libjpeg-turbo: Corrupt JPEG data"),
    "4:1:0 cut short": (cut(PILLOWS["4:1:0"]), "its chroma sampling is unusual; Pillow: image file is truncated"),
    "nothing": (b"", "its headers are damaged; libjpeg-turbo: "),
    "no JPEG": (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "its headers are damaged; libjpeg-turbo: "),
}


@pytest.mark.parametrize("name", BAD)
def test_what_nobody_decodes_is_named_with_both_reasons(name):
    data, reason = BAD[name]
    try:
        size = jpeg_size(data)
    except UndecodableError:
        size = 9, 9
    image = stored_jpeg(data, *size)
    out, bad = make(PROGRAM, [image], [draw_of(PROGRAM, whole(image))])
    assert [one.row for one in bad] == [0]
    assert reason in bad[0].reason
    assert (out == 0xA5).all(), "the caller's memory was written for an image that could not be made"


@pytest.mark.parametrize("name", ["progressive", "4:1:0"])
def test_a_header_that_promises_gigabytes_is_refused_before_they_are_allocated(name, monkeypatch):
    data = {**SIMPLEJPEGS, **PILLOWS}[name]
    frame = 0xC2 if name == "progressive" else 0xC0
    huge = joined([(m, c[:1] + b"\xff\xff" * 2 + c[5:]) if m == frame else (m, c) for m, c in segments(data)])
    monkeypatch.setattr("gpubeton.cpu.worker.decode_rgb", lambda _: pytest.fail("decoded"))
    image = stored_jpeg(huge, HEIGHT, WIDTH)
    _, bad = make(PROGRAM, [image], [draw_of(PROGRAM, whole(image))])
    assert bad[0].reason == f"it is 65535 x 65535 pixels, but the file's metadata say {HEIGHT} x {WIDTH} pixels"


def test_pillows_warnings_never_leave_as_exceptions():
    """It warns of odd EXIF data; some have warnings raised."""
    parts = segments(PILLOWS["4:1:0"])
    odd = joined([parts[0], (0xE1, b"Exif\0\0II*\0\x08\0\0\0\1\0\x1a\1\5\0\1\0\0\0\xff\xff\0\0"), *parts[1:]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UndecodableError, match="Pillow"):
            decode_rgb(odd)
    with pytest.warns(UserWarning, match="."):
        assert np.array_equal(decode_rgb(odd), decode_rgb(PILLOWS["4:1:0"]))


def test_damage_that_libjpeg_only_warns_of_is_damage():
    data = bytearray(SIMPLEJPEGS["progressive"])
    data[-200:-190] = b"\xff\0" * 5
    assert decode_strictly(bytes(data)) == "refused"


def decode_strictly(data):
    try:
        decode_rgb(data)
    except UndecodableError:
        return "refused"
    return "decoded"
