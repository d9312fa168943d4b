"""EntryDecoder: our own decoder in CUDA for JPEGs with entry points, which decodes only what is under the crop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.format.entry_points import ENTRY
from gpubeton.gpu.batch_memory import GrowableBuffer
from gpubeton.gpu.device_structs import GATHER, JPEG, most_taps
from gpubeton.gpu.jpeg_launch import (
    JpegImages,
    JpegOutput,
    describe_jpegs,
    launch_jpegs,
    split_bands,
    taps_nbytes,
    window_blocks,
    window_nbytes,
)
from gpubeton.gpu.launch import gather
from gpubeton.plan.jpeg_parts import EVERY, JpegParts

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from gpubeton.gpu.batch_memory import Table
    from gpubeton.gpu.cuda import Device, Stream
    from gpubeton.gpu.launch import ProgramConstants
    from gpubeton.gpu.resident import ResidentJpegs
    from gpubeton.plan.cpu_services import CpuServices
    from gpubeton.plan.image_executor import ImageJob
    from gpubeton.plan.jpeg_parts import Intervals
    from gpubeton.plan.program import ImageProgram

# Bytes of memory for the windows of one band. Some 300 photos of 500 x 375 pixels fit, with thousands of intervals:
# enough threads for any GPU. A larger image is a band of its own.
BUDGET = 256 << 20

# Most bytes of the window of one image; the CPU makes a larger one, for which a GPU may have no memory.
LARGEST_WINDOW = 1 << 30

_ALIGNMENT = 16


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
    entries: int = 0  # the address of resident entry points
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
            for name in ("entries", "intervals", "groups")[self.nbytes == 0 :]:
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
        self._windows = GrowableBuffer(device.allocate)

    def plan(
        self,
        number: int,
        program: ImageProgram,
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
            windows = window_nbytes(parts.rows, program.width)
            can = (parts.rows[:, EVERY] > 0) & (windows.sum(axis=1) <= self._largest_window)
            if not can.all():
                rows, windows = rows[can], windows[can]
                parts = JpegParts(parts.rows[can], parts.quantization[can], parts.tables, parts.table_of[can])
            if len(rows) == 0:
                return None
            draws = np.ascontiguousarray(job.draws[rows])
            most = most_taps(draws, program)
            bands = list(split_bands(windows.sum(axis=1), self._budget))
            intervals = [_list_intervals(job, rows, parts, band, cpu, resident) for band in bands]
            # Restart markers are looked for only now.
            if (parts.rows[:, EVERY] > 0).all():
                break
        size = -(-job.size[rows].astype(np.int64) // _ALIGNMENT) * _ALIGNMENT
        stop = np.cumsum(size)
        places = (stop - size).astype(np.uint64), int(stop[-1]), 0
        if resident is not None:
            places = resident.places(job, rows), 0, resident.entries.address
        taps = sum(taps_nbytes(len(rows), program.height, program.width, most))
        return EntryImages(number, rows, parts, bands, intervals, windows, draws, most, taps, *places)

    def reserve(self, nbytes: int, stream: Stream) -> None:
        """Reserve memory for windows and taps; if there is too little, wait for the kernels that use it."""
        if self._windows.nbytes < nbytes:
            stream.synchronize()  # wait point: windows unused
            self._windows.reserve(nbytes)

    def describe(self, images: EntryImages, job: ImageJob, table: Table, arena: int) -> None:
        """Write the addresses of everything into the table, before it is sent."""
        memory = self._windows.reserve(0).address + images.taps_nbytes
        size = job.size[images.rows]
        places = images.within + np.uint64(arena + images.offset if images.nbytes else 0)
        jpegs = table.pinned((images.number, "jpegs"))
        for band, slice_ in enumerate(images.bands):
            first_entry = images.intervals[band].first_entry.astype(np.uint64) * np.uint64(ENTRY.itemsize)
            entries = images.places[images.number, "entries", band] if images.nbytes else images.entries
            jpegs[slice_] = describe_jpegs(
                images.parts.rows[slice_],
                places[slice_],
                size[slice_],
                first_entry + np.uint64(entries),
                images.places[images.number, "quantization"] + 192 * slice_.start,
                memory,
                images.windows[slice_],
                images.rows[slice_],
            )
        if job.is_pinned:
            gathers = table.pinned((images.number, "jpeg bytes"))
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
        has_colors = own.num_sums is not None
        output = JpegOutput(
            rule=own.rule,
            height=own.height,
            width=own.width,
            fills=own.fills,
            table=0 if has_colors else own.table,
            item_size=1 if has_colors else own.item_size,
            out=out,
        )
        places, number, columns = images.places, images.number, images.draws.shape[1]
        blocks = window_blocks(images.parts.rows)
        for band, slice_ in enumerate(images.bands):
            first = slice_.start
            launch_jpegs(
                self._device,
                JpegImages(
                    num_images=slice_.stop - first,
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
                    taps=self._windows.reserve(0).address,
                ),
                output,
                stream,
            )

    def free(self) -> None:
        """Free the memory, which may not be in use."""
        self._windows.free()


def _read(job: ImageJob, rows: NDArray[np.intp], cpu: CpuServices) -> JpegParts:
    """Read the headers of some rows of a job in the host's memory."""
    count = len(rows)
    return cpu.jpegs.read(
        job.address[rows],
        job.size[rows],
        job.height[rows],
        job.width[rows],
        np.zeros(count, np.uint64) if job.entries is None else job.entries[rows],
        np.zeros(count, np.int32) if job.num_entries is None else job.num_entries[rows],
        np.zeros(count, np.uint32) if job.seals is None else job.seals[rows],
        job.draws[rows],
    )


def _list_intervals(
    job: ImageJob,
    rows: NDArray[np.intp],
    parts: JpegParts,
    band: slice,
    cpu: CpuServices,
    resident: ResidentJpegs | None,
) -> Intervals:
    own = rows[band]
    part = JpegParts(parts.rows[band], parts.quantization[band], parts.tables, parts.table_of[band])
    if resident is not None:
        return resident.list_intervals(job, own, part, cpu.jpegs)
    entries = np.zeros(len(own), np.uint64) if job.entries is None else job.entries[own]
    return cpu.jpegs.list_intervals(job.address[own], job.size[own], entries, part)
