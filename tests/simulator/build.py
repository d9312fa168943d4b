"""Builds the simulator's library with g++, once for each state of its sources."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

#: Names the library of a rehearsal, see tests/rehearsal.
REHEARSED = "GPUBETON_SIMULATOR"

_HERE = Path(__file__).resolve().parent
_FLAGS = ["-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread"]


@cache
def compiler() -> str:
    """The path of g++; skips the test where there is none."""
    path = shutil.which(os.environ.get("CXX", "g++"))
    if path is None:
        pytest.skip("the simulated GPU is built with g++, which is not installed (apt-get install g++)")
    return path


@cache
def build() -> Path:
    """The library, which is the simulated CUDA and the simulated nvJPEG in one file; a rehearsal has its own."""
    if os.environ.get(REHEARSED):
        return Path(os.environ[REHEARSED])
    sources = sorted([*_HERE.glob("*.cpp"), *_HERE.glob("*.h")])
    version = subprocess.run([compiler(), "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(version + " ".join(_FLAGS).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    library = _HERE.parent.parent / "build" / "simulator" / f"libsimulator-{digest.hexdigest()[:16]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with (library.parent / "lock").open("w") as lock:
            # Several test processes come here at once.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                _compile([str(source) for source in sources if source.suffix == ".cpp"], library)
    return library


def _compile(sources: list[str], library: Path) -> None:
    unfinished = library.with_suffix(".new")
    done = subprocess.run(
        [compiler(), *_FLAGS, *sources, "-o", str(unfinished)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{compiler()} could not build the simulator:\n{done.stderr}")
    unfinished.rename(library)
