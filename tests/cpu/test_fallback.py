"""Files that the crop decoder refuses: how the libraries decode them, and when they are damaged."""

from __future__ import annotations

import base64
import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from gpubeton._cpu.jpeg.codes import MANY_INTERVALS
from gpubeton.errors import BadImageError
from gpubeton.fields.jpeg import decode_gray, decode_rgb, jpeg_size
from tests.cpu.damage import flip_bits, leave_out
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
from tests.cpu.plain_jpeg import DamagedError, components_of, read, write

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
    return write(components_of(photo(HEIGHT, WIDTH), ((1, 1),) * 3, identifiers=(82, 71, 66)), HEIGHT, WIDTH, colors=())


SIMPLEJPEGS = {
    "progressive": pillow_jpeg(photo(HEIGHT, WIDTH), progressive=True),
    "progressive gray": pillow_jpeg(photo(HEIGHT, WIDTH), "L", progressive=True),
    "RGB by its names": rgb_file(),
    "RGB by adobe": pillow_jpeg(photo(HEIGHT, WIDTH), keep_rgb=True),
    "4:1:1": jpeg(photo(HEIGHT, WIDTH), 85, "4:1:1"),
    "4:4:1": ycc_file(((1, 4), (1, 1), (1, 1))),
    "separate scans": ycc_file(((2, 2), (1, 1), (1, 1)), separate=True),
    "separate scans with restart markers": ycc_file(((2, 1), (1, 1), (1, 1)), separate=True, restart_interval=2),
    "16-bit quantization": ycc_file(((1, 1),) * 3, wide=True),
    "arithmetic": ARITHMETIC,
}

