"""Datasets as files: make ``.beton`` files of other datasets, copy, index, inspect and verify them.

The ``gpubeton`` command calls these functions; so can your program.
"""

from __future__ import annotations

from gpubeton._sources import SOURCE_KINDS, Places, Source, open_source, recognise
from gpubeton.dataset.containers import IndexedSource, index_source, write_index
from gpubeton.dataset.contents import Contents, Extraction, StoredImage, extract
from gpubeton.dataset.conversion import Conversion, SkippedSample, convert
from gpubeton.dataset.copying import choose, copy_samples, split
from gpubeton.dataset.file_settings import Settings
from gpubeton.dataset.indexing import Indexed, IndexedShards, index_images, index_shards
from gpubeton.dataset.shards import ShardedConversion, convert_shards
from gpubeton.dataset.summary import FieldSummary, ImageSummary, Spread, Summary, summarize
from gpubeton.dataset.verification import Finding, Verification, verify

__all__ = [
    "SOURCE_KINDS",
    "Contents",
    "Conversion",
    "Extraction",
    "FieldSummary",
    "Finding",
    "ImageSummary",
    "Indexed",
    "IndexedShards",
    "IndexedSource",
    "Places",
    "Settings",
    "ShardedConversion",
    "SkippedSample",
    "Source",
    "Spread",
    "StoredImage",
    "Summary",
    "Verification",
    "choose",
    "convert",
    "convert_shards",
    "copy_samples",
    "extract",
    "index_images",
    "index_shards",
    "index_source",
    "open_source",
    "recognise",
    "split",
    "summarize",
    "verify",
    "write_index",
]
