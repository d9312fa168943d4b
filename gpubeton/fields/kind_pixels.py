"""Pixels of a kind of image from whatever a user has: arrays, tensors, images of Pillow, files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.fields.area_average import area_average
from gpubeton.fields.image_codec import open_image
from gpubeton.fields.png import PngError, decode_png, read_png_header, unfilter
from gpubeton.pipeline.compiler import Compiler

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

    from gpubeton.format.field_arguments import ImageKind

__all__ = ["pixels_of_kind", "reduced"]

_PILLOW_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_ODD_PNG = {
    2: "rgb16, interlaced or with a colour that means transparent",
    4: "gray with transparency, of 16 bits",
    6: "rgba16, interlaced",
}


def pixels_of_kind(value: Any, kind: ImageKind) -> NDArray[Any]:
    """Give the pixels of an image.

    Parameters
    ----------
    value : bytes, PIL.Image.Image, ndarray or torch.Tensor
        An image file, an image of Pillow, or pixels of the kind's element type: (H, W, C), for gray images also (H, W).
    kind : ImageKind
        What is wanted. Of Pillow's images with 8 bits, colours become gray by Pillow's rule, gray ones become colours,
        and what lacks transparency becomes opaque. What would lose bits, or change what the numbers mean (a palette to
        gray, 8 bits to 16), is refused.

    Returns
    -------
    ndarray of the kind's dtype, shape (H, W, C)
        The pixels, in C order.

    Raises
    ------
    TypeError
        If `value` is something else.
    ValueError
        If it has another shape, dtype or number of bits.
    OSError
        If the file is damaged or of an unknown kind.

    Examples
    --------
    >>> from gpubeton.format.field_arguments import IMAGE_KINDS
    >>> pixels_of_kind(np.zeros((2, 3), "uint16"), IMAGE_KINDS["gray16"]).shape
    (2, 3, 1)
    """
    from PIL import Image

    if isinstance(value, bytes):
        header = read_png_header(value)
        if header is not None and header.holds(kind):
            try:
                return decode_png(value, kind, (header.height, header.width), Compiler.compile(unfilter))
            except PngError as error:
                raise OSError(f"a PNG file that cannot be decoded: {error}") from error
        if header is not None and header.bits == 16 and header.colour_type in (2, 4, 6):
            # Pillow would cut it to 8 bits, and not say so.
            found = header.kind.name if header.kind else _ODD_PNG[header.colour_type]
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
    """Make an image smaller.

    Parameters
    ----------
    pixels : ndarray, shape (H, W, C)
        The image.
    height, width : int
        The new size, not larger than the old.
    kind : ImageKind
        What it is: colours count by how opaque they are.
    interpolation : {"area", "nearest"}
        The mean over the area of each new pixel, or the pixel in the middle of it.

    Returns
    -------
    ndarray of the same type, shape (height, width, C)
        The smaller image.

    Examples
    --------
    >>> from gpubeton.format.field_arguments import IMAGE_KINDS
    >>> row = np.array([7, 7, 7, 0, 9, 9], "uint8").reshape(1, 6, 1)
    >>> reduced(row, 1, 2, IMAGE_KINDS["gray"], "nearest").ravel().tolist()
    [7, 9]
    """
    old_height, old_width = pixels.shape[:2]
    if (old_height, old_width) == (height, width):
        return pixels
    if interpolation == "nearest":
        rows = (2 * np.arange(height) + 1) * old_height // (2 * height)
        columns = (2 * np.arange(width) + 1) * old_width // (2 * width)
        return np.ascontiguousarray(pixels[rows][:, columns])
    if not kind.has_alpha:
        return area_average(pixels, height, width)
    # As loaders resize them, see `gpubeton.cpu.plain`.
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
    if mode in ("I", "F"):
        raise ValueError(
            f"an image of mode {image.mode}, which has more than 8 bits a colour, but the field holds {kind.name}; "
            "scale it to 0..255 before, or use a field of 16 bits"
        )
    if kind.channels == 1 and mode in ("P", "PA"):
        raise ValueError(
            f"an image of mode {image.mode}, whose numbers are places in a palette. For these numbers, labels perhaps, "
            "give np.asarray(image); for how bright the colours are, image.convert('L')"
        )
    wanted = _PILLOW_MODES[kind.channels]
    pixels = np.asarray(image if image.mode == wanted else image.convert(wanted))
    return pixels.reshape(*pixels.shape[:2], kind.channels)


def _shapes(kind: ImageKind) -> str:
    return "(height, width)" if kind.channels == 1 else f"(height, width, {kind.channels})"
