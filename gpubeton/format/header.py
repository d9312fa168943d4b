"""The first bytes of a ``.beton`` file: its header and what fields it has."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._bytes.open_files import open_bytes
from gpubeton.errors import FieldNameError, HeaderError, NoSamplesError, TruncatedError, VersionError
from gpubeton.format.layout import ARGUMENTS_SIZE, DESCRIPTOR_DTYPE, HEADER_DTYPE, NAME_SIZE, VERSION

if TYPE_CHECKING:
    import os

    from gpubeton._bytes.byte_source import ByteSource


@dataclass(frozen=True)
class Header:
    """The header of a ``.beton`` file. Made by `read_header`."""

    version: int  #: format version, always 2
    num_fields: int  #: number of fields of a sample
    page_size: int  #: bytes of a page, a power of two
    num_samples: int  #: number of samples
    alloc_table_ptr: int  #: where the allocation table begins; it reaches to the end of the file

    @property
    def metadata_offset(self) -> int:
        """Where the metadata begins, after the descriptors."""
        return HEADER_DTYPE.itemsize + self.num_fields * DESCRIPTOR_DTYPE.itemsize


@dataclass(frozen=True)
class Descriptor:
    """The description of one field in a ``.beton`` file. Made by `open_dataset`, in its `Index`."""

    name: str  #: of the field, ASCII, at most 16 characters
    type_id: int  #: a `FieldType`, if the file is right
    arguments: bytes = bytes(ARGUMENTS_SIZE)  #: 1024 bytes whose meaning depends on the type


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read the header of a ``.beton`` file.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    Header
        Its numbers, checked on their own but not against the rest of the file.

    Raises
    ------
    FormatError
        `VersionError`, `TruncatedError`, `HeaderError` or `NoSamplesError`.

    Examples
    --------
    >>> header = read_header("train.beton")
    >>> header.version, header.num_fields, header.page_size, header.num_samples
    (2, 2, 8388608, 300)
    """
    with open_bytes(path) as source:
        return header_of(source)


def read_fields(source: ByteSource) -> tuple[Header, tuple[Descriptor, ...]]:
    """Read the header and the descriptors of the fields."""
    header = header_of(source)
    content = source.read(HEADER_DTYPE.itemsize, header.metadata_offset - HEADER_DTYPE.itemsize)
    path = source.name
    expected = header.num_fields * DESCRIPTOR_DTYPE.itemsize
    if len(content) < expected:
        raise TruncatedError(
            f"{path}: the header promises {header.num_fields} fields, whose descriptors take {expected} bytes, but "
            f"only {len(content)} bytes follow it. Either the header is damaged, or the file was cut short."
        )
    rows = np.frombuffer(content, DESCRIPTOR_DTYPE, header.num_fields)
    descriptors = tuple(
        Descriptor(_decode_name(path, number, row["name"].tobytes()), int(row["type_id"]), row["arguments"].tobytes())
        for number, row in enumerate(rows)
    )
    for name, count in Counter(descriptor.name for descriptor in descriptors).items():
        if count > 1:
            raise FieldNameError(
                f"{path}: {count} fields are called {name!r}. FFCV cuts names to {NAME_SIZE} characters when writing; "
                f"write the file again with names that differ in their first {NAME_SIZE}."
            )
    return header, descriptors


def header_of(source: ByteSource) -> Header:
    """Read the header of an open file."""
    path, content = source.name, source.read(0, HEADER_DTYPE.itemsize)
    if len(content) < HEADER_DTYPE.itemsize:
        raise TruncatedError(
            f"{path}: {len(content)} bytes, but the header of a .beton file alone has {HEADER_DTYPE.itemsize}. "
            "The file was probably never written, or cut short while copying."
        )
    header = Header(*np.frombuffer(content, HEADER_DTYPE)[0].item())
    if header.version != VERSION:
        if content.startswith(b"\xff\xd8\xff"):
            raise VersionError(f"{path}: a JPEG file, expected a .beton file. To load images, name their folder.")
        raise VersionError(
            f"{path}: probably not a .beton file: it begins with {content[:8].hex(' ')}, which is format version "
            f"{header.version}, but this library reads version {VERSION}."
        )
    if header.alloc_table_ptr == 0:
        raise TruncatedError(
            f"{path}: the header has no place for the allocation table. FFCV writes it last, "
            "so the conversion was interrupted; write the file again."
        )
    if header.num_fields == 0:
        raise HeaderError(f"{path}: the header promises 0 fields, at least 1 is needed. Write the file again.")
    if header.num_samples == 0:
        raise NoSamplesError(f"{path}: the file holds 0 samples. Check the dataset that it was written from.")
    if header.page_size == 0 or header.page_size & (header.page_size - 1):
        raise HeaderError(
            f"{path}: page size {header.page_size}, which is not a power of two. "
            "The header is damaged; compare the file with the original."
        )
    return header


def _decode_name(path: str, number: int, stored: bytes) -> str:
    name = stored.rstrip(b"\0")
    if b"\0" in name or not name.isascii():
        raise FieldNameError(
            f"{path}: the name of field {number} is stored as {stored.hex(' ')}, expected up to {NAME_SIZE} ASCII "
            "characters and then zeros. The descriptor is damaged; compare the file with the original."
        )
    return name.decode("ascii")
