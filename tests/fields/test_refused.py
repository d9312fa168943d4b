"""Values and arguments that fields and decoders refuse."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from gpubeton.errors import OptionError
from gpubeton.fields import BytesField, FloatField, ImageField, IntField, JSONField, NDArrayField, RGBImageField
from gpubeton.fields.decoders import (
    CenterCropRGBImageDecoder,
    PadRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
)
from gpubeton.fields.png import encode_png
from tests.fields.memory import encode

FLOATS = NDArrayField("<f4", (2, 3))
GRAY, GRAY16, RGB, RGBA = (ImageField(mode) for mode in ("gray", "gray16", "rgb", "rgba"))


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        (IntField(), 2**63, OverflowError, None),
        (IntField(), None, TypeError, None),
        (IntField(), "a", ValueError, None),
        (IntField(), float("nan"), ValueError, None),
        (FloatField(), "a", ValueError, None),
        *((BytesField(), value, TypeError, "1-dimensional uint8") for value in ([1, 2], "text", 3, None)),
        *((BytesField(), np.zeros(shape, np.uint8), (ValueError, TypeError), None) for shape in ((2, 2), ())),
        # Numbers are refused instead of cut.
        *((BytesField(), np.array([value]), ValueError, "no bytes") for value in (256, -1, 0.5, "a")),
        (JSONField(), {1, 2}, TypeError, "not JSON serializable"),
        *((FLOATS, np.ones(shape, "<f4"), ValueError, r"\(2, 3\)") for shape in ((3, 2), 6, (2, 4))),
        *((FLOATS, np.ones((2, 3), dtype), ValueError, "float32") for dtype in ("<i4", "<f8", "<f2")),
        (GRAY, np.zeros((4, 4)), ValueError, r"dtype float64, but the field holds gray: expected uint8"),
        (GRAY, np.zeros((4, 4), "u2"), ValueError, r"dtype uint16.*from 0 to 255"),
        (GRAY16, np.zeros((4, 4), "u1"), ValueError, r"dtype uint8.*uint16 with values from 0 to 65535"),
        (GRAY, np.zeros((4, 4, 3), "u1"), ValueError, r"shape \(4, 4, 3\).*expected \(height, width\)"),
        (RGBA, np.zeros((4, 9, 9), "u1"), ValueError, r"shape \(4, 9, 9\).*put the channels last"),
        (RGB, np.zeros((0, 4, 3), "u1"), ValueError, r"shape \(0, 4, 3\)"),
        (GRAY, 7, TypeError, "type int, expected a PIL.Image"),
        (GRAY, Image.new("P", (4, 4)), ValueError, r"places in a palette.*np.asarray\(image\)"),
        (GRAY, Image.new("I;16", (4, 4)), ValueError, "mode I;16, which has more than 8 bits"),
        (GRAY, Image.new("F", (4, 4)), ValueError, "mode F, which has more than 8 bits"),
        (GRAY16, Image.new("L", (4, 4)), ValueError, "mode L, but the field holds gray16"),
        (GRAY16, Image.new("F", (4, 4)), ValueError, "mode F, but the field holds gray16"),
        (GRAY16, Image.new("I", (4, 4), 70_000), ValueError, "values from 70000 to 70000"),
        (GRAY16, Image.new("I", (4, 4), -1), ValueError, "values from -1 to -1"),
        (RGB, encode_png(np.zeros((2, 2, 3), "u2")), ValueError, "PNG file of kind rgb16, but the field holds rgb"),
        (GRAY, b"no image", OSError, "no image of a kind"),
    ],
)
def test_a_value_that_a_field_does_not_hold_is_refused_with_its_type_or_shape(field, value, error, message):
    with pytest.raises(error, match=message):
        encode(field, value)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (RGBImageField, {"write_mode": "jpeg"}, "write_mode is"),
        (RGBImageField, {"max_resolution": 0}, "max_resolution is"),
        (RGBImageField, {"jpeg_quality": 0}, "jpeg_quality is"),
        (RGBImageField, {"jpeg_quality": 101}, "jpeg_quality is"),
        (RGBImageField, {"compress_probability": 1.5}, "compress_probability is"),
        (RGBImageField, {"seed": -1}, "seed is"),
        (ImageField, {"mode": "grey"}, "mode is 'grey'.*'gray', 'rgb'"),
        (ImageField, {"mode": "gray16", "write_mode": "jpg"}, "'jpg', which cannot hold images of kind gray16"),
        (ImageField, {"write_mode": "webp"}, "write_mode is 'webp'.*'raw', 'jpg', 'png'"),
        (ImageField, {"max_resolution": 0}, "max_resolution is 0"),
        (ImageField, {"jpeg_quality": 101}, "jpeg_quality is 101"),
        (ImageField, {"compress_probability": 2}, "compress_probability is 2"),
        (ImageField, {"seed": -1}, "seed is -1"),
        (ImageField, {"interpolation": "cubic"}, "interpolation is 'cubic'"),
        (CenterCropRGBImageDecoder, {"output_size": 8, "ratio": 0}, "ratio is 0; expected"),
        (CenterCropRGBImageDecoder, {"output_size": 8, "ratio": 1.1}, "ratio is 1.1; expected"),
        (CenterCropRGBImageDecoder, {"output_size": 8, "interpolation": "cubic"}, "interpolation is 'cubic'; expected"),
        (PadRGBImageDecoder, {"output_size": 8, "fill": (1, 2)}, "fill is .*expected"),
        (PadRGBImageDecoder, {"output_size": 8, "fill": "gray"}, "fill is .*expected"),
        (PadRGBImageDecoder, {"output_size": 8, "position": "left"}, "position is 'left'; expected"),
        (RandomResizedCropRGBImageDecoder, {"output_size": 8, "scale": (0, 1)}, r"scale is \(0, 1\); expected"),
        (RandomResizedCropRGBImageDecoder, {"output_size": 8, "ratio": (2, 1)}, r"ratio is \(2, 1\); expected"),
    ],
)
def test_an_argument_out_of_its_range_is_refused_with_its_name(make, arguments, message):
    with pytest.raises(OptionError, match=message):
        make(**arguments)
