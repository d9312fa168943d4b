"""Machine: the cores and the memory that this process may use, and how the package was installed."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_ROOT = Path("/")


@dataclass(frozen=True)
class Machine:
    """What this process may use."""

    cores: int  # cores that it may run on
    core_limit: float | None = None  # processor time that its container gives it, in cores; None without a limit
    memory_bytes: int | None = None  # memory that is free, or can be made free, now
    memory_limit_bytes: int | None = None  # memory that its container gives it; None without a limit

    @property
    def usable_cores(self) -> int:
        """Threads that get a core each, at least 1."""
        return max(1, self.cores if self.core_limit is None else min(self.cores, int(self.core_limit)))

    @property
    def usable_memory_bytes(self) -> int | None:
        """The smaller of the free memory and the container's limit."""
        sizes = [size for size in (self.memory_bytes, self.memory_limit_bytes) if size is not None]
        return min(sizes, default=None)


def read_machine(root: Path = _ROOT) -> Machine:
    """Look at the machine."""
    return Machine(
        cores=_cores(),
        core_limit=_core_limit(root),
        memory_bytes=_available_memory(root),
        memory_limit_bytes=_memory_limit(root),
    )


def count_cores(root: Path = _ROOT) -> int:
    """Count the cores that this process may use: how many threads get one each."""
    # The quota of the container counts too: with the time of 2 of 64 cores, 64 threads would mostly be stopped.
    return Machine(_cores(), _core_limit(root)).usable_cores


def worker_count(num_workers: int) -> int:
    """Return a number of workers; one for each core if it is less than 1."""
    return num_workers if num_workers >= 1 else count_cores()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _groups(root: Path, controller: str) -> list[Path]:
    """Folders of this process's control group and of those around it, of version 2 and of version 1."""
    folders = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        base = root / "sys/fs/cgroup" / (controller if names else "")
        parts = [part for part in path.split("/") if part not in ("", "..")]
        folders += [base.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    return folders


def _core_limit(root: Path) -> float | None:
    """The smallest quota of the groups, in cores."""
    limits = []
    for group in _groups(root, "cpu"):
        quota, _, period = _text(group / "cpu.max").strip().partition(" ")
        if not period:
            quota, period = _text(group / "cpu.cfs_quota_us").strip(), _text(group / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal() and int(period):
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def _memory_limit(root: Path) -> int | None:
    limits = []
    for group in _groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _text(group / name).strip()
            # Version 1 writes a number near 2^63 where there is no limit.
            if text.isdecimal() and int(text) < 1 << 60:
                limits.append(int(text))
    return min(limits, default=None)


def _available_memory(root: Path) -> int | None:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


# --- the installation ------------------------------------------------------------------------------------------------

_INSTALLERS = {"uv": "uv pip install"}

# The torch of PyPI is built for CUDA 13. An installed one is kept, so this one comes first.
_TORCH_FOR_CUDA_12 = "torch --index-url https://download.pytorch.org/whl/cu126"


@cache
def install(extra: str) -> str:
    """Give the command that installs an extra, from where the package came and with the same program; cuda12: two."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow, and rarely needed

    try:
        return command(distribution("gpubeton"), extra)
    except PackageNotFoundError:  # a folder on PYTHONPATH
        return f"pip install '{Path(__file__).parent.parent}[{extra}]'"


def command(package: Distribution, extra: str) -> str:
    """Give the command for an installed package."""
    program = _INSTALLERS.get((package.read_text("INSTALLER") or "").strip(), "pip install")
    if extra == "cuda12":
        program = f"{program} {_TORCH_FOR_CUDA_12} && {program}"
    origin: dict[str, dict[str, object]] = {}
    with suppress(ValueError):
        origin = json.loads(package.read_text("direct_url.json") or "{}")  # PEP 610
    url = str(origin.get("url", ""))
    if url.startswith("file:") and "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"{program} {editable}'{unquote(urlsplit(url).path)}[{extra}]'"
    if vcs := origin.get("vcs_info"):
        return f"{program} 'gpubeton[{extra}] @ {vcs.get('vcs')}+{url}'"
    return f"{program} 'gpubeton[{extra}]'"
