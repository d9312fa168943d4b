"""ResidentImages: decides which of a loader's JPEGs stay in the memory of its GPU, and copies them there."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.cpu.jpeg.part_reader import JpegReader
from gpubeton.cpu.pack import pack_regions
from gpubeton.errors import DeviceError
from gpubeton.format import ImageMode
from gpubeton.gpu.resident import StoredJpegs, load_resident
from gpubeton.plan.jpeg_parts import EVERY
from gpubeton.plan.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.engine.sources import Source
    from gpubeton.format.index import Index
    from gpubeton.gpu.gpu_executor import Gpu
    from gpubeton.gpu.resident import ResidentJpegs
    from gpubeton.storage import MappedStorage

_MIB = 1 << 20

# With resident="auto", the copy takes at most this part of the GPU's free memory: the model, which may not be there
# yet, and the training need the rest.
_SHARE = 16

# If no image has stored entry points, the headers of so many are read, to see whether they have restart markers.
_NUM_PROBES = 16


class ResidentImages:
    """The JPEGs of a loader that stay in the memory of its GPU."""

    def __init__(self, gpu: Gpu, storage: MappedStorage | None, index: Index, sources: Sequence[Source]) -> None:
        self._gpu, self._storage, self._index = gpu, storage, index
        self._sources = {source.name: source for source in sources}
        self._jpegs: dict[str, StoredJpegs] = {}  # by field
        self._reason = ""  # why there are none
        self._indices: NDArray[np.uint64] | None = None  # for which they were chosen

    def choose(self, indices: NDArray[np.uint64]) -> None:
        """Decide what stays there of these samples; raise DeviceError if the user insists and it is not possible."""
        if indices is not self._indices:
            self._indices, self._jpegs, self._gpu.resident = indices, {}, {}
            self._reason = self._choose(np.unique(indices))
            self._insist()

    def load(self) -> None:
        """Copy to the GPU the chosen images that are not there."""
        if self._storage is None or not self._jpegs or self._gpu.resident:
            return
        files = tuple((file.path, file.identity) for file in self._index.files)
        total = sum(len(jpegs.samples) for jpegs in self._jpegs.values())
        load = partial(load_resident, self._gpu.device, JpegReader(), pack_regions, self._storage.fetch)
        loaded: dict[str, ResidentJpegs] = {}
        done = 0
        try:
            for name, jpegs in self._jpegs.items():
                loaded[name] = load((files, name), jpegs, partial(self._advance, done, total))
                done += len(jpegs.samples)
            self._gpu.resident = loaded
        except DeviceError as error:  # others have taken the memory
            self._jpegs, self._reason = {}, str(error)
            self._insist()
            title = self._index.title
            warnings.warn(f"{title}: images do not stay in the GPU's memory: {error}", stacklevel=5)

    def explain(self) -> str:
        """Describe what stays there and how much it is, or why nothing does."""
        option = f"(resident={self._gpu.options.resident!r})"
        if not self._jpegs:
            return f"  {'resident':<9} no: {self._reason} {option}"
        images = sum(jpegs.nbytes for jpegs in self._jpegs.values()) / _MIB
        index = sum(jpegs.index_nbytes for jpegs in self._jpegs.values()) / _MIB
        kept = f"{images:.0f} MiB of JPEGs and {index:.0f} MiB of entry points"
        return f"  {'resident':<9} {kept} stay in the GPU's memory from the first epoch on {option}"

    def _choose(self, samples: NDArray[np.uint64]) -> str:
        """List what stays there; return the reason if nothing does."""
        gpu, option = self._gpu, self._gpu.options.resident
        if option is False:
            return "it was not asked for"
        if not gpu.takes_entries:
            if Lane.OWN in gpu.notes:
                return f"our own decoder is {gpu.notes[Lane.OWN]}"
            return "only our own decoder reads them there: decoder='own' or 'auto', with 'own' in lanes"
        if self._storage is None:
            return "the file has to be mapped into memory: os_cache=True"
        listed = {name: _list_jpegs(source, samples, self._storage) for name, source in self._sources.items()}
        found = {name: jpegs for name, jpegs in listed.items() if jpegs is not None}
        if not found:
            return "no image has entry points or restart markers; gpubeton index makes entry points"
        needed = sum(jpegs.nbytes + jpegs.index_nbytes for jpegs in found.values())
        with gpu.device.active():
            free = gpu.device.memory_left()
        most = free if option is True else free // _SHARE
        if needed > most:
            return (
                f"the images and their entry points need {needed} bytes, and may take {most} of the {free} that are "
                f"free on {gpu.device.name} (cuda:{gpu.device.number})"
            )
        self._jpegs = found
        return ""

    def _insist(self) -> None:
        if self._reason and self._gpu.options.resident is True:
            raise DeviceError(
                f"{self._index.title}: resident=True: {self._reason}. Use resident='auto' to go without, "
                "or indices=... to load fewer samples"
            )

    def _advance(self, before: int, total: int, done: int) -> None:
        if self._gpu.options.on_progress is not None:
            self._gpu.options.on_progress(before + done, total)


def _list_jpegs(source: Source, samples: NDArray[np.uint64], storage: MappedStorage) -> StoredJpegs | None:
    """List the JPEGs of some samples, in the order of the files; None if our decoder takes none of them."""
    regions, column = source.regions[0], source.column
    samples = samples[column["mode"][samples] == ImageMode.JPG]
    samples = samples[np.argsort(regions.offset[samples], kind="stable")]
    count = len(samples)
    entries, counts, seals = np.zeros(count, np.uint64), np.zeros(count, np.int32), np.zeros(count, np.uint32)
    if source.entry_points is not None:
        entries, counts, seals = source.entry_points.of(samples)
    height, width = (column[side][samples].astype(np.int32) for side in ("height", "width"))
    places = regions.offset[samples], regions.size[samples].astype(np.uint64)
    own = StoredJpegs(len(column), samples.astype(np.intp), *places, height, width, entries, counts, seals)
    if own.num_entries.any():
        return own
    some = own.part(slice(None, None, count // _NUM_PROBES + 1))
    parts = some.read(storage.address(some.offset), JpegReader())
    return own if parts.rows[:, EVERY].any() else None
