from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
from PIL import Image

from gpubeton.errors import BadImageError
from gpubeton.fields import ImageField, RGBImageField
from gpubeton.fields.codecs import CODECS, JPEG, PNG, codec_of, codecs_of, decode_file
from gpubeton.format.field_arguments import IMAGE_KINDS, RGB
from gpubeton.format.layout import FILE_MODES
from tests.golden.make_opencv_writer import picture

PIXELS = picture(20, 30)


def file_of(kind):
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, kind)
    return file.getvalue()


def test_each_way_to_store_a_file_has_a_codec():
    assert tuple(CODECS) == FILE_MODES
    assert all(codec.mode is mode for mode, codec in CODECS.items())


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.suffix)
def test_a_file_of_a_codec_is_recognized_and_has_its_size_and_pixels(codec):
    content = codec.encode(PIXELS, 95)
    header = codec.read_header(content)
    assert codec_of(content) is codec
    assert (header.height, header.width, header.holds(RGB), codec.size(content)) == (20, 30, True, (20, 30))
    for pixels in (codec.decode(content, None, None), decode_file(content, RGB, (20, 30))):
        assert (pixels.dtype, pixels.shape) == (np.uint8, (20, 30, 3))
        assert np.abs(pixels.astype(int) - PIXELS).mean() < 6
    assert np.array_equal(codec.decode(codec.strip(content), RGB, None), codec.decode(content, RGB, None))
    with pytest.raises(BadImageError, match=r"20 x 30 pixels, .* 20 x 31"):
        codec.decode(content, RGB, (20, 31))


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.suffix)
def test_a_damaged_file_of_a_codec_is_a_bad_image(codec):
    content = codec.encode(PIXELS, 95)[:20]
    assert codec.read_header(content) is None
    for function in (codec.size, lambda data: codec.decode(data, RGB, (20, 30))):
        with pytest.raises(BadImageError):
            function(content)


def test_other_files_have_no_codec():
    for content in (b"", b"\xff", file_of("BMP"), file_of("TIFF")):
        assert codec_of(content) is None
    with pytest.raises(BadImageError, match=r"it begins with b'BM.*JPEG, PNG"):
        decode_file(file_of("BMP"), RGB, (20, 30))


def test_a_kind_of_images_has_the_codecs_that_hold_it():
    assert [kind.name for kind in IMAGE_KINDS.values() if JPEG in codecs_of(kind)] == ["gray", "rgb"]
    assert all(PNG in codecs_of(kind) for kind in IMAGE_KINDS.values())
    for kind in IMAGE_KINDS.values():
        if JPEG not in codecs_of(kind):
            with pytest.raises(BadImageError, match=f"cannot hold images of kind {kind.name}"):
                JPEG.decode(file_of("JPEG"), kind, None)


def test_fields_travel_to_processes():
    for field in (RGBImageField("jpg"), ImageField("gray16", "png")):
        assert repr(pickle.loads(pickle.dumps(field))) == repr(field)
