"""Open what a loader reads: ``.beton`` files, an index, or files of other kinds, which are indexed in memory."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

from gpubeton._bytes.store_client import shown
from gpubeton._sources import is_container, open_source
from gpubeton._writing import make_index
from gpubeton.errors import RemoteMissingError
from gpubeton.reader import Reader, reader_of

if TYPE_CHECKING:
    from gpubeton.loader.config import LoaderConfig

#: Seconds of indexing from which on a loader says how to spare them.
_LONG = 2.0
_MOST_NAMED = 3


def open_data(fname: str | tuple[str, ...], config: LoaderConfig, num_workers: int) -> Reader:
    """Open the data of a loader."""
    names = [fname] if isinstance(fname, str) else [*fname]
    if not all(map(is_container, names)):
        try:
            return Reader(fname, config.custom_fields, remote=config.remote, containers=config.containers)
        except RemoteMissingError:  # no .beton files
            if not (len(names) == 1 and "://" in names[0] and names[0].endswith("/")):
                raise
    start = time.perf_counter()
    source = open_source(names, remote=config.remote if "://" in names[0] else None)
    index, unread = make_index(source, num_workers=num_workers)
    seconds = time.perf_counter() - start
    name = f"{shown(names[0])}{f' and more, {len(index.files)} files' * (len(index.files) > 1)}"
    if unread:
        few = "; ".join(unread[:_MOST_NAMED])
        warnings.warn(
            f"{name}: {len(unread)} of {index.num_samples} images have no header that can be read: {few}. "
            "on_error decides what becomes of them",
            stacklevel=4,
        )
    if seconds > _LONG:
        warnings.warn(
            f"{name}: indexing {index.num_samples:,} samples took {seconds:.0f} s. To keep the index, and "
            f"to decode only what crops need: gpubeton index {shown(names[0])}{' ...' * (len(names) > 1)} -o "
            "NAME.index, then Loader('NAME.index', ...)",
            stacklevel=4,
        )
    return reader_of(fname, index)
