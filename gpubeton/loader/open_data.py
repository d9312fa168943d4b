"""Open what a loader reads: ``.beton`` files, an index, or files of other kinds, which are indexed in memory."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._bytes.store_client import shown
from gpubeton._sources import is_container, open_source
from gpubeton._writing import make_index
from gpubeton.errors import OptionError, RemoteMissingError
from gpubeton.format.data_files import MAX_FILES
from gpubeton.format.dataset import join
from gpubeton.format.header import Descriptor
from gpubeton.format.index import Index
from gpubeton.format.layout import ARGUMENTS_SIZE, FieldType
from gpubeton.format.regions import FieldRows
from gpubeton.loader.mixture import Mixture
from gpubeton.reader import Reader, reader_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubeton.loader.config import LoaderConfig
    from gpubeton.traversal_order.mixed import MixtureRules

#: Seconds of indexing from which on a loader says how to spare them.
_LONG = 2.0
_MOST_NAMED = 3


def open_all(
    fname: str | tuple[str, ...] | Mixture, config: LoaderConfig, num_workers: int
) -> tuple[Reader, tuple[MixtureRules, list[int]] | None]:
    """Open the data of a loader; of a mixture, with the first sample of each source, and the number of all."""
    if not isinstance(fname, Mixture):
        return open_data(fname, config, num_workers), None
    reader, starts = _open_mixture(fname, config, num_workers)
    return reader, (fname.rules, starts)


def _open_mixture(mixture: Mixture, config: LoaderConfig, num_workers: int) -> tuple[Reader, list[int]]:
    """Open the sources of a mixture as one dataset."""
    starts, containers = [0], set[bool]()

    def parts() -> Iterator[Index]:
        for source in mixture.sources:
            index = open_data(source, config, num_workers).index
            starts.append(starts[-1] + index.num_samples)
            containers.update(file.is_container for file in index.files)
            yield index

    index = join(parts())
    if len(index.files) > MAX_FILES:
        raise OptionError(f"{mixture!r}: {len(index.files)} files; expected at most {MAX_FILES}")
    if len(containers) > 1:  # of containers and others, whose names are in notes, none
        index.class_names = ()
    if mixture.field is not None:
        if mixture.field in index.names:
            raise OptionError(f"{mixture!r}: field {mixture.field!r} is in its sources. Take another name")
        descriptors = (*index.descriptors, Descriptor(mixture.field, int(FieldType.INT), bytes(ARGUMENTS_SIZE)))
        rows = (*index.rows, FieldRows(np.repeat(np.arange(len(starts) - 1), np.diff(starts)).astype("<i8")))
        index = Index(index.files, index.header, descriptors, rows, class_names=index.class_names)
    return reader_of(mixture.files, index, config.custom_fields), starts


def open_data(fname: str | tuple[str, ...], config: LoaderConfig, num_workers: int) -> Reader:
    """Open one source."""
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
