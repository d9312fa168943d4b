"""EntryDecoder: our own decoder in CUDA for JPEGs with entry points, which decodes only the part under the crop.

ResidentJpegs: those that stay in the memory of the GPU.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._gpu.launch import GATHER, JPEG, gather, launch_jpegs
from gpubeton._gpu.memory import GrowableBuffer
from gpubeton._plan import jpeg_windows
from gpubeton._plan.arena_layout import JPEG_AXES, taps_nbytes
from gpubeton._plan.jpeg_windows import (
    BEGIN,
    EVERY,
    HEADER_COLUMNS,
    NUM_ENTRIES,
    STOP,
    TABLE_BYTES,
    WINDOW_COLUMNS,
    CropWindows,
    aligned,
    split_bands,
    window_blocks,
    window_nbytes,
)
from gpubeton.format.layout import ENTRY_DTYPE

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from gpubeton._gpu.cuda import Device, Memory, PinnedMemory, Stream
    from gpubeton._gpu.launch import ProgramConstants
    from gpubeton._gpu.memory import Table
    from gpubeton._plan.image_job import CpuServices, ImageJob
    from gpubeton._plan.jpeg_windows import Intervals, ReadJpegs

# Bytes of memory for the windows of one band. Some 300 photos of 500 x 375 pixels fit, with thousands of intervals.
# A large GPU has more threads than that; more images at a time would need as much more memory. A larger image is a
# band of its own.
BUDGET = 256 << 20

# Most bytes of the window of one image; the CPU makes a larger one, for which a GPU may have no memory.
LARGEST_WINDOW = 1 << 30

# Images may have tables of their own, some kB each: if there are more different ones, all headers are forgotten.
_MOST_TABLES = 1 << 14

_HEADER = np.dtype([("row", "<i4", HEADER_COLUMNS), ("tables", "<i4"), ("quantization", "<i4")])

# Columns of `CropWindows.rows` that the kernels read, too.
_SAME = ("height", "width", "components", "luma_across", "luma_down", "every", "is_restarted",
         "first_row", "first_column", "rows", "columns")  # fmt: skip


def describe_jpegs(
    rows: NDArray[np.int32],  # (N, WINDOW_COLUMNS)
    addresses: NDArray[np.uint64],  # (N,) device addresses of their first bytes, of which BEGIN to STOP are there
    entries: NDArray[np.uint64],  # (N,) device addresses of their first entry points
    quantization: int,  # device address of uint8 (N, 3, 64)
    window: int,  # device address of the memory of `window_nbytes`
    nbytes: NDArray[np.int64],  # (N, 3) from `window_nbytes`
    batch_rows: NDArray[Any],  # (N,) rows of the batch
) -> NDArray[np.void]:  # (N,) JPEG
    """Describe JPEGs for the kernels."""
    jpegs = np.zeros(len(rows), JPEG)
    for name in _SAME:
        jpegs[name] = rows[:, getattr(jpeg_windows, name.upper())]
    jpegs["bytes"], jpegs["begin"], jpegs["end"] = addresses, rows[:, BEGIN], rows[:, STOP]
    jpegs["entries"], jpegs["row"] = entries, batch_rows
    jpegs["quantization"] = np.uint64(quantization) + np.arange(len(rows), dtype=np.uint64) * np.uint64(3 * 64)
    stops = np.cumsum(nbytes.reshape(-1)).reshape(nbytes.shape).astype(np.uint64)
    starts = stops - nbytes.astype(np.uint64) + np.uint64(window)
    jpegs["coefficients"], jpegs["samples"], jpegs["resampled"] = starts.T
    return jpegs


class _DistinctArrays:
    """Different arrays of one shape, uint8, by number."""

    def __init__(self, *shape: int) -> None:
        self._numbers: dict[bytes, int] = {}
        self._arrays = np.zeros((1, *shape), np.uint8)  # with room for more

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, arrays: NDArray[np.uint8]) -> NDArray[np.int32]:  # (N,)
        """Give the number of each of some arrays, (N, ...); new ones get the next."""
        numbers = np.empty(len(arrays), np.int32)
        for i, array in enumerate(arrays):
            count = len(self._numbers)
            numbers[i] = number = self._numbers.setdefault(array.tobytes(), count)
            if number < count:
                continue
            if count == len(self._arrays):
                self._arrays = np.concatenate([self._arrays, np.zeros_like(self._arrays)])
            self._arrays[count] = array
        return numbers

    def take(self, numbers: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Copy some of them."""
        return self._arrays[numbers]


