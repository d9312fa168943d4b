"""The bytes of a ``.beton`` file of version 2, as numpy dtypes.

::

    0                    header, 24 bytes
    24                   one descriptor of 1041 bytes per field
    24 + 1041 * fields   metadata: one row per sample, one aligned column per field
    ... zeros up to a multiple of the page size ...
    page k               [k * page_size, (k + 1) * page_size): the regions of samples, back to back
    alloc_table_ptr      allocation table: 24 bytes per region, to the end of the file

Everything is little-endian. A region never crosses a page. Pointers are offsets from the start of the file.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

VERSION = 2

#: Limits of the writer: a power of two, at least the minimum and less than the maximum. Reading knows no minimum.
PAGE_SIZE_MIN = 2 << 20
PAGE_SIZE_MAX = 1 << 32
PAGE_SIZE_DEFAULT = 8 << 20

#: Bytes of a field's name and of its arguments in a descriptor.
NAME_SIZE = 16
ARGUMENTS_SIZE = 1024

#: MCUs from one entry point of an image to the next, in the order of the scan.
MCUS_PER_ENTRY = 8

#: An entry point: the first bit of an MCU, and the DC values of the three components before it. Bits are counted from
#: the first byte of the JPEG as it is stored; bit 0 of a byte is its highest. None lies in a stuffed zero byte.
ENTRY_DTYPE = np.dtype([("bit", "<u4"), ("dc", "<i2", 3)])

#: Most restart intervals of a JPEG whose crop alone is decoded: one for each MCU row of the largest JPEG.
MAX_INTERVALS = 8192

#: Most pixels of a byte of an image: Huffman coding takes at least one bit for each block of 8 x 8, its mean's
#: difference. Fewer pixels than the second number are not held to that: they take 48 MB, and arithmetic coding, which
#: nearly no program writes, needs less for plain areas.
PIXELS_A_BYTE, HARMLESS_PIXELS = 8 * 64, 1 << 24

HEADER_DTYPE = np.dtype(
    [
        ("version", "<u2"),
        ("num_fields", "<u2"),
        ("page_size", "<u4"),
        ("num_samples", "<u8"),
        ("alloc_table_ptr", "<u8"),
    ]
)

DESCRIPTOR_DTYPE = np.dtype([("type_id", "u1"), ("name", "u1", NAME_SIZE), ("arguments", "u1", ARGUMENTS_SIZE)])

ALLOCATION_DTYPE = np.dtype([("sample_id", "<u8"), ("ptr", "<u8"), ("size", "<u8")])

#: Metadata of an image. Width comes before height, and nothing is aligned.
IMAGE_DTYPE = np.dtype([("mode", "u1"), ("width", "<u2"), ("height", "<u2"), ("data_ptr", "<u8")])

#: Metadata of bytes and of JSON.
BYTES_DTYPE = np.dtype([("ptr", "<u8"), ("size", "<u8")])


class FieldType(IntEnum):
    """What the ``type_id`` of a descriptor means."""

    FLOAT = 0
    INT = 1
    RGB_IMAGE = 2
    BYTES = 3
    NDARRAY = 4
    JSON = 5
    TORCH_TENSOR = 6
    CUSTOM = 255


METADATA_TYPES: dict[int, np.dtype[np.generic]] = {
    FieldType.FLOAT: np.dtype("<f8"),
    FieldType.INT: np.dtype("<i8"),
    FieldType.RGB_IMAGE: IMAGE_DTYPE,
    FieldType.BYTES: BYTES_DTYPE,
    FieldType.NDARRAY: np.dtype("<u8"),
    FieldType.JSON: BYTES_DTYPE,
    FieldType.TORCH_TENSOR: np.dtype("<u8"),
}
"""Metadata of each type of field but custom ones, whose class knows it."""

PLAIN_TYPES = (FieldType.FLOAT, FieldType.INT)
"""Types whose values are in the metadata itself, without regions."""


class ImageMode(IntEnum):
    """How the region of an image is stored. FFCV has the first two, and reads every other value as raw."""

    # The files of `gpubeton.fields.codecs`, and raw pixels; each with the channels and bits of the images it can hold.
    channels: tuple[int, ...]
    bits: tuple[int, ...]

    def __new__(cls, value: int, channels: tuple[int, ...] = (1, 3, 4), bits: tuple[int, ...] = (8, 16)) -> ImageMode:
        mode = int.__new__(cls, value)
        mode._value_ = value
        mode.channels, mode.bits = channels, bits
        return mode

    JPG = 0, (1, 3), (8,)
    RAW = 1
    PNG = 2  # this and all that follow: in custom fields only, see `gpubeton.format.field_arguments`


FILE_MODES = tuple(mode for mode in ImageMode if mode is not ImageMode.RAW)
"""The modes whose region is an image file."""


def metadata_dtype(types: Sequence[DTypeLike]) -> np.dtype[np.void]:
    """Give the dtype of one metadata row."""
    return np.dtype([(f"f{number}", np.dtype(type_)) for number, type_ in enumerate(types)], align=True)


def round_up(position: int, page_size: int) -> int:
    """Give the first multiple of `page_size` that is not below `position`."""
    return -(-position // page_size) * page_size
