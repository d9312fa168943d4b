"""FFCV's file format, version 2. Needs numpy alone."""

from __future__ import annotations

from gpubeton.format.file_notes import Notes, read_notes
from gpubeton.format.header import Descriptor, Header, read_descriptors, read_header
from gpubeton.format.index import Index
from gpubeton.format.layout import FieldType, ImageMode
from gpubeton.format.regions import Regions

__all__ = [
    "Descriptor",
    "FieldType",
    "Header",
    "ImageMode",
    "Index",
    "Notes",
    "Regions",
    "read_descriptors",
    "read_header",
    "read_notes",
]
