"""Fields: how the columns of a dataset are stored, and the decoders that read them.

An argument out of its range raises an `OptionError`, which names it, its value and the values that are allowed.
"""

from __future__ import annotations

from gpubeton.fields.base import Field
from gpubeton.fields.basics import FloatField, IntField
from gpubeton.fields.bytes import BytesField
from gpubeton.fields.image_field import ImageField
from gpubeton.fields.json import JSONField
from gpubeton.fields.ndarray import NDArrayField, RaggedField, TorchTensorField
from gpubeton.fields.rgb_image import RGBImageField

__all__ = [
    "BytesField",
    "Field",
    "FloatField",
    "ImageField",
    "IntField",
    "JSONField",
    "NDArrayField",
    "RGBImageField",
    "RaggedField",
    "TorchTensorField",
]
