"""ResidentJpegs: the JPEGs of a field and their entry points, kept in the memory of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.plan.jpeg_parts import EVERY, JpegParts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.gpu.cuda import Device, Memory, PinnedMemory, Stream
    from gpubeton.plan.cpu_services import ReadJpegs
    from gpubeton.plan.image_executor import ImageJob
    from gpubeton.plan.jpeg_parts import Intervals


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
