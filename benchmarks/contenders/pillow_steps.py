"""The steps as Pillow has them, with the parameters of `tests.reference.definitions`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from tests.reference import warp
from tests.reference.definitions import Fill

__all__ = ["CHANGES"]

Picture = Image.Image


def _hue(image: Picture, turn: float) -> Picture:
    return _hsv(image, 1, 1, turn)


def _hsv(image: Picture, saturation: float, value: float, turn: float) -> Picture:
    """In Pillow's HSV, 8 bits each."""
    hues, saturations, values = image.convert("HSV").split()
    changed = [
        hues.point([(level + round(turn * 256)) % 256 for level in range(256)]),
        *(
            channel.point([min(round(level * factor), 255) for level in range(256)])
            for channel, factor in ((saturations, saturation), (values, value))
        ),
    ]
    return Image.merge("HSV", changed).convert("RGB")


def _solarize_add(image: Picture, added: int) -> Picture:
    """As timm does it with Pillow."""
    return image.point([min(level + added, 255) if level < 128 else level for level in range(256)] * 3)


def _transform(image: Picture, method: Image.Transform, matrix: np.ndarray, interpolation: str, fill: Fill) -> Picture:
    resampling = Image.Resampling[interpolation.upper()]
    count = 6 if method == Image.Transform.AFFINE else 8
    return image.transform(image.size, method, matrix.ravel()[:count].tolist(), resampling, fillcolor=fill)


def _affine(
    image: Picture,
    interpolation: str,
    angle: float,
    translate: warp.Point,
    scale: float,
    shear: warp.Point,
    fill: Fill,
) -> Picture:
    place = warp.matrix((image.height, image.width), angle, translate, scale, shear)
    return _transform(image, Image.Transform.AFFINE, warp.between_pixels(place), interpolation, fill)


def _perspective(image: Picture, interpolation: str, start: warp.Corners, end: warp.Corners, fill: Fill) -> Picture:
    return _transform(image, Image.Transform.PERSPECTIVE, warp.corner_matrix(start, end), interpolation, fill)


def _paint(image: Picture, top: int, left: int, bottom: int, right: int, fill: Fill) -> Picture:
    result = image.copy()
    result.paste(fill, (left, top, right, bottom))
    return result


def _turn(image: Picture, across: bool, down: bool, diagonal: bool) -> Picture:
    for is_done, method in zip((across, down, diagonal), _TRANSPOSES, strict=True):
        image = image.transpose(method) if is_done else image
    return image


_TRANSPOSES = Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM, Image.Transpose.TRANSPOSE


def _shift(image: Picture, down: int, right: int, fill: Fill) -> Picture:
    result = Image.new("RGB", image.size, fill)
    result.paste(image, (right, down))
    return result


#: Each takes an image and parameters.
CHANGES: dict[str, Callable[..., Picture]] = {
    "brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "saturation": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "hue": _hue,
    "solarize": ImageOps.solarize,
    "solarize_add": _solarize_add,
    "posterize": ImageOps.posterize,
    "invert": ImageOps.invert,
    "autocontrast": ImageOps.autocontrast,
    "equalize": ImageOps.equalize,
    "sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
    "blur": lambda image, _, sigma: image.filter(ImageFilter.GaussianBlur(sigma)),
    "affine": _affine,
    "perspective": _perspective,
    "paint": _paint,
    "turn": _turn,
    "shift": _shift,
    "hsv": _hsv,
    "mixture": lambda image, weight: Image.blend(image, ImageOps.mirror(image), weight),
}
