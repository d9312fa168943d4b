from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from gpubeton.fields.image_metadata import read_metadata, upright, without_metadata
from tests.small_files import picture

PICTURE = Image.fromarray(picture(3, 40, 56))


def exif(orientation=6, position=True):
    result = Image.Exif()
    result[0x0112] = orientation
    if position:
        result[0x8825] = {1: "N", 2: (47.0, 3.0, 1.5), 3: "E", 4: (8.0, 1.0, 2.0)}
    return result


def saved(image=PICTURE, kind="JPEG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(content):
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image)


def segment(marker, body):
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pixels_are_turned_as_pillow_turns_them(orientation):
    content = saved(exif=exif(orientation), quality=95)
    with Image.open(io.BytesIO(content)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    result = read_metadata(content, None)
    assert np.array_equal(upright(pixels(content), result.orientation), expected)
    assert (result.orientation, result.has_position) == (orientation, True)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_the_orientation_of_other_kinds_of_files_is_read(kind):
    with Image.open(io.BytesIO(saved(kind=kind, exif=exif(8, position=False)))) as image:
        assert read_metadata(None, image).orientation == 8


def test_a_position_in_xmp_is_found():
    content = saved()
    xmp = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x exif:GPSLatitude='47,3N'/>")
    assert read_metadata(content[:2] + xmp + content[2:], None).has_position
    assert not read_metadata(content, None).has_position


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 2}, {"optimize": True}])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_removing_metadata_keeps_every_encoded_pixel_and_the_color_space(options, mode):
    image = PICTURE.convert(mode)
    plain = saved(image, **options)
    profile = segment(0xE2, b"ICC_PROFILE\0\1\1" + bytes(50))
    private = segment(0xE2, b"FPXR\0" + bytes(20)) + segment(0xED, b"Photoshop 3.0\0by me")
    rich = saved(image, exif=exif(), comment=b"a secret", **options)
    rich = rich[:2] + profile + private + rich[2:] + b"a film with a position"
    stripped = without_metadata(rich)
    assert [text for text in (b"Exif", b"secret", b"by me", b"FPXR", b"film") if text in stripped] == []
    assert stripped == plain[:2] + profile + plain[2:]
    assert np.array_equal(pixels(stripped), pixels(rich))


def test_removing_metadata_of_a_png_leaves_its_pixels():
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_text("author", "me")
    text.add_itxt("where", "there")
    rich = saved(kind="PNG", pnginfo=text, exif=exif())
    stripped = without_metadata(rich + b"more")
    assert stripped == saved(kind="PNG")
    assert without_metadata(stripped) == stripped


def test_other_files_stay_and_a_jpeg_without_an_end_is_refused():
    with pytest.raises(ValueError, match="end"):
        without_metadata(saved()[:-2])


@given(st.binary(max_size=80), st.integers(0, 400))
def test_damaged_metadata_raises_nothing_when_read(junk, at):
    content = saved(exif=exif())
    read_metadata(content[:at] + junk + content[at + len(junk) :], None)
    read_metadata(content[:2] + segment(0xE1, b"Exif\0\0" + junk) + content[2:], None)
