"""ImageKind: channels and bits of the images of a field, and how the descriptor of a custom field names them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpubeton.errors import FieldArgumentsError
from gpubeton.format.layout import ARGUMENTS_SIZE, ImageMode

__all__ = ["IMAGE_KINDS", "RGB", "ImageKind"]

#: Begins the arguments of a custom field that holds images; a zero, the kind's name and zeros follow.
_MARK = b"gpubeton.image\0"
#: Follows the name for a class derived from the library's: the file cannot say what that one changed.
_DERIVED = b"derived"


@dataclass(frozen=True)
class ImageKind:
    """Channels and bits of the images of a field.

    Parameters
    ----------
    name : str
        What users call it.
    channels : int
        Numbers of a pixel: 1, 3 or 4.
    bits : int
        Bits of each: 8 or 16.

    Examples
    --------
    >>> IMAGE_KINDS["gray16"].pixel_size, IMAGE_KINDS["gray16"].max_level
    (2, 65535)
    """

    name: str
    channels: int
    bits: int

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Element type of decoded pixels."""
        return np.dtype("u1" if self.bits == 8 else "u2")

    @property
    def pixel_size(self) -> int:
        """Bytes of a raw pixel."""
        return self.channels * self.bits // 8

    @property
    def max_level(self) -> int:
        """The largest number that a pixel may hold: 255 or 65535."""
        return (1 << self.bits) - 1

    @property
    def has_alpha(self) -> bool:
        """Whether the last channel is how opaque a pixel is."""
        return self.channels == 4

    @property
    def has_jpeg(self) -> bool:
        """Whether JPEG, which knows neither transparency nor more than 8 bits here, can hold such images."""
        return self.bits == 8 and not self.has_alpha

    @property
    def modes(self) -> tuple[ImageMode, ...]:
        """The ways in which a custom field stores such images."""
        return (ImageMode.JPG, ImageMode.RAW, ImageMode.PNG) if self.has_jpeg else (ImageMode.RAW, ImageMode.PNG)

    @staticmethod
    def describes(arguments: bytes) -> bool:
        """Tell whether the arguments of a custom field are those of the library's own field of images.

        Parameters
        ----------
        arguments : bytes
            The 1024 bytes of its descriptor.

        Returns
        -------
        bool
            Whether they are; not for fields of classes derived from it.
        """
        parts = arguments.split(b"\0")
        return arguments.startswith(_MARK) and parts[2] != _DERIVED

    @classmethod
    def from_bytes(cls, arguments: bytes) -> ImageKind:
        """Read what a descriptor says.

        Parameters
        ----------
        arguments : bytes
            The 1024 bytes of the descriptor.

        Returns
        -------
        ImageKind
            One of `IMAGE_KINDS`.

        Raises
        ------
        FieldArgumentsError
            If they name none.
        """
        if not arguments.startswith(_MARK):
            raise FieldArgumentsError(
                f"the field was not written by ImageField: its arguments begin with {arguments[:16]!r}, not {_MARK!r}"
            )
        name = arguments[len(_MARK) :].partition(b"\0")[0]
        kind = IMAGE_KINDS.get(name.decode("ascii", "replace"))
        if kind is None:
            raise FieldArgumentsError(
                f"images of the unknown kind {name!r}, expected one of {', '.join(IMAGE_KINDS)}. The descriptor is "
                "damaged, or the file needs a newer version of this library."
            )
        return kind

    def to_bytes(self, *, is_derived: bool = False) -> bytes:
        """Give the bytes that a descriptor stores.

        Parameters
        ----------
        is_derived : bool
            Whether the field is of a class of the user's, which readers then have to be given.

        Returns
        -------
        bytes
            1024 of them.
        """
        return (_MARK + self.name.encode() + b"\0" + _DERIVED * is_derived).ljust(ARGUMENTS_SIZE, b"\0")


RGB = ImageKind("rgb", 3, 8)
"""What FFCV's image fields hold."""

IMAGE_KINDS = {
    kind.name: kind
    for kind in (
        ImageKind("gray", 1, 8),
        RGB,
        ImageKind("rgba", 4, 8),
        ImageKind("gray16", 1, 16),
        ImageKind("rgb16", 3, 16),
        ImageKind("rgba16", 4, 16),
    )
}
"""Every kind, by its name."""
