"""The images of one output of one batch, and the interface of the executors that make them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gpubeton._plan.jpeg_windows import ReadJpegs
    from gpubeton._plan.program import ImageProgram


def _no_numbers() -> NDArray[np.uint64]:
    return np.zeros(0, np.uint64)


# The attributes of a job that have a row for each image.
_ROWS = ("height", "width", "mode", "draws", "steps", "samples", "entries", "num_entries", "seals", "address", "size",
         "checksums")  # fmt: skip


@dataclass
class ImageJob:
    """The images of one output of one batch: first the decisions about them, then where they are read and written."""

    height: NDArray[np.int32]  # (N,) of the stored images, by the file's metadata
    width: NDArray[np.int32]  # (N,)
    mode: NDArray[np.uint8]  # (N,) see `gpubeton.format.ImageMode`
    draws: NDArray[np.int32]  # (N, D) see `gpubeton._plan.draw_rows`
    steps: NDArray[np.int32] | None = None  # (N, S, STEP_COLUMNS) see `gpubeton._batch.step_rows`
    samples: NDArray[np.uint64] | None = None  # (N,) sample ids
    source: str = ""  # the field; jobs of a batch with the same source have the same stored images
    # Entry points, see `gpubeton.format.entry_points`; None if no image has any.
    entries: NDArray[np.uint64] | None = None  # (N,) address of each image's; 0: none
    num_entries: NDArray[np.int32] | None = None  # (N,) an executor may set -1: they do not fit the image
    seals: NDArray[np.uint32] | None = None  # (N,)
    comes_late: bool = False  # whether they may come from another machine, as the images do, and each time again
    # The engine adds the rest when the bytes are in memory.
    address: NDArray[np.uint64] = field(default_factory=_no_numbers)  # (N,) of each stored image
    size: NDArray[np.uint64] = field(default_factory=_no_numbers)  # (N,) bytes of each
    checksums: NDArray[np.uint64] | None = None  # (N,) CRC-32 that they are compared with, 0: none; None: no image's
    out: Any = None  # (N, height, width, channels) array or tensor, C-contiguous; numpy has bfloat16 as uint16
    keep: object = None  # owns the memory of entry points and at `address`; held until the batch is collected
    is_pinned: bool = False  # whether `address` is in page-locked memory

    def rows(self, rows: NDArray[np.intp] | slice, out: Any) -> ImageJob:
        """Make a job of some of the images, written to `out`."""
        attributes = vars(self)
        columns = {name: column[rows] for name in _ROWS if (column := attributes[name]) is not None}
        job = ImageJob.__new__(ImageJob)  # `__init__` would set each attribute by itself
        vars(job).update(attributes, **columns, out=out)
        return job


def shared_sources(jobs: Sequence[ImageJob]) -> list[int]:
    """For each job, find the first one with the same stored images; itself if its source has no name."""
    first: dict[str, int] = {}
    return [number if not job.source else first.setdefault(job.source, number) for number, job in enumerate(jobs)]


@dataclass(frozen=True)
class BadImage:
    """An image that could not be made; its output is undefined."""

    program: int  # number of the output in the batch
    row: int
    reason: str
    is_damaged: bool = False  # its bytes differ from their checksum


class Usage(NamedTuple):
    """How busy some threads were."""

    busy_seconds: float = 0.0  # wall time with work to do, summed over the threads
    cpu_seconds: float = 0.0  # less than that by the waits for a disk (page faults) or for a core

    def __add__(self, other: object) -> Usage:
        """Add the usage of other threads."""
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(self.busy_seconds + other.busy_seconds, self.cpu_seconds + other.cpu_seconds)


class ImageExecutor(Protocol):
    """Makes the images of planned batches; batches are collected in the order in which they were submitted."""

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Begin a batch: a job for each program. Never waits."""
        ...

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch; return the images that could not be made."""
        ...

    def decode(self, program: int, job: ImageJob) -> list[BadImage]:
        """Make the images of one job in the caller's thread."""
        ...

    @property
    def usage(self) -> Usage:
        """Total usage of the threads until now."""
        ...

    def close(self) -> None:
        """End the threads; may be called twice."""
        ...


class StartExecutor(Protocol):
    """Starts an executor on the CPU."""

    def __call__(self, programs: Sequence[ImageProgram], batch_size: int, num_workers: int, ring: int) -> ImageExecutor:
        """Start `num_workers` threads for at most `ring` batches in flight."""
        ...


@dataclass(frozen=True)
class CpuServices:
    """Functions of the CPU executor that the GPU executor calls."""

    # probe(address, size, out): read the markers of JPEGs
    probe: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]
    # pack_regions(address, size, target): copy bytes to addresses
    pack_regions: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]
    # pack_crops(address, width, draws, target, pitch): copy crops of raw-stored images to addresses
    pack_crops: Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], None]
    # find_damage(address, size, checksums, out): compare regions with their CRC-32
    find_damage: Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], int]
    # start_executor(programs): start the workers; called when the first image needs them
    start_executor: Callable[[Sequence[ImageProgram]], ImageExecutor]
    num_workers: int
    jpegs: ReadJpegs
