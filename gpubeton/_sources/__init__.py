"""Where samples come from: folders, tables, tar and zip files, Arrow files, and datasets of other libraries.

The tools, `gpubeton.dataset` and `gpubeton.cli`, import these names, and none of the modules.
"""

from __future__ import annotations

from gpubeton._sources.file_sources import FileSource
from gpubeton._sources.source import LABEL, LabelledSource, Places, Source, find_files, places_of_rows
from gpubeton._sources.source_kinds import SOURCE_KINDS, open_source, recognise

__all__ = [
    "LABEL",
    "SOURCE_KINDS",
    "FileSource",
    "LabelledSource",
    "Places",
    "Source",
    "find_files",
    "open_source",
    "places_of_rows",
    "recognise",
]
