"""Pixels of images in any form that a user has: read, turned upright, and made smaller."""

from __future__ import annotations

import io
import os
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.resize import crop_taps
from gpubeton._bytes.local_file import open_regular
from gpubeton.errors import BadImageError
from gpubeton.fields.codecs import CODECS, JPEG
from gpubeton.fields.jpeg import START, camera_metadata, decode_rgb, jpeg_size
from gpubeton.fields.png import decode_png, read_png_header
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.format.layout import HARMLESS_PIXELS, PIXELS_A_BYTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from PIL import Image

    from gpubeton._batch.resize import Taps

#: Files beside JPEG that are decoded as RGB when they are loaded, by Pillow's names.
_OTHER_FILES = (*(codec.name for codec in CODECS.values() if codec is not JPEG), "WEBP", "BMP", "TIFF", "PPM")
_LONGEST_SIDE = (1 << 16) - 1  # as of a JPEG

_PILLOW_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_ODD_PNG = {
    2: "rgb16, interlaced or with a color that means transparent",
    4: "gray with transparency, of 16 bits",
    6: "rgba16, interlaced",
}

_EXIF = b"Exif\0\0"
#: Tags of EXIF (CIPA DC-008), and in its GPS part.
_ORIENTATION, _GPS, _LATITUDE = 0x0112, 0x8825, 2
#: What XMP calls a position.
_XMP_POSITION = b"GPSLatitude"


def file_content(value: Any) -> bytes | None:
    """Give the bytes of an image file that was given as such or by its path."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | os.PathLike):
        with open_regular(value) as file:
            return file.read()
    return None


#: Why an image has no bytes.
EMPTY = "an empty file, or one that was missing when it was listed"


def open_image(content: bytes, kinds: tuple[str, ...] | None = None) -> Image.Image:
    """Open an image file of some kinds, or any that Pillow decodes by itself, as far as its header."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(content), formats=kinds)
        if image.format == "EPS":
            # A program in PostScript, which Pillow has Ghostscript run.
            raise UnidentifiedImageError("EPS")
    except UnidentifiedImageError as error:
        # Pillow names the object in memory, which is another one each time.
        names = "a kind that Pillow knows" if kinds is None else f"these kinds: JPEG, {', '.join(kinds)}"
        begin = f"its {len(content)} bytes begin with {content[:8]!r}" if content else f"it has 0 bytes: {EMPTY}"
        raise UnidentifiedImageError(f"no image of {names}; {begin}") from error
    return image


def size_of_file(content: bytes) -> tuple[int, int]:
    """Return height and width of an image file from its header; refuse more pixels than its bytes can hold."""
    if content.startswith(START):
        height, width = jpeg_size(content)
    else:
        with open_image(content, _OTHER_FILES) as image:
            width, height = image.size
    most = max(HARMLESS_PIXELS, PIXELS_A_BYTE * len(content))
    if min(height, width) < 1 or max(height, width) > _LONGEST_SIDE or height * width > most:
        raise BadImageError(
            f"its header claims {height} x {width} pixels; expected sides from 1 to {_LONGEST_SIDE}, and no more than "
            f"{most} pixels in {len(content)} bytes"
        )
    return height, width


def rgb_of_file(content: bytes) -> NDArray[np.uint8]:  # (H, W, 3), C-contiguous
    """Decode a whole image file, of any kind of which `size_of_file` gives the size."""
    return decode_rgb(content) if content.startswith(START) else pixels_of(open_image(content, _OTHER_FILES), RGB)


def pixels_of(value: Any, kind: ImageKind) -> NDArray[Any]:
    """Give the pixels of an image, and lose nothing in silence."""
    # `value`: bytes, PIL.Image.Image, ndarray or torch.Tensor; returns the kind's dtype (H, W, C): the pixels, in C
    # order
    from PIL import Image

    if isinstance(value, bytes):
        header = read_png_header(value)
        if header is not None and header.holds(kind):
            try:
                return decode_png(value, kind)
            except BadImageError as error:
                raise OSError(f"a PNG file that cannot be decoded: {error}") from error
        if header is not None and header.bits == 16 and header.color_type in (2, 4, 6):
            # Pillow would cut it to 8 bits without an error.
            content = header.kind.name if header.kind else _ODD_PNG[header.color_type]
            raise ValueError(f"a PNG file of kind {content}, but the field holds {kind.name}; convert it before")
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


def rgb_pixels_of(value: Any) -> NDArray[np.uint8]:  # (H, W, 3)
    """Give the pixels of an image for FFCV's field: Pillow reads all files, and cuts colors of 16 bits."""
    return pixels_of(open_image(value) if isinstance(value, bytes) else value, RGB)


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
        elif kind == RGB:
            advice = ". ImageField takes other images: gray, RGBA"
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
    pillow_mode = _PILLOW_MODES[kind.channels]
    pixels = np.asarray(image if image.mode == pillow_mode else image.convert(pillow_mode))
    return pixels.reshape(*pixels.shape[:2], kind.channels)


def _shapes(kind: ImageKind) -> str:
    return "(height, width)" if kind.channels == 1 else f"(height, width, {kind.channels})"


# --- upright ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageMetadata:
    """Facts that a camera has written beside the pixels."""

    orientation: int = 1  # as EXIF numbers them: 1 upright, 2 to 8 mirrored or turned
    has_position: bool = False


