"""FilePlace: what kind of disk a file is on, and how much of it is in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpubeton.format.byte_source import open_bytes

__all__ = ["FilePlace", "read_file_place", "resident_share"]

_ROOT = Path("/")
_NETWORKS = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs"),
        *("pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"),
        *("fuse.blobfuse", "fuse.blobfuse2", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys"),
        *("fuse.juicefs", "fuse.mount-s3", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
# Parts of a large file that are looked at, and their bytes.
_NUM_SPANS = 64
_SPAN = 4 << 20


@dataclass(frozen=True)
class FilePlace:
    """Where a file is.

    Parameters
    ----------
    path : str
        The file.
    size : int
        Its bytes.
    file_system : str
        Kind of file system, as the kernel names it; empty if it is not known.
    device : str
        What is mounted there.
    is_network : bool
        Whether it is read over a network, or from another machine.
    is_rotational : bool or None
        Whether the disk turns; None if that is not known.
    resident_share : float or None
        Share of the file that the operating system holds in memory, 0 to 1; None if it does not say.
    """

    path: str
    size: int
    file_system: str = ""
    device: str = ""
    is_network: bool = False
    is_rotational: bool | None = None
    resident_share: float | None = None


def read_file_place(path: str | os.PathLike[str], root: Path = _ROOT) -> FilePlace:
    """Look where a file is. Reads nothing of it.

    Parameters
    ----------
    path : str or path
        The file.
    root : Path
        Where ``proc`` and ``sys`` are.

    Returns
    -------
    FilePlace
        What is known.

    Raises
    ------
    OSError
        If there is no such file.
    """
    real = Path(path).resolve(strict=True)
    device, file_system = _mount_of(real, root)
    status = real.stat()
    return FilePlace(
        path=os.fspath(path),
        size=status.st_size,
        file_system=file_system,
        device=device,
        is_network=file_system in _NETWORKS,
        is_rotational=_is_rotational(os.major(status.st_dev), os.minor(status.st_dev), root),
        resident_share=resident_share(real),
    )


def resident_share(path: str | os.PathLike[str]) -> float | None:
    """Tell how much of a file is in memory, without reading any of it.

    Parameters
    ----------
    path : str or path
        The file. Of a large one some parts are looked at.

    Returns
    -------
    float or None
        Share of its pages, 0 to 1; None if the operating system does not say.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "mincore"):
        return None
    with open_bytes(path) as source:
        size = source.identity().size
        if size == 0:
            return 1.0
        content = source.map()
    resident = looked_at = 0
    for start in _spans(size):
        count = -(-min(_SPAN, size - start) // mmap.PAGESIZE)
        pages = np.zeros(count, np.uint8)
        address = ctypes.c_void_p(content.ctypes.data + start)
        if libc.mincore(address, ctypes.c_size_t(count * mmap.PAGESIZE), ctypes.c_void_p(pages.ctypes.data)) != 0:
            return None
        resident += int((pages & 1).sum())
        looked_at += count
    return resident / looked_at


def _spans(size: int) -> list[int]:
    """Where the parts begin that are looked at, each at the beginning of a page."""
    if size <= _NUM_SPANS * _SPAN:
        return list(range(0, size, _SPAN))
    step = (size - _SPAN) / (_NUM_SPANS - 1)
    return [int(number * step) // mmap.PAGESIZE * mmap.PAGESIZE for number in range(_NUM_SPANS)]


def _mount_of(path: Path, root: Path) -> tuple[str, str]:
    """Device and kind of the file system that is mounted nearest above a path."""
    best, found = "", ("", "")
    try:
        mounts = (root / "proc/self/mounts").read_text().splitlines()
    except OSError:
        return found
    for line in mounts:
        device, point, kind, *_ = line.split()
        place = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), point)  # the kernel writes a blank as \040
        # The last of several on one point is the one that is seen.
        if len(place) >= len(best) and (path == Path(place) or Path(place) in path.parents):
            best, found = place, (device, kind)
    return found


def _is_rotational(major: int, minor: int, root: Path) -> bool | None:
    """Ask the block device, or the disk that it is a part of."""
    device = root / f"sys/dev/block/{major}:{minor}"
    for folder in (device, device.resolve().parent):
        with suppress(OSError):
            return (folder / "queue/rotational").read_text().strip() == "1"
    return None
