"""The environment of a loader: the disks of its files and their speed, other programs, and facts of the machine."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import gpubeton
from gpubeton._bytes import open_bytes, source_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton._machine import Machine
    from gpubeton.loader.gpus import GpuState

_ROOT = Path("/")
_NETWORKS = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs"),
        *("pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"),
        *("fuse.blobfuse", "fuse.blobfuse2", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys"),
        *("fuse.juicefs", "fuse.mount-s3", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
# Of a large file, this many spans of this many bytes are looked at.
_NUM_SPANS = 64
_SPAN = 4 << 20
# How the speed of a disk is measured.
_BLOCK = 1 << 20
_THREADS = 4


@dataclass(frozen=True)
class FilePlace:
    """Where a file is stored."""

    path: str
    size: int  # bytes, without the holes of a sparse file
    file_system: str = ""  # the kernel's name; empty: unknown
    is_network: bool = False
    resident_share: float | None = None  # of these bytes, in the page cache, 0 to 1; None: unknown


def read_file_place(path: str | os.PathLike[str], root: Path = _ROOT) -> FilePlace:
    """Find out where a file is stored, without reading it; `root` contains ``proc``."""
    if not source_type(path).is_mappable:
        with open_bytes(path) as source:
            return FilePlace(path=source.name, size=source.size, is_network=True)
    real = Path(path).resolve(strict=True)
    file_system = _file_system_of(real, root)
    written = written_ranges(real)
    return FilePlace(
        path=os.fspath(path),
        size=sum(stop - start for start, stop in written),
        file_system=file_system,
        is_network=file_system in _NETWORKS,
        resident_share=resident_share(real, written),
    )


def written_ranges(path: str | os.PathLike[str]) -> list[tuple[int, int]]:
    """Return start and stop of the ranges of a file that are no holes: a hole is never read from the disk."""
    with open(path, "rb") as file:
        size, ranges, stop = os.fstat(file.fileno()).st_size, [], 0
        while stop < size:
            try:
                start = os.lseek(file.fileno(), stop, os.SEEK_DATA)
                stop = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            except AttributeError:  # the operating system cannot answer
                return [(0, size)]
            except OSError:  # only a hole follows
                break
            ranges.append((start, stop))
    return ranges


def resident_share(path: str | os.PathLike[str], written: Sequence[tuple[int, int]]) -> float | None:
    """Return which share of these ranges is in the page cache, without reading; None if the system cannot answer."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    if not written:
        return 1.0
    with open_bytes(path) as source:
        content = source.map()
    resident = looked_at = 0
    for start, stop in sampled_spans(written):
        count = -(-(stop - start) // mmap.PAGESIZE)
        pages = np.zeros(count, np.uint8)
        address = ctypes.c_void_p(content.ctypes.data + start)
        if libc.mincore(address, ctypes.c_size_t(count * mmap.PAGESIZE), ctypes.c_void_p(pages.ctypes.data)) != 0:
            return None
        resident += int((pages & 1).sum())
        looked_at += count
    return resident / looked_at


def sampled_spans(written: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Cut ranges into spans, each from the start of a page; of many, take some from the first to the last."""
    pages = [(start // mmap.PAGESIZE * mmap.PAGESIZE, stop) for start, stop in written]
    spans = [(start, min(start + _SPAN, stop)) for first, stop in pages for start in range(first, stop, _SPAN)]
    return [spans[number] for number in np.linspace(0, len(spans) - 1, min(len(spans), _NUM_SPANS)).astype(int)]


def _file_system_of(path: Path, root: Path) -> str:
    """Return the kind of the file system that contains a path."""
    best = result = ""
    for line in _text(root / "proc/self/mounts").splitlines():
        _, point, kind, *_ = line.split()
        folder = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), point)  # the kernel writes a space as \040
        # Of several mounts on one folder, the last one is visible.
        if len(folder) >= len(best) and (path == Path(folder) or Path(folder) in path.parents):
            best, result = folder, kind
    return result


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class OtherPrograms:
    """Measures how many of the cores that this process may use are taken by other programs, from now on."""

    def __init__(self, root: Path = _ROOT) -> None:
        self._root = root
        self._start, self._cpu, self._busy = time.perf_counter(), time.process_time(), _busy_seconds(root)

    def cores(self) -> float | None:
        """Return the cores that they took on average since the beginning; None: unknown."""
        busy, seconds = _busy_seconds(self._root), time.perf_counter() - self._start
        if busy is None or self._busy is None or seconds <= 0:
            return None
        return max(0.0, busy - self._busy - (time.process_time() - self._cpu)) / seconds


def _busy_seconds(root: Path) -> float | None:
    """Return the processor time that the cores of this process spent on any program, or on other virtual machines."""
    lines = _text(root / "proc/stat").splitlines()
    try:
        cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        times = [list(map(int, line.split()[1:9])) for line in lines if line.split()[:1] and line.split()[0] in cores]
        # user, nice, system, idle, waiting for a disk, interrupts, soft interrupts, other virtual machines
        return sum(sum(ticks) - sum(ticks[3:5]) for ticks in times) / os.sysconf("SC_CLK_TCK") if times else None
    except (ValueError, AttributeError):  # another operating system
        return None


def measure_disk(path: str | os.PathLike[str], *, seconds: float = 1.0) -> float | None:
    """Read random blocks of a file for some seconds without the page cache; give bytes/s."""
    # None if the file is too small, or the file system or the operating system cannot do that.
    if not source_type(path).is_mappable or not (blocks := block_starts(path)):
        return None
    with suppress(OSError, AttributeError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            begin = time.perf_counter()
            with ThreadPoolExecutor(_THREADS) as pool:
                read = partial(_read_blocks, descriptor, begin + seconds)
                total = sum(pool.map(read, [blocks[first::_THREADS] for first in range(_THREADS)]))
            return total / (time.perf_counter() - begin)
        finally:
            os.close(descriptor)
    return None


def block_starts(path: str | os.PathLike[str]) -> list[int]:
    """Return the starts of blocks of 1 MiB in a fixed random order; holes, which are not on the disk, are left out."""
    size = Path(path).stat().st_size
    count = max(1, size // _BLOCK)
    chosen = np.random.default_rng(0).permutation(min(count, 1 << 16))
    starts = chosen * (count // len(chosen)) * _BLOCK
    begins, ends = np.array([*written_ranges(path), (size, size)]).T
    number = np.searchsorted(ends[:-1], starts, side="right")  # of the range that holds each, or of a later one
    return list(map(int, starts[(begins[number] <= starts) & (starts + _BLOCK <= ends[number])]))


def _read_blocks(descriptor: int, until: float, starts: list[int]) -> int:
    """Read blocks again and again, until a time; return the bytes."""
    total = 0
    # Anonymous memory starts at a page, as O_DIRECT requires.
    with mmap.mmap(-1, _BLOCK) as block:
        for start in cycle(starts):
            total += os.preadv(descriptor, [block], start)
            if time.perf_counter() > until:
                break
    return total


def machine_facts(machine: Machine, gpu: GpuState, root: Path = _ROOT) -> list[tuple[str, str]]:
    """List name and value of each fact for reports; without the name of the host."""
    limit = "" if machine.core_limit is None else f"; the container may use {machine.core_limit:g}"
    memory = machine.usable_memory_bytes
    gpu_text = ", ".join([gpu.name, *(f"{route}: {note}" for route, note in gpu.routes.items())])
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "numba", "numpy") if find_spec(name))
    facts = {
        "processor": _processor(root),
        "cores": f"{machine.cores}{limit}",
        "free memory": "" if memory is None else f"{memory / (1 << 30):.1f} GiB",
        "GPU": gpu_text if gpu.name else gpu.reason,
        "driver": gpu.driver,
        "nvJPEG": gpu.nvjpeg,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        "gpubeton": gpubeton.__version__,
        "libraries": libraries,
    }
    return [(name, value) for name, value in facts.items() if value]


def _processor(root: Path) -> str:
    names = [line for line in _text(root / "proc/cpuinfo").splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor()
