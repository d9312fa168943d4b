"""Arguments of a field, as its descriptor stores them: shape and dtype of arrays, kind of images."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import numpy as np

from gpubeton.errors import FieldArgumentsError
from gpubeton.format.layout import ARGUMENTS_SIZE, ImageMode

#: 32 lengths (a zero ends them), then the length of the dtype's description, which follows.
_ARGUMENTS_DTYPE = np.dtype([("shape", "<u8", 32), ("type_length", "<u8")])

_PLAIN_DTYPE = re.compile(r"[<>|=]?[biufcmMSUV][1-9][0-9]{0,4}(\[[0-9]*[A-Za-z]+\])?")


@dataclass(frozen=True)
class ArrayArguments:
    """Shape and dtype of every value of an array field."""

    shape: tuple[int, ...]  # shape of one value; ``()`` for a scalar
    dtype: np.dtype[np.generic]  # a plain dtype without Python objects, possibly big-endian

    @property
    def nbytes(self) -> int:
        """Bytes of one value."""
        return math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def from_bytes(cls, arguments: bytes) -> ArrayArguments:
        """Decode the arguments of a descriptor."""
        stored = np.frombuffer(arguments, _ARGUMENTS_DTYPE, 1)[0]
        lengths: list[int] = stored["shape"].tolist()
        while lengths and lengths[-1] == 0:
            lengths.pop()
        if 0 in lengths:
            raise FieldArgumentsError(f"shape {tuple(lengths)} has a length of 0 inside")
        text = arguments[_ARGUMENTS_DTYPE.itemsize :]
        if int(stored["type_length"]) > len(text):
            raise FieldArgumentsError(f"a dtype of {stored['type_length']} bytes, expected at most {len(text)}")
        return cls(tuple(lengths), _parse_dtype(text[: int(stored["type_length"])]))

    def to_bytes(self) -> bytes:
        """Give the bytes that a descriptor stores, equal to FFCV's."""
        if len(self.shape) > 32 or any(length < 1 for length in self.shape):
            raise FieldArgumentsError(f"shape {self.shape}: the format holds up to 32 lengths of at least 1")
        # Structures and subarrays have the `str` of plain memory, and are not equal to it.
        if not _PLAIN_DTYPE.fullmatch(self.dtype.str) or np.dtype(self.dtype.str) != self.dtype:
            raise FieldArgumentsError(f"dtype {self.dtype}: the format holds plain numbers only")
        text = json.dumps(self.dtype.descr).encode("ascii")
        stored = np.zeros(1, _ARGUMENTS_DTYPE)
        stored["shape"][0, : len(self.shape)] = self.shape
        stored["type_length"] = len(text)
        return (stored.tobytes() + text).ljust(ARGUMENTS_SIZE, b"\0")


def _parse_dtype(text: bytes) -> np.dtype[np.generic]:
    """Turn ``[["", "<f4"]]`` into a dtype, without evaluating anything."""
    try:
        [[name, code]] = json.loads(text)
        # Of what np.dtype() accepts, only numbers, strings and plain memory: an object array
        # would make its reader follow pointers that were read from a file.
        if name != "" or not _PLAIN_DTYPE.fullmatch(code):
            raise ValueError(f"{code!r} is not a plain dtype")
        dtype: np.dtype[np.generic] = np.dtype(code)
    except (ValueError, TypeError, RecursionError) as error:
        raise FieldArgumentsError(f'the dtype is stored as {text!r}, expected JSON such as [["", "<f4"]]') from error
    return dtype


#: Begins the arguments of a custom field that holds images; a zero, the kind's name and zeros follow.
_MARK = b"gpubeton.image\0"
#: Follows the name for a class derived from the library's: the file cannot describe its changes.
_DERIVED = b"derived"


@dataclass(frozen=True)
class ImageKind:
    """Channels and bits of the images of a field."""

    name: str  # what users call it
    channels: int  # numbers of a pixel: 1, 3 or 4
    bits: int  # bits of each: 8 or 16

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
        """Whether JPEG can hold such images."""
        return ImageMode.JPG in self.modes

    @property
    def modes(self) -> tuple[ImageMode, ...]:
        """The ways in which a custom field stores such images."""
        return tuple(mode for mode in ImageMode if self.channels in mode.channels and self.bits in mode.bits)

    @staticmethod
    def describes(arguments: bytes) -> bool:
        """Tell whether the arguments of a custom field are those of the library's own field of images."""
        parts = arguments.split(b"\0")
        return arguments.startswith(_MARK) and parts[2] != _DERIVED

    @classmethod
    def from_bytes(cls, arguments: bytes) -> ImageKind:
        """Decode the arguments of a descriptor."""
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
        """Give the bytes that a descriptor stores."""
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