#: What simplejpeg has no names for or does not turn into RGB.
PILLOWS = {
    "CMYK": pillow_jpeg(photo(HEIGHT, WIDTH), "CMYK"),
    "4:1:0": ycc_file(((4, 2), (1, 1), (1, 1))),
    "chroma of two kinds": ycc_file(((2, 2), (2, 1), (1, 1))),
    "more chroma than luma": ycc_file(((1, 1), (2, 2), (1, 1))),
    "luma sampled by three": ycc_file(((3, 1), (1, 1), (1, 1))),
    "4:1:0 with restart markers": ycc_file(((4, 2), (1, 1), (1, 1)), restart_interval=1),
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
def test_images_decoded_by_libjpeg_turbo_equal_their_pixels_stored_raw(name):
    data = SIMPLEJPEGS[name]
    assert np.array_equal(decode_rgb(data), decoded(data))
    assert np.array_equal(made(data), expected(decoded(data)))


@pytest.mark.parametrize("name", PILLOWS)
def test_images_decoded_by_pillow_equal_their_pixels_stored_raw(name):
    data = PILLOWS[name]
    assert np.array_equal(decode_rgb(data), pillows(data))
    assert np.array_equal(made(data), expected(pillows(data)))


def test_inks_with_a_transform_are_decoded_too():
    """YCCK: Y, Cb, Cr and black."""
    adobe = (0xEE, b"Adobe\0\x64\0\0\0\0\2")
    inks = np.dstack([planes(jpeg(photo(HEIGHT, WIDTH), 95, "4:4:4")), photo(HEIGHT, WIDTH, 1)[..., 0]])
    data = write(components_of(inks, ((1, 1),) * 4), HEIGHT, WIDTH, colors=(adobe,))
    assert np.array_equal(decode_rgb(data), pillows(data))


def test_more_restart_intervals_than_are_kept_track_of_are_decoded_too():
    gray = planes(jpeg(photo(520, 1024), 95, "gray"))[..., :1]
    data = write(components_of(gray, ((1, 1),), np.full(64, 99)), 520, 1024, restart_interval=1)
    image, draw = stored_jpeg(data), draw_of(PROGRAM, (300, 700, 100, 200))
    assert make_alone(PROGRAM, [image], [draw])[1].tolist() == [MANY_INTERVALS]
    expected = make_one(PROGRAM, stored_raw(decoded(data)), draw)
    assert np.array_equal(make_one(PROGRAM, image, draw), expected)


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
    "4:1:0 cut short": (cut(PILLOWS["4:1:0"]), "its chroma sampling is unusual; libjpeg-turbo: "),
    "nothing": (b"", "its headers are damaged; UnidentifiedImageError: no image of these kinds: JPEG, PNG, "),
    "no JPEG": (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "its headers are damaged; UnidentifiedImageError: no image of"),
    "headers alone": (jpeg(photo(9, 9))[:300], "its headers are damaged; its headers end before the compressed data"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_no_decoder_accepts_is_reported_with_both_reasons(name):
    data, reason = BAD[name]
    try:
        size = jpeg_size(data)
    except BadImageError:
        size = 9, 9
    image = stored_jpeg(data, *size)
    out, bad = make(PROGRAM, [image], [draw_of(PROGRAM, whole(image))])
    assert [bad_image.row for bad_image in bad] == [0]
    assert reason in bad[0].reason
    assert (out == 0xA5).all(), "the caller's memory was written for an image that could not be made"


#: What else decodes in the place of a JPEG, without losing a level.
OTHER_KINDS = {"PNG": {}, "WEBP": {"lossless": True}, "BMP": {}, "TIFF": {}, "PPM": {}}


def other_file(kind, pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **OTHER_KINDS.get(kind, {}))
    return file.getvalue()


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_files_of_other_kinds_in_the_place_of_a_jpeg_equal_their_pixels_stored_raw(kind):
    pixels = photo(HEIGHT, WIDTH)
    image = stored_jpeg(other_file(kind, pixels), HEIGHT, WIDTH)
    assert np.array_equal(make_one(PROGRAM, image, draw_of(PROGRAM, (1, 2, 13, 11), flip=1)), expected(pixels))


def claiming(height, width):
    """A PNG file with the size in its header, and hardly any data."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", bytes(20)), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("data", "size", "reason"),
    [
        (other_file("PNG", photo(9, 8)), (8, 9), "it is 9 x 8 pixels, but the file's metadata have 8 x 9"),
        (other_file("PNG", photo(9, 8))[:-40], (9, 8), "OSError: "),
        (
            other_file("GIF", photo(9, 8)[..., 0]),
            (9, 8),
            "no image of these kinds: JPEG, PNG, WEBP, BMP, TIFF, PPM; its",
        ),
        (claiming(5000, 5000), (5000, 5000), "its header claims 5000 x 5000 pixels"),
        (claiming(1, 70_000), (1, 70_000), "its header claims 1 x 70000 pixels"),
    ],
    ids=["another size", "cut", "another kind", "too many pixels", "too wide"],
)
def test_other_files_are_held_to_their_metadata_their_bytes_and_the_list(data, size, reason):
    image = stored_jpeg(data, *size)
    _, bad = make(PROGRAM, [image], [draw_of(PROGRAM, (0, 0, 1, 1))])
    assert reason in bad[0].reason


def with_segment(data, marker, content):
    """The file with a segment more, right after its start."""
    parts = segments(data)
    return joined([parts[0], (marker, content), *parts[1:]])


ODD_EXIF = b"Exif\0\0II*\0\x08\0\0\0\1\0\x1a\1\5\0\1\0\0\0\xff\xff\0\0"
BAD_PROFILE = b"ICC_PROFILE\0\x0a\x0a"

#: Files like these are in Pillow's own tests: metadata of another length than they state, zeros, an extra byte.
STRAY = {
    "one byte": b"\x55",
    "what looks like stuffing": b"\xff\0\xff\0",
    "zeros": bytes(16),
    "bytes of a text": b"junk!",
}


@pytest.mark.parametrize("name", ["progressive", "CMYK", "4:1:0", "4:1:1"])
@pytest.mark.parametrize("content", [(0xE1, ODD_EXIF), (0xE2, BAD_PROFILE), (0xE0, b"JFIF\0\7\7\0\0\1\0\1\0\0")])
def test_metadata_decide_no_pixel_and_no_verdict(name, content):
    data = {**SIMPLEJPEGS, **PILLOWS}[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if content[1][:4] != b"JFIF" or name != "CMYK":  # JFIF makes an image of three colors YCbCr, and has no inks
            assert np.array_equal(decode_rgb(with_segment(data, *content)), decode_rgb(data))


@pytest.mark.parametrize("name", ["baseline", "4:1:0", "4:1:1"])
def test_a_sequential_scan_that_names_no_coefficients_has_them_all(name):
    """Some old encoders wrote zeros there; libjpeg-turbo warns, and reads all of them."""
    data = {**SIMPLEJPEGS, **PILLOWS, "baseline": jpeg(photo(HEIGHT, WIDTH))}[name]
    odd = data.replace(b"\x11\0\x3f\0", b"\x11\0\0\0")
    assert odd != data
    assert np.array_equal(decode_rgb(odd), decode_rgb(data))
    assert np.array_equal(made(odd), made(data))


@pytest.mark.parametrize("stray", STRAY)
@pytest.mark.parametrize("name", ["baseline", "progressive", "4:1:0"])
def test_stray_bytes_between_header_segments_are_left_out_and_the_image_is_held_strictly(name, stray):
    data = {**SIMPLEJPEGS, **PILLOWS, "baseline": jpeg(photo(HEIGHT, WIDTH))}[name]
    place = data.index(b"\xff\xdb")
    odd = data[:place] + STRAY[stray] + data[place:]
    assert np.array_equal(decode_rgb(odd), decode_rgb(data))
    assert np.array_equal(made(odd), expected(decode_rgb(data)))
    for share in (0.5, 0.75, 0.97):
        short = odd[: int(len(odd) * share)]
        assert verdict(short) == "refused"
        assert verdict(short + b"\xff\xd9") == "refused"


def is_readable(data):
    """Whether every code of a baseline file exists and its data suffice, by a plain reader."""
    try:
        read(data)
    except DamagedError as error:
        return "pass the end of the block" in str(error)  # which libjpeg-turbo takes, too
    except IndexError:
        return False
    return True


@pytest.mark.parametrize("name", sorted({*PILLOWS} - {"CMYK"}))
def test_damage_of_unusual_sampling_is_damage_too(name):
    """Pillow shows such files as if nothing were wrong."""
    data, verdicts = PILLOWS[name], {True: [], False: []}
    scan = data.index(b"\xff\xda") + 14
    for number in range(150):
        changed = (flip_bits, leave_out)[number % 2](data[scan:-2], np.random.default_rng(number))
        damaged = data[:scan] + changed + data[-2:]
        verdicts[is_readable(damaged)].append(verdict(damaged))
    assert set(verdicts[False]) == {"refused"}
    assert len(verdicts[False]) >= 10
    assert "decoded" in verdicts[True]
    assert verdict(data[:-2] + b"\x55\x55" + data[-2:]) == "refused"


@pytest.mark.parametrize("across", [1, 2, 3, 4])
@pytest.mark.parametrize("down", [1, 2, 3, 4])
def test_every_sampling_of_luma_is_decoded_or_has_more_blocks_than_jpeg_allows(across, down):
    data = ycc_file(((across, down), (1, 1), (1, 1)))
    image = stored_jpeg(data, HEIGHT, WIDTH)
    _, bad = make(PROGRAM, [image], [draw_of(PROGRAM, whole(image))])
    if across * down + 2 <= 10:
        assert bad == []
        assert np.array_equal(decode_rgb(data), pillows(data))
    else:
        assert [bad_image.row for bad_image in bad] == [0]
        assert verdict(data) == "refused"


def with_size(data, height, width):
    """The file with another size in its frame header."""
    size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return joined([(m, c[:1] + size + c[5:]) if 0xC0 <= m <= 0xC2 else (m, c) for m, c in segments(data)])


@pytest.mark.parametrize("name", ["progressive", "progressive gray", "4:1:0", "CMYK", "baseline"])
def test_more_pixels_than_the_bytes_can_hold_are_refused_before_memory_is_taken(name, monkeypatch):
    data = {**SIMPLEJPEGS, **PILLOWS, "baseline": jpeg(photo(HEIGHT, WIDTH))}[name]
    monkeypatch.setattr("simplejpeg.decode_jpeg", lambda *_, **__: pytest.fail("decoded"))
    for height, width in ((16_000, 16_000), (65_000, 65_000)):
        bomb = with_size(data, height, width)
        for function in (jpeg_size, decode_rgb, decode_gray):
            with pytest.raises(BadImageError, match=rf"{height} x {width} .* {len(bomb)} bytes"):
                function(bomb)


@pytest.mark.parametrize("error", [MemoryError, KeyError, RuntimeError, ValueError])
@pytest.mark.parametrize("name", SIMPLEJPEGS)
def test_an_error_of_a_library_is_an_undecodable_image(name, error, monkeypatch):
    def fail(*_, **__):
        raise error("planted")

    monkeypatch.setattr("simplejpeg.decode_jpeg", fail)
    for function in (decode_rgb, decode_gray):
        with pytest.raises(BadImageError, match="planted"):
            function(SIMPLEJPEGS[name])
    images = [stored_jpeg(SIMPLEJPEGS[name], HEIGHT, WIDTH), stored_jpeg(jpeg(photo(HEIGHT, WIDTH)))]
    if name != "arithmetic":  # of another size
        _, [bad] = make(PROGRAM, images, [draw_of(PROGRAM, whole(image)) for image in images])
        assert bad.row == 0
        assert "planted" in bad.reason


@pytest.mark.parametrize("name", ["rgb_of_file", "size_of_file"])
def test_an_unforeseen_error_spoils_its_own_image_alone(name, monkeypatch):
    def fail(data):
        raise RuntimeError("planted")

    monkeypatch.setattr(f"gpubeton._cpu.bad_images.{name}", fail)
    images = [stored_jpeg(SIMPLEJPEGS["progressive"]), stored_jpeg(jpeg(photo(HEIGHT, WIDTH)))]
    _, [bad] = make(PROGRAM, images, [draw_of(PROGRAM, whole(image)) for image in images])
    assert bad.row == 0
    assert "RuntimeError: planted" in bad.reason


@pytest.mark.parametrize("options", [{}, {"progressive": True}])
def test_no_plain_area_has_more_pixels_a_byte_than_are_allowed(options):
    """The smallest files that Huffman coding allows, of one color, with their tables."""
    data = pillow_jpeg(np.full((5000, 5000, 3), 255, np.uint8), "L", quality=1, optimize=True, **options)
    assert jpeg_size(data) == (5000, 5000)
    assert 5000 * 5000 > 1 << 24
    assert 100 < 5000 * 5000 / len(data) < 512


def test_damage_that_libjpeg_only_warns_of_is_damage():
    data = bytearray(SIMPLEJPEGS["progressive"])
    data[-200:-190] = b"\xff\0" * 5
    assert verdict(bytes(data)) == "refused"


def verdict(data):
    try:
        decode_rgb(data)
    except BadImageError:
        return "refused"
    return "decoded"
