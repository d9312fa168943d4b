"""Pixels of images in any form that a user has, and files made of them."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.descriptors import open_regular
from gpubeton.fields.area_average import area_average
from gpubeton.fields.png import PngError, decode_png, read_png_header, unfilter
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.pipeline.compiler import Compiler

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

_PILLOW_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_ODD_PNG = {
    2: "rgb16, interlaced or with a color that means transparent",
    4: "gray with transparency, of 16 bits",
    6: "rgba16, interlaced",
}


def file_content(value: Any) -> bytes | None:
    """Give the bytes of an image file that was given as such or by its path."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | os.PathLike):
        with open_regular(value) as file:
            return file.read()
    return None


def pixels_of(value: Any) -> NDArray[np.uint8]:
    """Give the pixels of an image."""
    # `value`: bytes, PIL.Image.Image or ndarray of uint8 (H, W, 3); returns uint8 (H, W, 3): RGB, in C order
    from PIL import Image

    if isinstance(value, bytes):
        with open_image(value) as image:
            return _of_pillow(image, RGB)
    if isinstance(value, Image.Image):
        return _of_pillow(value, RGB)
    if not isinstance(value, np.ndarray):
        raise TypeError(
            f"an image of type {type(value).__name__}, expected a PIL.Image, a uint8 array of shape (H, W, 3), "
            "or an image file as bytes or path"
        )
    if value.dtype != np.uint8:
        raise ValueError(f"an image of dtype {value.dtype}, expected uint8 with values from 0 to 255")
    if value.ndim != 3 or value.shape[2] != 3 or 0 in value.shape:
        raise ValueError(
            f"an image of shape {value.shape}, expected (height, width, 3). ImageField takes other images: gray, RGBA"
        )
    return np.ascontiguousarray(value)


def encode_jpeg(pixels: NDArray[np.uint8], quality: int) -> bytes:
    """Compress an image to a baseline JPEG file with 4:2:0 chroma."""
    # `pixels`: uint8 (H, W, 3); the bytes equal those of OpenCV, which FFCV uses.
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality, subsampling="4:2:0")
    return file.getvalue()


