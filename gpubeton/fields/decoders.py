"""The decoders of every field."""

from __future__ import annotations

from gpubeton.fields.basics import FloatDecoder, IntDecoder
from gpubeton.fields.bytes import BytesDecoder
from gpubeton.fields.follow_image import FollowImage
from gpubeton.fields.image_decoders import (
    CenterCropRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    ResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.fields.json import JSONDecoder
from gpubeton.fields.kind_decoders import (
    CenterCropImageDecoder,
    ImageDecoder,
    RandomResizedCropImageDecoder,
    ResizedCropImageDecoder,
)
from gpubeton.fields.ndarray import NDArrayDecoder
from gpubeton.fields.ragged import RaggedDecoder

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
    "RaggedDecoder",
    "RandomResizedCropImageDecoder",
    "RandomResizedCropRGBImageDecoder",
    "ResizedCropImageDecoder",
    "ResizedCropRGBImageDecoder",
    "SimpleRGBImageDecoder",
]
