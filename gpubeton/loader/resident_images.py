"""ResidentImages: decides which of a loader's JPEGs stay in the memory of its GPU, and copies them there."""

from __future__ import annotations

import threading
import warnings
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from gpubeton._cpu.jpeg.entries import JpegReader
from gpubeton._cpu.stored_bytes import find_damage, pack_regions
from gpubeton._gpu.entry_decoder import JpegHeaders, ResidentJpegs, send_piece
from gpubeton._plan.draw_rows import DRAW_COLUMNS, HEIGHT, WIDTH
from gpubeton._plan.jpeg_windows import EVERY, CropWindows, split_bands
from gpubeton._plan.routes import DecodeRoute
from gpubeton.errors import DeviceError
from gpubeton.format import ImageMode
from gpubeton.format.layout import ENTRY_DTYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._engine.sources import Source
    from gpubeton._engine.storage import MappedStorage
    from gpubeton._gpu.cuda import Device, PinnedMemory, Stream
    from gpubeton._gpu.gpu import Gpu
    from gpubeton._plan.order import IdRange
    from gpubeton.format.index import Index

_MIB = 1 << 20

# With resident="auto", the copy takes at most this part of the GPU's free memory: the model, which may not be there
# yet, and the training need the rest.
_SHARE = 16

# If no image has stored entry points, the headers of so many are read, to see whether they have restart markers.
_NUM_PROBES = 16

# Bytes of a copy to the device: long enough for the full speed of the bus.
PIECE = 32 << 20

_BIT_BYTES = 4


class StoredJpegs(NamedTuple):
    """JPEGs of one field in the files, in their order there."""

    num_samples: int  # of the files
    samples: NDArray[np.intp]  # (M,) sample ids
    offset: NDArray[np.uint64]  # (M,) global offsets
    size: NDArray[np.uint64]  # (M,) bytes
    height: NDArray[np.int32]  # (M,) by the metadata
    width: NDArray[np.int32]
    entries: NDArray[np.uint64]  # (M,) addresses of entry points; 0: none
    num_entries: NDArray[np.int32]
    seals: NDArray[np.uint32]
    checksums: NDArray[np.uint64]  # (M,) CRC-32 of the bytes; 0 if they are not to be compared

    def take(self, which: Any) -> StoredJpegs:
        """Take some of them."""
        return StoredJpegs(self.num_samples, *(column[which] for column in self[1:]))

    def read(self, address: NDArray[np.uint64]) -> CropWindows:
        """Read their headers at these addresses; the crop is the whole image."""
        draws = np.zeros((len(self.samples), DRAW_COLUMNS), np.int32)
        draws[:, HEIGHT], draws[:, WIDTH] = self.height, self.width
        return JpegReader().read(address, self.size, self.height, self.width, *self[6:9], draws)

    @property
    def nbytes(self) -> int:
        """Bytes of the JPEGs."""
        return int(self.size.sum())

    @property
    def index_nbytes(self) -> int:
        """Bytes of their entry points; those at restart markers do not count."""
        return ENTRY_DTYPE.itemsize * int(self.num_entries.sum())


