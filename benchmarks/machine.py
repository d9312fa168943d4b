"""The machine and the commit that a result belongs to."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import TypedDict

from gpubeton._machine import count_cores

__all__ = ["Machine", "commit", "describe_machine"]

_ROOT = Path(__file__).resolve().parent.parent


class Machine(TypedDict):
    """Facts about a machine that a result depends on."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    load_before: float


def describe_machine() -> Machine:
    """Describe this machine, without its host name."""
    return {
        "cpu": _cpu_model(),
        "cores": count_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        "load_before": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    """Return the current commit; a plus sign means uncommitted changes."""
    result = subprocess.run(
        ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout.strip() or "unknown"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
