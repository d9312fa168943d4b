"""CpuServices: what an executor on a GPU asks of the CPU's rooms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton._plan.image_executor import ImageExecutor
    from gpubeton._plan.jpeg_parts import Intervals, JpegParts
    from gpubeton._plan.program import ImageProgram


@dataclass(frozen=True)
class CpuServices:
    """Functions of the CPU executor that the GPU executor calls."""

    # survey(address, size, out): read the markers of JPEGs
    survey: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]
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


class ReadJpegs(Protocol):
    """Reads JPEGs in memory for a decoder from entry points; see `gpubeton._cpu.jpeg.part_reader.JpegReader`."""

    def read(
        self,
        address: NDArray[np.uint64],
        size: NDArray[np.uint64],
        height: NDArray[np.int32],
        width: NDArray[np.int32],
        entries: NDArray[np.uint64],
        num_entries: NDArray[np.int32],
        seals: NDArray[np.uint32],
        draws: NDArray[np.int32],
    ) -> JpegParts:
        """Read the headers, and find out which MCUs the crops need."""
        ...

    def place_crops(self, parts: JpegParts, draws: NDArray[np.int32]) -> None:
        """Find out which MCUs other crops of the same images need; changes the rows."""
        ...

    def list_intervals(
        self, address: NDArray[np.uint64], size: NDArray[np.uint64], entries: NDArray[np.uint64], parts: JpegParts
    ) -> Intervals:
        """List the intervals that crops need."""
        ...

    def list_known(
        self, size: NDArray[np.uint64], first_entry: NDArray[np.int64], entries: NDArray[np.uint8], parts: JpegParts
    ) -> Intervals:
        """List the intervals that crops need, of images with known entry points."""
        ...
