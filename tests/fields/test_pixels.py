from __future__ import annotations

import hashlib
import io
import json

import numpy as np
import pytest
from PIL import Image

from gpubeton.fields.jpeg import encode_jpeg
from gpubeton.fields.pixels import file_content, rgb_pixels_of
from tests.golden.make_opencv_writer import picture
from tests.golden_files import GOLDEN

COMPRESSIONS = json.loads((GOLDEN / "opencv_writer.json").read_text())["compressions"]
PIXELS = picture(20, 30)


@pytest.mark.parametrize(("height", "width", "quality", "sha256"), COMPRESSIONS)
def test_jpeg_files_are_those_of_opencv_to_the_byte(height, width, quality, sha256):
    assert hashlib.sha256(encode_jpeg(picture(height, width), quality)).hexdigest() == sha256


def file_of(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP", "TIFF"])
def test_files_of_many_kinds_are_read(kind):
    options = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(rgb_pixels_of(file_of(Image.fromarray(PIXELS), kind, **options)), PIXELS)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "YCbCr", "HSV"])
def test_images_of_every_mode_of_eight_bits_become_rgb(mode):
    image = Image.fromarray(PIXELS).convert(mode)
    assert np.array_equal(rgb_pixels_of(image), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("image", [Image.new("I;16", (4, 4)), Image.new("I", (4, 4)), Image.new("F", (4, 4))])
def test_more_than_eight_bits_are_refused_instead_of_cut(image):
    with pytest.raises(ValueError, match="more than 8 bits"):
        rgb_pixels_of(image)
    with pytest.raises(ValueError, match="more than 8 bits"):
        rgb_pixels_of(file_of(image, "TIFF"))


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        *((value, TypeError, r"expected a PIL\.Image") for value in ([[[1, 2, 3]]], 3, None)),
        *(
            (np.zeros(shape, np.uint8), ValueError, r"\(height, width, 3\)")
            for shape in [(4, 5), (4, 5, 4), (3, 4, 5), (1, 4, 5, 3), (0, 5, 3)]
        ),
        (np.zeros((4, 5, 3), np.float32), ValueError, r"float32, .* uint8"),
    ],
)
def test_a_value_other_than_an_image_of_levels_is_refused(value, error, message):
    with pytest.raises(error, match=message):
        rgb_pixels_of(value)


def test_a_view_becomes_contiguous():
    flipped = rgb_pixels_of(PIXELS[:, ::-1])
    assert flipped.flags.c_contiguous
    assert np.array_equal(flipped, PIXELS[:, ::-1])


def test_a_file_cut_short_is_an_error_and_no_half_gray_image():
    with pytest.raises(OSError, match="truncated"):
        rgb_pixels_of(encode_jpeg(picture(100, 100), 90)[:-500])


def test_the_content_of_bytes_and_paths_is_given_and_of_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    for value in (b"content", bytearray(b"content"), memoryview(b"content"), path, str(path)):
        assert file_content(value) == b"content"
    assert file_content(PIXELS) is None
    assert file_content(Image.fromarray(PIXELS)) is None