class ResidentImages:
    """The JPEGs of a loader that stay in the memory of its GPU."""

    def __init__(
        self,
        gpu: Gpu,
        storage: MappedStorage | None,
        index: Index,
        sources: Sequence[Source],
        verified: Mapping[str, NDArray[np.bool_]],  # see `Engine`
    ) -> None:
        self._gpu, self._storage, self._index, self._verified = gpu, storage, index, verified
        self._sources = {source.name: source for source in sources}
        self._jpegs: dict[str, StoredJpegs] = {}  # by field
        self._reason = ""  # why there are none
        self._indices: NDArray[np.uint64] | IdRange | None = None  # for which they were chosen

    def choose(self, indices: NDArray[np.uint64] | IdRange) -> None:
        """Decide what stays there of these samples; raise DeviceError if the user insists and it is not possible."""
        if indices is not self._indices:
            self._indices, self._jpegs, self._gpu.resident = indices, {}, {}
            self._reason = self._choose(np.unique(np.asarray(indices, np.uint64)))
            self._raise_if_required()

    def load(self) -> None:
        """Copy to the GPU the chosen images that are not there."""
        if self._storage is None or not self._jpegs or self._gpu.resident:
            return
        files = tuple((file.path, file.identity) for file in self._index.files)
        total = sum(len(jpegs.samples) for jpegs in self._jpegs.values())
        loaded: dict[str, ResidentJpegs] = {}
        done = 0
        try:
            for name, jpegs in self._jpegs.items():
                advance = partial(self._advance, done, total)
                loaded[name] = load_resident(self._gpu.device, self._storage, (files, name), jpegs, advance)
                done += len(jpegs.samples)
            self._gpu.resident = loaded
        except DeviceError as error:  # others have taken the memory
            self._jpegs, self._reason = {}, str(error)
            self._raise_if_required()
            title = self._index.title
            warnings.warn(f"{title}: images do not stay in the GPU's memory: {error}", stacklevel=5)

    def explain(self) -> str:
        """Describe what stays there and how much it is, or why nothing does."""
        option = f"(resident={self._gpu.options.resident!r})"
        if not self._jpegs:
            return f"  {'resident':<9} no: {self._reason} {option}"
        images = sum(jpegs.nbytes for jpegs in self._jpegs.values()) / _MIB
        index = sum(jpegs.index_nbytes for jpegs in self._jpegs.values()) / _MIB
        resident = f"{images:.0f} MiB of JPEGs and {index:.0f} MiB of entry points"
        return f"  {'resident':<9} {resident} stay in the GPU's memory from the first epoch on {option}"

    def _choose(self, samples: NDArray[np.uint64]) -> str:
        """List what stays there; return the reason if nothing does."""
        gpu, option = self._gpu, self._gpu.options.resident
        if option is False:
            return "it was not asked for"
        if not gpu.takes_entries:
            if DecodeRoute.ENTRIES in gpu.notes:
                return f"our own decoder is {gpu.notes[DecodeRoute.ENTRIES]}"
            return "only our own decoder reads them there: decoder='entries' or 'auto', with 'own' in routes"
        if self._storage is None:
            return "the file has to be mapped into memory: os_cache=True"
        listed = {
            name: _list_jpegs(source, samples, self._storage, self._verified.get(name))
            for name, source in self._sources.items()
        }
        chosen = {name: jpegs for name, jpegs in listed.items() if jpegs is not None}
        if not chosen:
            return "no image has entry points or restart markers; gpubeton index makes entry points"
        needed = sum(jpegs.nbytes + jpegs.index_nbytes for jpegs in chosen.values())
        with gpu.device.active():
            free = gpu.device.memory_left()
        most = free if option is True else free // _SHARE
        if needed > most:
            return (
                f"the images and their entry points need {needed} bytes, and may take {most} of the {free} that are "
                f"free on {gpu.device.name} (cuda:{gpu.device.number})"
            )
        self._jpegs = chosen
        return ""

    def _raise_if_required(self) -> None:
        if self._reason and self._gpu.options.resident is True:
            raise DeviceError(
                f"{self._index.title}: resident=True: {self._reason}. Use resident='auto' to go without, "
                "or indices=... to load fewer samples"
            )

    def _advance(self, before: int, total: int, done: int) -> None:
        if self._gpu.options.on_progress is not None:
            self._gpu.options.on_progress(before + done, total)


