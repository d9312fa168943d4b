"""Facts about the machine and the software, by name, for reports."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import gpubeton
from gpubeton._machine import read_machine
from gpubeton.cli.environment import read_gpu

if TYPE_CHECKING:
    from gpubeton._machine import Machine
    from gpubeton.cli.environment import GpuState

_ROOT = Path("/")


def machine_facts(
    machine: Machine | None = None, gpu: GpuState | None = None, root: Path = _ROOT
) -> list[tuple[str, str]]:
    """List name and value of each known fact; without the name of the host."""
    machine, gpu = machine or read_machine(), gpu or read_gpu()
    limit = "" if machine.core_limit is None else f"; the container may use {machine.core_limit:g}"
    memory = machine.usable_memory_bytes
    gpu_text = ", ".join([gpu.name, *(f"{route}: {note}" for route, note in gpu.routes.items())])
    libraries = ", ".join(f"{name} {found}" for name in ("torch", "numba", "numpy") if (found := _version(name)))
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
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
