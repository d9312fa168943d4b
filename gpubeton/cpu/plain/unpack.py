"""Files that are decoded whole before they are cropped: PNG, and gray JPEGs that the crop decoder refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.cpu.compile import compiled
from gpubeton.cpu.fallback import UndecodableError, decode_gray, decode_rgb, jpeg_size
from gpubeton.fields.jpeg_markers import JPEG_START
from gpubeton.fields.png import PngError, decode_png, unfilter
from gpubeton.format.field_arguments import RGB, ImageKind

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array

_unfilter = compiled(unfilter)


def unpack(data: bytes, kind: ImageKind, size: tuple[int, int]) -> Array:
    """Decode a whole file.

    Parameters
    ----------
    data : bytes
        A PNG or JPEG file.
    kind : ImageKind
        What it has to hold.
    size : tuple of int
        Height and width that it has to have.

    Returns
    -------
    ndarray of the kind's dtype, shape (H, W, C), C-contiguous
        Its pixels.

    Raises
    ------
    UndecodableError
        If it is damaged, of another size, or of another kind.
    """
    if not data.startswith(JPEG_START):
        try:
            return decode_png(data, kind, size, _unfilter)
        except PngError as error:
            raise UndecodableError(str(error)) from error
    if not kind.has_jpeg:
        raise UndecodableError(f"it is a JPEG file, which cannot hold images of kind {kind.name}")
    found = jpeg_size(data)
    if found != size:
        raise UndecodableError(
            f"it is {found[0]} x {found[1]} pixels, but the file's metadata say {size[0]} x {size[1]} pixels"
        )
    return decode_rgb(data) if kind == RGB else decode_gray(data)
