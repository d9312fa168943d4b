"""Making ``.beton`` files from datasets of other kinds; what ``gpubeton convert`` does."""

from __future__ import annotations

from gpubeton.conversion.conversion import BadSource, Conversion, convert
from gpubeton.conversion.opening import SOURCE_KINDS, open_source, recognise
from gpubeton.conversion.settings import Settings
from gpubeton.conversion.source import Source

__all__ = ["SOURCE_KINDS", "BadSource", "Conversion", "Settings", "Source", "convert", "open_source", "recognise"]
