"""FFCV's file format, version 2. Needs numpy alone.

`gpubeton.format.dataset.open_dataset` opens it, in whatever files it is.
"""

from __future__ import annotations

from gpubeton.format.dataset import open_dataset
from gpubeton.format.file_notes import Notes, read_notes
from gpubeton.format.header import Descriptor, Header, read_header
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
    "open_dataset",
    "read_header",
    "read_notes",
]
