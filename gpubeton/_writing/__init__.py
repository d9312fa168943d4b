"""Write ``.beton`` files: encode in several processes, place samples in order, show the file only when it is complete.

One process encodes a chunk of samples and keeps its bytes. The calling process learns only their sizes, and decides in
the order of the samples where they go; the encoding process writes them there. So no image passes through a pipe, and
the bytes of the file do not depend on the number of processes.

The tools, `gpubeton.dataset` and `gpubeton.cli`, import these names, and none of the modules.
"""

from __future__ import annotations

from gpubeton._writing.chunks import ChunkPlace, RegionSizes
from gpubeton._writing.encoder import (
    MAX_CHUNKSIZE,
    Job,
    Task,
    TaskQueue,
    check_on_error,
    check_size,
    default_start_method,
    open_encoders,
    split_rows,
    without_place,
)
from gpubeton._writing.file_builder import FileBuilder, MovedRegions, checked_page_size, make_descriptors
from gpubeton._writing.make_indexes import find_all, find_checksums, index_file, make_index
from gpubeton._writing.targets import (
    AtomicFile,
    FinishedChunk,
    ResumableFile,
    TargetFolder,
    check_target,
    is_locked,
    remove_if_abandoned,
    resolve_target,
    short_name,
    write_at,
)

__all__ = [
    "MAX_CHUNKSIZE",
    "AtomicFile",
    "ChunkPlace",
    "FileBuilder",
    "FinishedChunk",
    "Job",
    "MovedRegions",
    "RegionSizes",
    "ResumableFile",
    "TargetFolder",
    "Task",
    "TaskQueue",
    "check_on_error",
    "check_size",
    "check_target",
    "checked_page_size",
    "default_start_method",
    "find_all",
    "find_checksums",
    "index_file",
    "is_locked",
    "make_descriptors",
    "make_index",
    "open_encoders",
    "remove_if_abandoned",
    "resolve_target",
    "short_name",
    "split_rows",
    "without_place",
    "write_at",
]
