"""EntryDecoder: our own decoder in CUDA for JPEGs with entry points, which decodes only the part under the crop.

ResidentJpegs: those that stay in the memory of the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.format.layout import ENTRY_DTYPE
from gpubeton.gpu.batch_memory import GrowableBuffer
from gpubeton.gpu.device_structs import GATHER, JPEG
from gpubeton.gpu.launch import gather, launch_jpegs
from gpubeton.plan import jpeg_parts
from gpubeton.plan.jpeg_parts import EVERY, JpegParts, aligned, split_bands, window_blocks, window_nbytes
from gpubeton.plan.pixel_places import JPEG_AXES, taps_nbytes

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from gpubeton.gpu.batch_memory import Table
    from gpubeton.gpu.cuda import Device, Memory, PinnedMemory, Stream
    from gpubeton.gpu.launch import ProgramConstants
    from gpubeton.plan.cpu_services import CpuServices, ReadJpegs
    from gpubeton.plan.image_executor import ImageJob
    from gpubeton.plan.jpeg_parts import Intervals

# Bytes of memory for the windows of one band. Some 300 photos of 500 x 375 pixels fit, with thousands of intervals:
# enough threads for any GPU. A larger image is a band of its own.
BUDGET = 256 << 20

# Most bytes of the window of one image; the CPU makes a larger one, for which a GPU may have no memory.
LARGEST_WINDOW = 1 << 30

# Columns of `JpegParts.rows` that the kernels read, too.
_SAME = ("height", "width", "components", "luma_across", "luma_down", "every", "is_restarted",
         "first_row", "first_column", "rows", "columns")  # fmt: skip


def describe_jpegs(
    rows: NDArray[np.int32],  # (N, PART_COLUMNS)
    places: NDArray[np.uint64],  # (N,) device addresses of their bytes
    size: NDArray[np.uint64],  # (N,)
    entries: NDArray[np.uint64],  # (N,) device addresses of their entry points
    quantization: int,  # device address of uint8 (N, 3, 64)
    window: int,  # device address of the memory of `window_nbytes`
    nbytes: NDArray[np.int64],  # (N, 3) from `window_nbytes`
    batch_rows: NDArray[Any],  # (N,) rows of the batch
) -> NDArray[np.void]:  # (N,) JPEG
    """Describe JPEGs for the kernels."""
    jpegs = np.zeros(len(rows), JPEG)
    for name in _SAME:
        jpegs[name] = rows[:, getattr(jpeg_parts, name.upper())]
    jpegs["bytes"], jpegs["begin"], jpegs["size"] = places, rows[:, jpeg_parts.SCAN], size
    jpegs["entries"], jpegs["row"] = entries, batch_rows
    jpegs["quantization"] = np.uint64(quantization) + np.arange(len(rows), dtype=np.uint64) * np.uint64(3 * 64)
    stops = np.cumsum(nbytes.reshape(-1)).reshape(nbytes.shape).astype(np.uint64)
    starts = stops - nbytes.astype(np.uint64) + np.uint64(window)
    jpegs["coefficients"], jpegs["samples"], jpegs["resampled"] = starts.T
    return jpegs


@dataclass(eq=False)
class ResidentJpegs:
    """JPEGs in the memory of a GPU, and what our decoder needs of their headers. Read only; freed with the last use."""

    bytes_: Memory
    entries: Memory  # ENTRY_DTYPE of all
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


@dataclass(eq=False)
class EntryImages:
    """The images of one output of a batch that the decoder makes."""

    number: int  # of the output
    rows: NDArray[np.intp]  # (M,) rows of the batch
    parts: JpegParts
    bands: list[slice]
    intervals: list[Intervals]  # of each band
    windows: NDArray[np.int64]  # (M, 3): bytes of the arrays of each window
    draws: NDArray[np.int32]  # (M, columns)
    most_taps: int
    taps_nbytes: int
    # (M,): offset of the compressed bytes in their copy, or the address of resident ones
    within: NDArray[np.uint64]
    nbytes: int  # of the copy; 0: the bytes are resident
    entries: int  # the address of resident entry points
    staged: int = 0  # offset of the copy in staging memory
    offset: int = 0  # and in the arena
    places: dict[Hashable, int] = field(default_factory=dict)  # device addresses of `arrays`

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
        for band, found in enumerate(self.intervals):
            for name in ("entries", "intervals", "groups") if self.nbytes else ("intervals", "groups"):
                arrays[self.number, name, band] = getattr(found, name)
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
        self.windows = GrowableBuffer(device.allocate)

    def plan(
        self,
        number: int,
        own: ProgramConstants,
        job: ImageJob,
        rows: NDArray[np.intp],
        cpu: CpuServices,
        resident: ResidentJpegs | None = None,  # holds all these rows
    ) -> EntryImages | None:
        """Choose those of some rows of a job that have entry points and can be decoded; None if there is none."""
        if len(rows) == 0:
            return None
        parts = _read(job, rows, cpu) if resident is None else resident.read(job, rows, cpu.jpegs)
        while True:
            windows = window_nbytes(parts.rows, own.width)
            can = (parts.rows[:, EVERY] > 0) & (windows.sum(axis=1) <= self._largest_window)
            if not can.all():
                rows, windows, parts = rows[can], windows[can], parts.part(can)
            if len(rows) == 0:
                return None
            bands = list(split_bands(windows.sum(axis=1), self._budget))
            intervals = [_list_intervals(job, rows[band], parts.part(band), cpu, resident) for band in bands]
            # Restart markers are looked for only now.
            if (parts.rows[:, EVERY] > 0).all():
                break
        draws = np.ascontiguousarray(job.draws[rows])
        most = own.most_taps(draws)
        size = aligned(job.size[rows])
        stop = np.cumsum(size)
        places = (stop - size).astype(np.uint64), int(stop[-1]), 0
        if resident is not None:
            places = resident.places(job, rows), 0, resident.entries.address
        taps = sum(taps_nbytes(len(rows), own.side, most, JPEG_AXES))
        return EntryImages(number, rows, parts, bands, intervals, windows, draws, most, taps, *places)

    def reserve(self, nbytes: int, stream: Stream) -> None:
        """Reserve memory for windows and taps; if there is too little, wait for the kernels that use it."""
        if self.windows.nbytes < nbytes:
            stream.synchronize()  # wait point: windows unused
            self.windows.reserve(nbytes)

    def describe(self, images: EntryImages, job: ImageJob, table: Table, arena: int) -> None:
        """Write the addresses of everything into the table, before it is sent."""
        images.places, number = table.places, images.number
        memory = self.windows.reserve(0).address + images.taps_nbytes
        size = job.size[images.rows]
        places = images.within + np.uint64(arena + images.offset if images.nbytes else 0)
        jpegs = table.arrays[number, "jpegs"]
        for band, slice_ in enumerate(images.bands):
            first_entry = images.intervals[band].first_entry.astype(np.uint64) * np.uint64(ENTRY_DTYPE.itemsize)
            entries = images.places[number, "entries", band] if images.nbytes else images.entries
            quantization = images.places[number, "quantization"] + 3 * 64 * slice_.start
            described = images.parts.rows[slice_], places[slice_], size[slice_], first_entry + np.uint64(entries)
            windows, rows = images.windows[slice_], images.rows[slice_]
            jpegs[slice_] = describe_jpegs(*described, quantization, memory, windows, rows)
        if job.is_pinned:
            gathers = table.arrays[number, "jpeg bytes"]
            gathers["source"], gathers["target"] = job.address[images.rows], places
            gathers["row_bytes"], gathers["rows"] = size, 1

    def send(
        self, images: EntryImages, job: ImageJob, staging: int, arena: int, cpu: CpuServices, stream: Stream
    ) -> None:
        """Copy the compressed bytes to the device, unless they are there."""
        rows = images.rows
        if images.nbytes == 0:
            return
        if job.is_pinned:
            gathers, largest = images.places[images.number, "jpeg bytes"], int(job.size[rows].max())
            gather(self._device, gathers, len(rows), largest, stream)
            return
        begin = staging + images.staged
        cpu.pack_regions(job.address[rows], job.size[rows], images.within + np.uint64(begin))
        self._device.copy(arena + images.offset, begin, images.nbytes, stream)

    def launch(self, images: EntryImages, own: ProgramConstants, out: int, stream: Stream) -> None:
        """Make the images: output values, or levels if their colors are changed later."""
        places, number, columns = images.places, images.number, images.draws.shape[1]
        blocks, taps = window_blocks(images.parts.rows), self.windows.reserve(0).address
        for band, slice_ in enumerate(images.bands):
            first, count = slice_.start, slice_.stop - slice_.start
            launch_jpegs(
                self._device,
                own,
                stream,
                count=count,
                jpegs=places[number, "jpegs"] + JPEG.itemsize * first,
                tables=places[number, "tables"],
                groups=places[number, "groups", band],
                num_groups=len(images.intervals[band].groups),
                intervals=places[number, "intervals", band],
                draws=places[number, "jpeg draws"] + 4 * columns * first,
                columns=columns,
                most=places[number, "jpeg most"] + 16 * first,
                most_taps=images.most_taps,
                status=places[number, "jpeg status"] + 4 * first,
                most_blocks=int(blocks[slice_].max()),
                taps=taps,
                out=out,
            )


def _read(job: ImageJob, rows: NDArray[np.intp], cpu: CpuServices) -> JpegParts:
    """Read the headers of some rows of a job in the host's memory."""
    own = job.rows(rows, None)
    entries: Any = own.entries, own.num_entries, own.seals
    if own.entries is None:
        entries = [np.zeros(len(rows), kind) for kind in (np.uint64, np.int32, np.uint32)]
    address, number, seals = entries
    return cpu.jpegs.read(own.address, own.size, own.height, own.width, address, number, seals, own.draws)


def _list_intervals(
    job: ImageJob, rows: NDArray[np.intp], parts: JpegParts, cpu: CpuServices, resident: ResidentJpegs | None
) -> Intervals:
    if resident is not None:
        return resident.list_intervals(job, rows, parts, cpu.jpegs)
    entries = np.zeros(len(rows), np.uint64) if job.entries is None else job.entries[rows]
    return cpu.jpegs.list_intervals(job.address[rows], job.size[rows], entries, parts)
