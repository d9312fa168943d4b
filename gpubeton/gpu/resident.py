"""ResidentJpegs: the JPEGs of a field and their entry points, kept in the memory of a GPU."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from gpubeton.format.entry_points import ENTRY
from gpubeton.gpu.jpeg_launch import split_bands
from gpubeton.plan.draw_rows import DRAW_COLUMNS, HEIGHT, WIDTH
from gpubeton.plan.jpeg_parts import EVERY, PART_COLUMNS, TABLE_BYTES, JpegParts

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray

    from gpubeton.gpu.device import Device, Memory, PinnedMemory, Stream
    from gpubeton.plan.cpu_services import ReadJpegs
    from gpubeton.plan.image_executor import ImageJob
    from gpubeton.plan.jpeg_parts import Intervals

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

    def part(self, places: Any) -> StoredJpegs:
        """Take some of them."""
        return StoredJpegs(self.num_samples, *(column[places] for column in self[1:]))

    def read(self, address: NDArray[np.uint64], reader: ReadJpegs) -> JpegParts:
        """Read their headers at these addresses; the crop is the whole image."""
        draws = np.zeros((len(self.samples), DRAW_COLUMNS), np.int32)
        draws[:, HEIGHT], draws[:, WIDTH] = self.height, self.width
        return reader.read(address, self.size, self.height, self.width, *self[6:], draws)

    @property
    def nbytes(self) -> int:
        """Bytes of the JPEGs."""
        return int(self.size.sum())

    @property
    def index_nbytes(self) -> int:
        """Bytes of their entry points; those at restart markers do not count."""
        return ENTRY.itemsize * int(self.num_entries.sum())


@dataclass(eq=False)
class ResidentJpegs:
    """JPEGs in the memory of a GPU, and what our decoder needs of their headers. Read only; freed with the last use."""

    bytes_: Memory
    entries: Memory  # ENTRY of all
    starts: NDArray[np.uint8]  # (E, 4) the numbers of their bits, for the host
    rows: NDArray[np.int32]  # (samples of the files, PART_COLUMNS) as in `JpegParts`; EVERY is 0 of others
    address: NDArray[np.uint64]  # (samples,) on the device
    first_entry: NDArray[np.int64]  # (samples,)
    tables: NDArray[np.uint8]  # (T, 4, TABLE_BYTES) different sets
    table_of: NDArray[np.int32]  # (samples,)
    quantization: NDArray[np.uint8]  # (Q, 3, 64) different ones
    quantization_of: NDArray[np.int32]  # (samples,)

    def holds(self, samples: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each of some samples is here."""
        return np.asarray(self.rows[samples, EVERY] > 0)

    def places(self, job: ImageJob, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
        """Give the addresses of some rows of a job on the device."""
        return self.address[_samples(job, rows)]

    def read(self, job: ImageJob, rows: NDArray[np.intp], reader: ReadJpegs) -> JpegParts:
        """Give what `ReadJpegs.read` gives for some rows of a job, without a look at the files."""
        samples = _samples(job, rows)
        sets, table_of = np.unique(self.table_of[samples], return_inverse=True)
        quantization = self.quantization[self.quantization_of[samples]]
        parts = JpegParts(self.rows[samples], quantization, self.tables[sets], table_of.astype(np.int32))
        reader.place_crops(parts, job.draws[rows])
        return parts

    def list_intervals(self, job: ImageJob, rows: NDArray[np.intp], parts: JpegParts, reader: ReadJpegs) -> Intervals:
        """List the intervals that the crops of some rows need."""
        return reader.list_known(job.size[rows], self.first_entry[_samples(job, rows)], self.starts, parts)


def _samples(job: ImageJob, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
    if job.samples is None:
        raise RuntimeError("a job without sample ids has no resident images")
    return job.samples[rows]


def send_piece(device: Device, target: int, staging: PinnedMemory, nbytes: int, stream: Stream) -> None:
    """Copy the beginning of pinned memory to the device, and wait, so that it can be filled again."""
    device.copy(target, staging.address, nbytes, stream)
    stream.synchronize()  # wait point: piece sent


_loading = threading.Lock()
_loaded: WeakValueDictionary[Hashable, ResidentJpegs] = WeakValueDictionary()


def load_resident(
    device: Device,
    reader: ReadJpegs,
    pack_regions: Callable[..., None],  # copies regions of memory: (address, size, target)
    fetch: Callable[..., Any],  # brings regions of files into memory: (offset, size), see `gpubeton.storage.Storage`
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
        found = _loaded.get(key)
        if found is None:
            staging = device.allocate_pinned(max(piece_nbytes, int(jpegs.size.max())))
            stream = device.make_stream("load")
            try:
                found = _load(device, staging, stream, reader, pack_regions, fetch, jpegs, on_progress)
            finally:
                staging.free()
                device.recycle([stream])
            _loaded[key] = found
    return found


def _load(
    device: Device,
    staging: PinnedMemory,
    stream: Stream,
    reader: ReadJpegs,
    pack_regions: Callable[..., None],
    fetch: Callable[..., Any],
    jpegs: StoredJpegs,
    on_progress: Callable[[int], object],
) -> ResidentJpegs:
    count = jpegs.num_samples
    bytes_ = device.allocate(jpegs.nbytes)
    rows, address = np.zeros((count, PART_COLUMNS), np.int32), np.zeros(count, np.uint64)
    first_entry, table_of, quantization_of = np.zeros(count, np.int64), *np.zeros((2, count), np.int32)
    tables: dict[bytes, int] = {}
    quantization: dict[bytes, int] = {}
    entries: list[NDArray[np.uint8]] = [np.zeros((0, ENTRY.itemsize), np.uint8)]
    num_entries, place = 0, bytes_.address
    for piece in split_bands(jpegs.size.astype(np.int64), staging.nbytes):
        part = jpegs.part(piece)
        at = fetch(part.offset, part.size).addresses()
        parts = part.read(at, reader)
        listed = reader.list_intervals(at, part.size, part.entries, parts)
        own = np.flatnonzero(parts.rows[:, EVERY])
        samples, size = part.samples[own], part.size[own]
        within = np.cumsum(size) - size
        pack_regions(at[own], size, within + np.uint64(staging.address))
        send_piece(device, place, staging, int(size.sum()), stream)
        rows[samples], address[samples] = parts.rows[own], within + np.uint64(place)
        first_entry[samples] = listed.first_entry[own] + num_entries
        table_of[samples] = _numbered(parts.tables, tables)[parts.table_of[own]]
        quantization_of[samples] = _numbered(parts.quantization[own], quantization)
        entries.append(listed.entries)
        num_entries, place = num_entries + len(listed.entries), place + int(size.sum())
        on_progress(piece.stop)
    all_entries = np.concatenate(entries)
    index = device.allocate(all_entries.nbytes)
    content = all_entries.reshape(-1)
    for start in range(0, len(content), staging.nbytes):
        nbytes = min(staging.nbytes, len(content) - start)
        staging.array[:nbytes] = content[start : start + nbytes]
        send_piece(device, index.address + start, staging, nbytes, stream)
    return ResidentJpegs(
        bytes_,
        index,
        np.ascontiguousarray(all_entries[:, :_BIT_BYTES]),
        rows,
        address,
        first_entry,
        np.frombuffer(b"".join(tables), np.uint8).reshape(-1, 4, TABLE_BYTES),
        table_of,
        np.frombuffer(b"".join(quantization), np.uint8).reshape(-1, 3, 64),
        quantization_of,
    )


def _numbered(found: NDArray[np.uint8], known: dict[bytes, int]) -> NDArray[np.int32]:  # (N,)
    """Give a number to each array (N, ...), the same to equal ones; new ones are added to the known."""
    return np.array([known.setdefault(one.tobytes(), len(known)) for one in found], np.int32)
