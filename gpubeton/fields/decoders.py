"""The decoders of every field."""

from __future__ import annotations

from gpubeton.fields.basics import FloatDecoder, IntDecoder
from gpubeton.fields.bytes import BytesDecoder
from gpubeton.fields.image_decoders import (
    CenterCropImageDecoder,
    FollowImage,
    ImageDecoder,
    PadImageDecoder,
    RandomResizedCropImageDecoder,
    ResizedCropImageDecoder,
)
from gpubeton.fields.json import JSONDecoder
from gpubeton.fields.ndarray import NDArrayDecoder, RaggedDecoder
from gpubeton.fields.rgb_image import (
    CenterCropRGBImageDecoder,
    PadRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    ResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)

__all__ = [
    "BytesDecoder",
    "CenterCropImageDecoder",
    "CenterCropRGBImageDecoder",
    "FloatDecoder",
    "FollowImage",
    "ImageDecoder",
    "IntDecoder",
    "JSONDecoder",
    "NDArrayDecoder",
    "PadImageDecoder",
    "PadRGBImageDecoder",
    "RaggedDecoder",
    "RandomResizedCropImageDecoder",
    "RandomResizedCropRGBImageDecoder",
    "ResizedCropImageDecoder",
    "ResizedCropRGBImageDecoder",
    "SimpleRGBImageDecoder",
]