def _list_jpegs(
    source: Source, samples: NDArray[np.uint64], storage: MappedStorage, verified: NDArray[np.bool_] | None
) -> StoredJpegs | None:
    """List the JPEGs of some samples, in the order of the files; None if our decoder takes none of them."""
    regions, column = source.regions[0], source.column
    samples = samples[column["mode"][samples] == ImageMode.JPG]
    samples = samples[np.argsort(regions.offset[samples], kind="stable")]
    count = len(samples)
    entries, counts, seals = np.zeros(count, np.uint64), np.zeros(count, np.int32), np.zeros(count, np.uint32)
    if source.entry_points is not None:
        entries, counts, seals, _ = source.entry_points.of(samples)
    height, width = source.image_sizes(samples)
    spans = regions.offset[samples], regions.size[samples].astype(np.uint64)
    checksums = np.zeros(count, np.uint64) if verified is None else source.checksums(samples, verified)[0]
    jpegs = StoredJpegs(len(column), samples.astype(np.intp), *spans, height, width, entries, counts, seals, checksums)
    if jpegs.num_entries.any():
        return jpegs
    some = jpegs.take(slice(None, None, count // _NUM_PROBES + 1))
    windows = some.read(storage.address(some.offset))
    return jpegs if windows.rows[:, EVERY].any() else None


_loading = threading.Lock()
_loaded: WeakValueDictionary[Hashable, ResidentJpegs] = WeakValueDictionary()


def load_resident(
    device: Device,
    storage: MappedStorage,
    files: Hashable,  # identifies the files and the field
    jpegs: StoredJpegs,
    on_progress: Callable[[int], object],  # called with the number of images done
    *,
    piece_nbytes: int = PIECE,  # of one copy
) -> ResidentJpegs:
    """Copy JPEGs to the device, unless a loader that is open has done so; DeviceError if memory is too small."""
    digest = blake2b(digest_size=16)
    for column in (jpegs.samples, jpegs.num_entries, jpegs.seals):
        digest.update(np.ascontiguousarray(column).data)
    key = device, files, digest.digest()
    with _loading, device.active():
        resident = _loaded.get(key)
        if resident is None:
            staging = device.allocate_pinned(max(piece_nbytes, int(jpegs.size.max())))
            stream = device.make_stream("load")
            try:
                resident = _load(device, staging, stream, storage, jpegs, on_progress)
            finally:
                staging.free()
                device.recycle([stream])
            _loaded[key] = resident
    return resident


def _load(
    device: Device,
    staging: PinnedMemory,
    stream: Stream,
    storage: MappedStorage,
    jpegs: StoredJpegs,
    on_progress: Callable[[int], object],
) -> ResidentJpegs:
    count = jpegs.num_samples
    bytes_ = device.allocate(jpegs.nbytes)
    headers, address, first_entry = JpegHeaders(), np.zeros(count, np.uint64), np.zeros(count, np.int64)
    entries: list[NDArray[np.uint8]] = [np.zeros((0, ENTRY_DTYPE.itemsize), np.uint8)]
    num_entries, target = 0, bytes_.address
    for piece in split_bands(jpegs.size.astype(np.int64), staging.nbytes):
        some = jpegs.take(piece)
        source = storage.fetch(some.offset, some.size).addresses()
        windows = some.read(source)
        is_damaged = np.zeros(len(source), np.bool_)
        find_damage(source, some.size, some.checksums, is_damaged)
        windows.rows[is_damaged, EVERY] = 0  # another decoder finds it, too
        intervals = JpegReader().list_intervals(source, some.size, some.entries, windows)
        usable = np.flatnonzero(windows.rows[:, EVERY])
        samples, size = some.samples[usable], some.size[usable]
        within = np.cumsum(size) - size
        pack_regions(source[usable], size, within + np.uint64(staging.address))
        send_piece(device, target, staging, int(size.sum()), stream)
        headers.add(samples, windows.take(usable))
        address[samples] = within + np.uint64(target)
        first_entry[samples] = intervals.first_entry[usable] + num_entries
        entries.append(intervals.entries)
        num_entries, target = num_entries + len(intervals.entries), target + int(size.sum())
        on_progress(piece.stop)
    all_entries = np.concatenate(entries)
    index = device.allocate(all_entries.nbytes)
    content = all_entries.reshape(-1)
    for start in range(0, len(content), staging.nbytes):
        nbytes = min(staging.nbytes, len(content) - start)
        staging.array[:nbytes] = content[start : start + nbytes]
        send_piece(device, index.address + start, staging, nbytes, stream)
    return ResidentJpegs(
        bytes_, index, np.ascontiguousarray(all_entries[:, :_BIT_BYTES]), headers, address, first_entry
    )
