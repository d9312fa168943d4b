"""Making ``.beton`` files from datasets of other kinds, as ``gpubeton convert`` does."""

from __future__ import annotations

from gpubeton.conversion.conversion import BadSource, Conversion, convert
from gpubeton.conversion.file_settings import Settings
from gpubeton.conversion.shard_plan import ShardPlan, load_plan, plan_shards
from gpubeton.conversion.sharded import ShardedConversion, convert_shard, convert_shards, finish
from gpubeton.conversion.source import Source
from gpubeton.conversion.source_kinds import SOURCE_KINDS, open_source, recognise

__all__ = [
    "SOURCE_KINDS",
    "BadSource",
    "Conversion",
    "Settings",
    "ShardPlan",
    "ShardedConversion",
    "Source",
    "convert",
    "convert_shard",
    "convert_shards",
    "finish",
    "load_plan",
    "open_source",
    "plan_shards",
    "recognise",
]