def open_image(content: bytes) -> Image.Image:
    """Open an image file of any kind that Pillow decodes by itself, as far as its header."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(content))
        if image.format == "EPS":
            # A program in PostScript, which Pillow has Ghostscript run.
            raise UnidentifiedImageError("EPS")
    except UnidentifiedImageError as error:
        # Pillow names the object in memory, which is another one each time.
        raise UnidentifiedImageError(
            f"no image of a kind that Pillow knows; its {len(content)} bytes begin with {content[:8]!r}"
        ) from error
    return image


def pixels_of_kind(value: Any, kind: ImageKind) -> NDArray[Any]:
    """Give the pixels of an image."""
    # `value`: bytes, PIL.Image.Image, ndarray or torch.Tensor; returns the kind's dtype (H, W, C): the pixels, in C
    # order
    from PIL import Image

    if isinstance(value, bytes):
        header = read_png_header(value)
        if header is not None and header.holds(kind):
            try:
                return decode_png(value, kind, (header.height, header.width), Compiler.compile(unfilter))
            except PngError as error:
                raise OSError(f"a PNG file that cannot be decoded: {error}") from error
        if header is not None and header.bits == 16 and header.color_type in (2, 4, 6):
            # Pillow would cut it to 8 bits without an error.
            found = header.kind.name if header.kind else _ODD_PNG[header.color_type]
            raise ValueError(f"a PNG file of kind {found}, but the field holds {kind.name}; convert it before")
        with open_image(value) as image:
            return _of_pillow(image, kind)
    if isinstance(value, Image.Image):
        return _of_pillow(value, kind)
    if type(value).__module__ == "torch":
        value = value.numpy(force=True)
    if not isinstance(value, np.ndarray):
        raise TypeError(
            f"an image of type {type(value).__name__}, expected a PIL.Image, an array or tensor of {kind.dtype} and "
            f"shape {_shapes(kind)}, or an image file as bytes or path"
        )
    return _of_array(value, kind)


def reduced(pixels: NDArray[Any], height: int, width: int, kind: ImageKind, interpolation: str) -> NDArray[Any]:
    """Make an image smaller."""
    # `pixels`: ndarray (H, W, C); returns the same type (height, width, C): the smaller image
    old_height, old_width = pixels.shape[:2]
    if (old_height, old_width) == (height, width):
        return pixels
    if interpolation == "nearest":
        rows = (2 * np.arange(height) + 1) * old_height // (2 * height)
        columns = (2 * np.arange(width) + 1) * old_width // (2 * width)
        return np.ascontiguousarray(pixels[rows][:, columns])
    if not kind.has_alpha:
        return area_average(pixels, height, width)
    # As loaders resize them, see `gpubeton._cpu.plain`.
    alpha = pixels[..., 3:].astype(np.float32)
    means = area_average(np.concatenate([pixels[..., :3] * alpha, alpha], axis=2), height, width)
    opaque = means[..., 3:].copy()
    np.divide(means[..., :3], opaque, out=means[..., :3], where=opaque > 0)
    made: NDArray[Any] = np.rint(np.clip(means, 0, kind.max_level)).astype(kind.dtype)
    return made


def _of_array(array: NDArray[Any], kind: ImageKind) -> NDArray[Any]:
    if not np.can_cast(array.dtype, kind.dtype, "equiv"):
        raise ValueError(
            f"an image of dtype {array.dtype}, but the field holds {kind.name}: expected {kind.dtype} with values from "
            f"0 to {kind.max_level}"
        )
    pixels = array[..., None] if array.ndim == 2 and kind.channels == 1 else array
    if pixels.ndim != 3 or pixels.shape[2] != kind.channels or 0 in pixels.shape:
        advice = ""
        if pixels.ndim == 3 and pixels.shape[0] == kind.channels:
            advice = "; put the channels last, with np.moveaxis(image, 0, -1) or image.permute(1, 2, 0)"
        raise ValueError(
            f"an image of shape {array.shape}, but the field holds {kind.name}: expected {_shapes(kind)}{advice}"
        )
    return np.ascontiguousarray(pixels, kind.dtype)


def _of_pillow(image: Image.Image, kind: ImageKind) -> NDArray[Any]:
    mode = image.mode.partition(";")[0]
    if kind.bits == 16:
        if mode != "I" or kind.channels != 1:
            raise ValueError(
                f"an image of mode {image.mode}, but the field holds {kind.name}; of Pillow's, only I;16 and I are "
                f"images of 16 bits. Give an array of uint16 and shape {_shapes(kind)}"
            )
        levels = np.asarray(image)
        if levels.min() < 0 or levels.max() > kind.max_level:
            raise ValueError(
                f"an image with values from {levels.min()} to {levels.max()}, but the field holds {kind.name}: "
                f"expected 0 to {kind.max_level}"
            )
        return np.ascontiguousarray(levels[..., None], kind.dtype)
    if mode in ("I", "F"):  # Pillow would cut its numbers instead of scaling them
        raise ValueError(
            f"an image of mode {image.mode}, which has more than 8 bits a color, but the field holds {kind.name}; "
            "scale it to 0..255 before, or keep it in an ImageField of 16 bits"
        )
    if kind.channels == 1 and mode in ("P", "PA"):
        raise ValueError(
            f"an image of mode {image.mode}, whose numbers are places in a palette. For these numbers, labels perhaps, "
            "give np.asarray(image); for how bright the colors are, image.convert('L')"
        )
    wanted = _PILLOW_MODES[kind.channels]
    pixels = np.asarray(image if image.mode == wanted else image.convert(wanted))
    return pixels.reshape(*pixels.shape[:2], kind.channels)


def _shapes(kind: ImageKind) -> str:
    return "(height, width)" if kind.channels == 1 else f"(height, width, {kind.channels})"
