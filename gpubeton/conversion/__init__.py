"""Making ``.beton`` files from datasets of other kinds, as ``gpubeton convert`` does."""

from __future__ import annotations

from gpubeton.conversion.conversion import BadSource, Conversion, convert
from gpubeton.conversion.file_settings import Settings
from gpubeton.conversion.shards import ShardedConversion, convert_shards
from gpubeton.conversion.source import Source
from gpubeton.conversion.source_kinds import SOURCE_KINDS, open_source, recognise

__all__ = [
    "SOURCE_KINDS",
    "BadSource",
    "Conversion",
    "Settings",
    "ShardedConversion",
    "Source",
    "convert",
    "convert_shards",
    "open_source",
    "recognise",
]