class JpegHeaders:
    """What our decoder needs of the headers of JPEGs, by sample: each is read, and its seal checked, only once."""

    def __init__(self) -> None:
        self._headers = np.zeros(1, _HEADER)  # (samples,); EVERY is 0 of those that are not here
        self._tables, self._quantization = _DistinctArrays(4, TABLE_BYTES), _DistinctArrays(3, 64)

    def add(self, samples: NDArray[Any], parts: CropWindows) -> None:
        """Add some samples, (N,); those that the decoder cannot decode are not here afterwards."""
        if (missing := int(samples.max(initial=0)) + 1 - len(self._headers)) > 0:
            self._headers = np.concatenate([self._headers, np.zeros(missing + len(self._headers) // 8, _HEADER)])
        headers, usable = np.zeros(len(samples), _HEADER), np.flatnonzero(parts.rows[:, EVERY])
        headers["row"][usable] = parts.rows[usable, :HEADER_COLUMNS]
        headers["tables"][usable] = self._tables.add(parts.tables)[parts.table_of[usable]]
        headers["quantization"][usable] = self._quantization.add(parts.quantization[usable])
        self._headers[samples] = headers

    def holds(self, samples: NDArray[Any], num_entries: NDArray[np.int32] | None = None) -> NDArray[np.bool_]:  # (N,)
        """Whether each of some samples is here, and if that is given, still has as many entry points."""
        is_inside = samples < len(self._headers)
        rows, places = self._headers["row"], np.where(is_inside, samples, 0)
        is_here: NDArray[np.bool_] = is_inside & (rows[places, EVERY] > 0)
        return is_here if num_entries is None else is_here & (rows[places, NUM_ENTRIES] == num_entries)

    def read(self, samples: NDArray[Any], draws: NDArray[np.int32], reader: ReadJpegs) -> CropWindows:
        """Give what `ReadJpegs.read` gives for some samples that were added, without a look at the files."""
        headers = self._headers[samples]
        rows = np.zeros((len(samples), WINDOW_COLUMNS), np.int32)
        rows[:, :HEADER_COLUMNS] = headers["row"]
        sets, table_of = np.unique(headers["tables"], return_inverse=True)
        quantization, tables = self._quantization.take(headers["quantization"]), self._tables.take(sets)
        parts = CropWindows(rows, quantization, tables, table_of.astype(np.int32))
        reader.place_crops(parts, draws)
        return parts

    @property
    def is_full(self) -> bool:
        """Whether there are too many different tables."""
        return max(len(self._tables), len(self._quantization)) > _MOST_TABLES


@dataclass(eq=False)
class ResidentJpegs:
    """JPEGs in the memory of a GPU. Read only; freed with the last use."""

    bytes_: Memory
    entries: Memory  # ENTRY_DTYPE of all
    starts: NDArray[np.uint8]  # (E, 4) the numbers of their bits, for the host
    headers: JpegHeaders
    address: NDArray[np.uint64]  # (samples of the files,) on the device
    first_entry: NDArray[np.int64]  # (samples,)

    def holds(self, samples: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each of some samples is here."""
        return self.headers.holds(samples)


def send_piece(device: Device, target: int, staging: PinnedMemory, nbytes: int, stream: Stream) -> None:
    """Copy the beginning of pinned memory to the device, and wait, so that it can be filled again."""
    device.copy(target, staging.address, nbytes, stream)
    stream.synchronize()  # wait point: piece sent


@dataclass(eq=False)
class EntryImages:
    """The images of one output of a batch that the decoder makes."""

    number: int  # of the output
    rows: NDArray[np.intp]  # (M,) rows of the batch
    parts: CropWindows
    bands: list[slice]
    intervals: list[Intervals]  # of each band
    windows: NDArray[np.int64]  # (M, 3): bytes of the arrays of each window
    draws: NDArray[np.int32]  # (M, columns)
    most_taps: int
    taps_nbytes: int
    # (M,): address of the first byte, of resident images; of others less the address of the copy, which has only the
    # bytes that windows need
    within: NDArray[np.uint64]
    nbytes: int  # of the copy
    # whether the JPEGs are in the device's memory; its address of their entry points
    is_resident: bool
    entries: int
    staged: int = 0  # offset of the copy in staging memory
    offset: int = 0  # and in the arena
    addresses: dict[Hashable, int] = field(default_factory=dict)  # of `arrays`, on the device

    @property
    def begin(self) -> NDArray[np.uint64]:  # (M,)
        """Number of the first byte of each JPEG that its window needs."""
        return self.parts.rows[:, BEGIN].astype(np.uint64)

    @property
    def size(self) -> NDArray[np.uint64]:  # (M,)
        """Bytes from there to the last that its window needs."""
        return (self.parts.rows[:, STOP] - self.parts.rows[:, BEGIN]).astype(np.uint64)

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of taps, and of the windows of the largest band."""
        return self.taps_nbytes + max(int(self.windows[band].sum()) for band in self.bands)

    def arrays(self, job: ImageJob) -> dict[Hashable, NDArray[Any]]:
        """Return the arrays that the kernels need on the device; `EntryDecoder.describe` fills the first one."""
        count = len(self.rows)
        arrays: dict[Hashable, NDArray[Any]] = {
            (self.number, "jpegs"): np.zeros(count, JPEG),
            (self.number, "jpeg draws"): self.draws,
            (self.number, "jpeg status"): np.zeros(count, np.int32),
            (self.number, "jpeg most"): np.zeros((count, 4), np.int32),
            (self.number, "quantization"): self.parts.quantization,
            (self.number, "tables"): self.parts.tables,
        }
        for band, intervals in enumerate(self.intervals):
            for name in ("intervals", "groups") if self.is_resident else ("entries", "intervals", "groups"):
                arrays[self.number, name, band] = getattr(intervals, name)
        if job.is_pinned:
            arrays[self.number, "jpeg bytes"] = np.zeros(count, GATHER)
        return arrays


class EntryDecoder:
    """Makes images from JPEGs with entry points, to the bits of the CPU."""

    # All batches share the memory of the windows: the kernels of one stream use it one after another.

    def __init__(self, device: Device, *, budget: int = BUDGET, largest_window: int = LARGEST_WINDOW) -> None:
        self._device = device
        self._budget = budget
        self._largest_window = largest_window
        self._headers: defaultdict[str, JpegHeaders] = defaultdict(JpegHeaders)  # by field
        self.windows = GrowableBuffer(device.allocate)

    def knows(self, job: ImageJob, resident: ResidentJpegs | None) -> NDArray[np.bool_]:  # (N,)
        """Tell which images of a job are resident, or have headers that were read before, if none is resident."""
        if job.samples is not None and resident is not None:
            return resident.holds(job.samples)
        if job.samples is None or not _is_kept(job):
            return np.zeros(len(job.size), np.bool_)
        if self._headers[job.source].is_full:
            del self._headers[job.source]
        return self._headers[job.source].holds(job.samples, job.num_entries)

    def plan(
        self,
        number: int,
        program: ProgramConstants,
        job: ImageJob,
        rows: NDArray[np.intp],
        cpu: CpuServices,
        has_header: NDArray[np.bool_],  # (N,) from `knows`
        resident: ResidentJpegs | None = None,  # holds all these rows
    ) -> EntryImages | None:
        """Choose those of some rows of a job that have entry points and can be decoded; None if there is none."""
        if len(rows) == 0:
            return None
        headers = self._headers[job.source] if resident is None else resident.headers
        parts = _read(job, rows, cpu, headers, has_header)
        while True:
            windows = window_nbytes(parts.rows, program.width)
            can = (parts.rows[:, EVERY] > 0) & (windows.sum(axis=1) <= self._largest_window)
            if not can.all():
                rows, windows, parts = rows[can], windows[can], parts.take(can)
            if len(rows) == 0:
                return None
            bands = list(split_bands(windows.sum(axis=1), self._budget))
            intervals = [_list_intervals(job, rows[band], parts.take(band), cpu, resident) for band in bands]
            # Only now restart markers are looked for, and entry points of known headers compared with what they were.
            if (parts.rows[:, EVERY] > 0).all():
                break
        draws = np.ascontiguousarray(job.draws[rows])
        most = program.most_taps(draws)
        begin, size = parts.rows[:, BEGIN], aligned(parts.rows[:, STOP] - parts.rows[:, BEGIN])
        stop = np.cumsum(size)
        copy = (stop - size - begin).astype(np.uint64), int(stop[-1]), False, 0
        if resident is not None:
            copy = resident.address[_samples(job, rows)], 0, True, resident.entries.address
        taps = sum(taps_nbytes(len(rows), program.side, most, JPEG_AXES))
        return EntryImages(number, rows, parts, bands, intervals, windows, draws, most, taps, *copy)

    def reserve(self, nbytes: int, stream: Stream) -> None:
        """Reserve memory for windows and taps; if there is too little, wait for the kernels that use it."""
        if self.windows.nbytes < nbytes:
            stream.synchronize()  # wait point: windows unused
            self.windows.reserve(nbytes)

    def describe(self, images: EntryImages, job: ImageJob, table: Table, arena: int) -> None:
        """Write the addresses of everything into the table, before it is sent."""
        images.addresses, number = table.addresses, images.number
        memory = self.windows.reserve(0).address + images.taps_nbytes
        addresses = images.within + np.uint64(0 if images.is_resident else arena + images.offset)
        jpegs = table.arrays[number, "jpegs"]
        for band, slice_ in enumerate(images.bands):
            first_entry = images.intervals[band].first_entry.astype(np.uint64) * np.uint64(ENTRY_DTYPE.itemsize)
            entries = images.entries if images.is_resident else images.addresses[number, "entries", band]
            quantization = images.addresses[number, "quantization"] + 3 * 64 * slice_.start
            described = images.parts.rows[slice_], addresses[slice_], first_entry + np.uint64(entries)
            windows, rows = images.windows[slice_], images.rows[slice_]
            jpegs[slice_] = describe_jpegs(*described, quantization, memory, windows, rows)
        if job.is_pinned:
            gathers = table.arrays[number, "jpeg bytes"]
            gathers["source"], gathers["target"] = job.address[images.rows] + images.begin, addresses + images.begin
            gathers["row_bytes"], gathers["rows"] = images.size, 1

    def send(
        self, images: EntryImages, job: ImageJob, staging: int, arena: int, cpu: CpuServices, stream: Stream
    ) -> None:
        """Copy the compressed bytes to the device, unless they are there."""
        rows = images.rows
        if images.is_resident or images.nbytes == 0:
            return
        if job.is_pinned:
            gathers, largest = images.addresses[images.number, "jpeg bytes"], int(images.size.max())
            gather(self._device, gathers, len(rows), largest, stream)
            return
        begin = staging + images.staged
        target = images.within + images.begin + np.uint64(begin)
        cpu.pack_regions(job.address[rows] + images.begin, images.size, target)
        self._device.copy(arena + images.offset, begin, images.nbytes, stream)

    def launch(self, images: EntryImages, program: ProgramConstants, out: int, stream: Stream) -> None:
        """Make the images: output values, or levels if steps follow."""
        addresses, number, columns = images.addresses, images.number, images.draws.shape[1]
        blocks, taps = window_blocks(images.parts.rows), self.windows.reserve(0).address
        for band, slice_ in enumerate(images.bands):
            first, count = slice_.start, slice_.stop - slice_.start
            launch_jpegs(
                self._device,
                program,
                stream,
                count=count,
                jpegs=addresses[number, "jpegs"] + JPEG.itemsize * first,
                tables=addresses[number, "tables"],
                groups=addresses[number, "groups", band],
                num_groups=len(images.intervals[band].groups),
                intervals=addresses[number, "intervals", band],
                draws=addresses[number, "jpeg draws"] + 4 * columns * first,
                columns=columns,
                most=addresses[number, "jpeg most"] + 16 * first,
                most_taps=images.most_taps,
                status=addresses[number, "jpeg status"] + 4 * first,
                most_blocks=int(blocks[slice_].max()),
                taps=taps,
                out=out,
            )


def _read(
    job: ImageJob, rows: NDArray[np.intp], cpu: CpuServices, headers: JpegHeaders, has_header: NDArray[np.bool_]
) -> CropWindows:
    """Read the headers of some rows of a job that are not known, and keep them."""
    new = rows[~has_header[rows]]
    if len(new):
        unread = job.rows(new, None)
        entries: Any = unread.entries, unread.num_entries, unread.seals
        if unread.entries is None:
            entries = [np.zeros(len(new), kind) for kind in (np.uint64, np.int32, np.uint32)]
        address, number, seals = entries
        parts = cpu.jpegs.read(
            unread.address, unread.size, unread.height, unread.width, address, number, seals, unread.draws
        )
        if unread.samples is not None and _is_kept(job):
            headers.add(unread.samples, parts)
        if len(new) == len(rows):
            return parts
    return headers.read(_samples(job, rows), job.draws[rows], cpu.jpegs)


def _is_kept(job: ImageJob) -> bool:
    """Whether the headers of a job's images are kept: those of files of this machine, which are watched."""
    return job.entries is not None and not job.comes_late


def _samples(job: ImageJob, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
    assert job.samples is not None  # otherwise no image is known
    return job.samples[rows]


def _list_intervals(
    job: ImageJob, rows: NDArray[np.intp], parts: CropWindows, cpu: CpuServices, resident: ResidentJpegs | None
) -> Intervals:
    if resident is not None:
        return cpu.jpegs.list_known(job.size[rows], resident.first_entry[_samples(job, rows)], resident.starts, parts)
    entries = np.zeros(len(rows), np.uint64) if job.entries is None else job.entries[rows]
    return cpu.jpegs.list_intervals(job.address[rows], job.size[rows], entries, parts)