def read_metadata(content: bytes | None, image: Image.Image | None) -> ImageMetadata:
    """Read the metadata of a JPEG file, by its content, or of an image that Pillow has opened."""
    if image is not None:
        return _of_exif(image.getexif)
    orientation, has_position = 1, False
    for body in camera_metadata(content or b""):
        if body.startswith(_EXIF):
            metadata = _of_exif(partial(_read_exif, body))
            orientation, has_position = metadata.orientation, has_position or metadata.has_position
        elif _XMP_POSITION in body:
            has_position = True
    return ImageMetadata(orientation, has_position)


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Mirror and turn pixels, (H, W, ...), as an orientation of EXIF demands."""
    if orientation >= 5:  # rows and columns are exchanged
        pixels = pixels.swapaxes(0, 1)
    down = -1 if orientation in (3, 4, 7, 8) else 1
    across = -1 if orientation in (2, 3, 6, 7) else 1
    return np.ascontiguousarray(pixels[::down, ::across])


def _read_exif(content: bytes) -> Image.Exif:
    from PIL import Image

    exif = Image.Exif()
    exif.load(content)
    return exif


def _of_exif(load: Callable[[], Image.Exif]) -> ImageMetadata:
    # Pillow raises many kinds of errors and warnings for damaged EXIF data, which is no damage to the image.
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        exif = load()
        orientation = exif.get(_ORIENTATION, 1)
        return ImageMetadata(orientation if orientation in range(1, 9) else 1, _LATITUDE in exif.get_ifd(_GPS))
    return ImageMetadata()


# --- smaller ----------------------------------------------------------------------------------------------------------


def fitted_size(height: int, width: int, max_resolution: int | None) -> tuple[int, int]:
    """Give the size of an image whose longer side is to have at most `max_resolution` pixels."""
    if max_resolution is None or max_resolution >= max(height, width):
        return height, width
    ratio = max_resolution / max(height, width)
    return max(1, int(ratio * height)), max(1, int(ratio * width))


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
    # As loaders resize them, see `gpubeton._cpu.other_kinds`.
    alpha = pixels[..., 3:].astype(np.float32)
    means = area_average(np.concatenate([pixels[..., :3] * alpha, alpha], axis=2), height, width)
    opaque = means[..., 3:].copy()
    np.divide(means[..., :3], opaque, out=means[..., :3], where=opaque > 0)
    levels: NDArray[Any] = np.rint(np.clip(means, 0, kind.max_level)).astype(kind.dtype)
    return levels


def area_average(pixels: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Average over the area of each new pixel, to the bit as OpenCV's INTER_AREA does."""
    # `pixels`: uint8, uint16 or float32 (H, W, C); returns the same type (height, width, C): the smaller image; whole
    # numbers are rounded
    if pixels.shape[:2] == (height, width):
        return pixels
    is_whole = pixels.dtype.kind != "f"
    if is_whole and pixels.shape[0] % height == 0 and pixels.shape[1] % width == 0:
        return _average_blocks(pixels, height, width)
    # In single precision, in the order of the pixels.
    down, across = crop_taps((0, 0, *pixels.shape[:2]), (height, width))
    result = np.empty((height, width, pixels.shape[2]), pixels.dtype)
    # One color at a time: single numbers are gathered several times faster than triples.
    for color in range(pixels.shape[2]):
        plane = pixels[:, :, color].astype(np.float32)
        small = _weighted_sum(_weighted_sum(plane, across, axis=1), down, axis=0)
        result[:, :, color] = np.rint(small, out=small) if is_whole else small
    return result


def resizer(image: NDArray[Any], target_resolution: int | None) -> NDArray[Any]:
    """Make an image smaller if its longer side is too long, as the writer does; FFCV's function of that name.

    Parameters
    ----------
    image : ndarray of uint8, shape (H, W, 3)
        The image.
    target_resolution : int or None
        Most pixels that its longer side is to have; None for no limit.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
        The smaller image, or `image` itself.

    Examples
    --------
    >>> resizer(np.zeros((30, 40, 3), np.uint8), 20).shape
    (15, 20, 3)
    """
    return area_average(image, *fitted_size(image.shape[0], image.shape[1], target_resolution))


def _average_blocks(pixels: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Average blocks of whole pixels, in integers."""
    block_height, block_width = pixels.shape[0] // height, pixels.shape[1] // width
    columns = np.add.reduce(pixels.reshape(height, block_height, -1), axis=1, dtype=np.uint32)
    columns = columns.reshape(height, width, block_width, pixels.shape[2])
    total: NDArray[np.uint32] = columns[:, :, 0].copy()
    for number in range(1, block_width):
        total += columns[:, :, number]
    # OpenCV rounds halves up in blocks of 2 x 2 and to even in all others.
    if block_height == block_width == 2:
        return ((total + 2) >> 2).astype(pixels.dtype)
    scale = np.float32(1 / (block_height * block_width))
    mean: NDArray[np.float32] = total.astype(np.float32) * scale
    return np.rint(mean).astype(pixels.dtype)


def _weighted_sum(plane: NDArray[np.float32], taps: Taps, axis: int) -> NDArray[np.float32]:
    broadcast = np.expand_dims(taps.weights.T, 2 - axis)
    total: NDArray[np.float32] = plane.take(taps.first, axis=axis)
    total *= broadcast[0]
    part = np.empty_like(total)
    for number in range(1, len(broadcast)):
        # mode="clip" spares numpy a copy of the result, which it makes to survive an index out of range.
        plane.take(taps.first + number, axis=axis, out=part, mode="clip")
        part *= broadcast[number]
        total += part
    return total
