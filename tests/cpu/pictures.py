"""Pictures to store and to compare with: made, not found, so that every size and kind is at hand."""

from __future__ import annotations

import io

import numpy as np
import simplejpeg
from PIL import Image

from tests.reference.weights import resize

SIMPLEJPEG_NAMES = {"4:4:4": "444", "4:2:2": "422", "4:2:0": "420", "4:4:0": "440", "4:1:1": "411"}

#: The kinds that the crop decoder knows.
SAMPLINGS = ("4:2:0", "4:2:2", "4:4:0", "4:4:4", "gray")


def noise(height, width, seed=0):
    """Uniform noise: all levels, so that no error stays hidden."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def photo(height, width, seed=0):
    """Slopes, edges, saturated colors and grain, as in a photograph."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    picture = np.zeros((height, width, 3))
    for channel in range(3):
        a, b, c = generator.uniform(-3, 3, 3)
        picture[..., channel] = 128 + 90 * np.sin(a * 4 * x + b * 3 * y + c)
    for _ in range(6):
        center_y, center_x, radius = generator.uniform(0, 1, 3)
        inside = (y - center_y) ** 2 + (x - center_x) ** 2 < (0.3 * radius) ** 2
        picture[inside] = generator.uniform(0, 255, 3)
    picture += generator.normal(0, 4, picture.shape)
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


def jpeg(rgb, quality=90, sampling="4:2:0"):
    """Encode with libjpeg-turbo; ``gray`` takes the green channel."""
    if sampling == "gray":
        gray = np.ascontiguousarray(rgb[:, :, 1:2])
        return simplejpeg.encode_jpeg(gray, quality, colorspace="GRAY", colorsubsampling="Gray")
    return simplejpeg.encode_jpeg(np.ascontiguousarray(rgb), quality, colorsubsampling=SIMPLEJPEG_NAMES[sampling])


def pillow_jpeg(rgb, mode="RGB", **options):
    """Encode with Pillow, which knows progressive files, restart markers, CMYK and optimized tables."""
    file = io.BytesIO()
    Image.fromarray(rgb).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def decoded(data):
    """What libjpeg-turbo makes of a JPEG: uint8 RGB."""
    return simplejpeg.decode_jpeg(data, strict=True)


def planes(data):
    """Y, Cb and Cr of every pixel as libjpeg-turbo has them before it turns them into RGB, uint8 (h, w, 3)."""
    with Image.open(io.BytesIO(data)) as image:
        if image.mode == "L":
            gray = np.asarray(image)
            return np.stack([gray, np.full_like(gray, 128), np.full_like(gray, 128)], axis=-1)
        image.draft("YCbCr", image.size)
        assert image.mode == "YCbCr"
        return np.asarray(image)


def rgb_of_planes(ycc):
    """JFIF's conversion, in float64 and clamped at the very end."""
    y, cb, cr = np.moveaxis(np.asarray(ycc, np.float64), -1, 0)
    cb, cr = cb - 128, cr - 128
    rgb = [y + 1.402 * cr, y - 0.344136286 * cb - 0.714136286 * cr, y + 1.772 * cb]
    return np.clip(np.stack(rgb, axis=-1), 0, 255)


def planar_reference(data, box, size, interpolation, *, flip=False):
    """What the crop decoder has to make of a JPEG: planes resampled first, RGB made and clamped last."""
    top, left, height, width = box
    crop = planes(data)[top : top + height, left : left + width]
    # The decoder resamples across first: bicubic is limited to the levels in between.
    resized = resize(crop.swapaxes(0, 1), size[::-1], interpolation).swapaxes(0, 1)
    rgb = rgb_of_planes(resized)
    return rgb[:, ::-1] if flip else rgb
