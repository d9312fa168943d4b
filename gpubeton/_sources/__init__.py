"""Where samples come from: folders, tables, tar and zip files, Arrow files, and datasets of other libraries.

The tools, `gpubeton.dataset` and `gpubeton.cli`, import these names, and none of the modules.
"""

from __future__ import annotations

from gpubeton._sources.archive_sources import ArchiveSource
from gpubeton._sources.file_sources import FileSource
from gpubeton._sources.source import LABEL, LabelledSource, Places, Source, find_files
from gpubeton._sources.source_kinds import SOURCE_KINDS, is_container, open_source, recognise

__all__ = [
    "LABEL",
    "SOURCE_KINDS",
    "ArchiveSource",
    "FileSource",
    "LabelledSource",
    "Places",
    "Source",
    "find_files",
    "is_container",
    "open_source",
    "recognise",
]
