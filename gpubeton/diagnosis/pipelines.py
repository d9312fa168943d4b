"""Pipelines to measure a file with, if the user's own are not at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.fields import RGBImageField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

if TYPE_CHECKING:
    from gpubeton.reader import Reader

__all__ = ["image_field", "pipelines_for"]

_MEAN = (123.675, 116.28, 103.53)
_DEVIATION = (58.395, 57.12, 57.375)


def image_field(reader: Reader, wanted: str | None = None) -> str | None:
    """Choose the field with images.

    Parameters
    ----------
    reader : Reader
        The file.
    wanted : str, optional
        The field asked for, by default the first with images.

    Returns
    -------
    str or None
        Its name; None if the file has none.

    Raises
    ------
    OptionError
        If there is no such field with images.
    """
    names = [name for name, handler in reader.handlers.items() if isinstance(handler, RGBImageField)]
    if wanted is not None and wanted not in names:
        raise OptionError(f"{wanted!r} is no field with images; expected one of {names}")
    return wanted or next(iter(names), None)


def pipelines_for(reader: Reader, field: str | None, size: int, *, is_augmented: bool) -> dict[str, Any]:
    """Make pipelines for all fields.

    Parameters
    ----------
    reader : Reader
        The file.
    field : str or None
        The field with images; other fields with images are left out.
    size : int
        Side of the crops in pixels.
    is_augmented : bool
        Whether images are mirrored and normalised to float16, or only cropped and resized.

    Returns
    -------
    dict of str to list of Operation or None
        For a `Loader`; fields without images get their own decoders.
    """
    pipelines: dict[str, Any] = dict.fromkeys(
        name for name, handler in reader.handlers.items() if isinstance(handler, RGBImageField)
    )
    if field is not None:
        augmentations = [RandomHorizontalFlip(), NormalizeImage(_MEAN, _DEVIATION, np.float16)] if is_augmented else []
        crop = RandomResizedCropRGBImageDecoder((size, size))
        pipelines[field] = [crop, *augmentations, ToTensor(), ToTorchImage()]
    return pipelines
