"""Search of CUDA's libraries, with the reason why a place has none.

The order: the environment variable that names the file; cuda-pathfinder, which knows NVIDIA's wheels, conda and
toolkits; the dynamic loader; copies inside other packages.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpubeton._machine import install
from gpubeton.errors import LibraryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def install_cuda() -> str:
    """Name the command for libraries of CUDA that fit the driver."""
    driver = driver_version()
    if driver is not None and driver[0] < 13:
        return f"{install('cuda12')} (or a driver from 580 on, and {install('cuda13')})"
    return f"{install('cuda13')} (for drivers before 580, and for V100 and older GPUs: {install('cuda12')})"


#: Versions of CUDA whose libraries the dynamic loader is asked for by name, the newest first.
MAJORS = (13, 12)


@dataclass(frozen=True)
class Place:
    """A place where a library may be."""

    origin: str  # for messages
    path: str = ""  # for ``dlopen``; empty if there is no file
    reason: str = ""  # why there is none, or why it cannot be used
    is_explicit: bool = False  # the user named this file: no other is tried


def load(
    name: str,
    read_version: Callable[[ctypes.CDLL], tuple[int, ...]] = lambda _: (0,),  # raises OSError for another library
    *,
    path: str | None = None,
    variable: str = "",
    bundled_in: Sequence[str] = (),
) -> tuple[ctypes.CDLL, str, tuple[int, ...]]:
    """Load a library of CUDA from the first place where it can be used: it, its file and its version."""
    places = [Place("the path given", path, is_explicit=True)] if path else find(name, variable, bundled_in)
    tried: list[str] = []
    paths: set[str] = set()
    for place in places:
        if place.path in paths:
            continue
        reason = place.reason
        if place.path:
            paths.add(place.path)
            try:
                library = ctypes.CDLL(place.path)
                version, driver = read_version(library), driver_version()
                if driver is None or version[0] <= driver[0] or place.is_explicit:
                    return library, _file(place.path), version
                reason = f"it is for CUDA {version[0]}, and the driver for CUDA {driver[0]}.{driver[1]}"
            except AttributeError as error:
                reason = f"it is another library: {error}"
            except OSError as error:
                reason = str(error)
        where = "" if place.path in reason else f"{place.path}: "
        tried.append(f"\n  {place.origin}: {where}{reason}")
    advice = f"Try {install_cuda()}" + (f", or set {variable} to the file" if variable and not path else "")
    raise LibraryError(f"CUDA's library {name} was not found. {advice}. Tried:{''.join(tried)}")


def _driver_function(name: str) -> Callable[..., int] | None:
    """Find a function of NVIDIA's driver; None without it."""
    try:
        return getattr(ctypes.CDLL("libcuda.so.1"), name)  # type: ignore[no-any-return]  # ctypes makes it
    except (OSError, AttributeError):
        return None


def driver_version() -> tuple[int, int] | None:
    """Ask NVIDIA's driver for the newest CUDA that it supports, such as (13, 0); None without a driver."""
    version, ask = ctypes.c_int(), _driver_function("cuDriverGetVersion")
    if ask is None or ask(ctypes.byref(version)) != 0 or version.value <= 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


def explain_no_cuda() -> str:
    """Distinguish a missing driver from one that does not fit; what to try."""
    newest = driver_version()
    driver = "no driver answers" if newest is None else f"the driver is for CUDA {newest[0]}.{newest[1]}"
    return f"{driver}. See whether nvidia-smi shows a GPU, which CUDA_VISIBLE_DEVICES may hide. Or {install_cuda()}"


#: A thread in this mode may call CUDA while another one captures a graph. CU_STREAM_CAPTURE_MODE_RELAXED
RELAXED = 2


@cache
def capture_mode_exchange() -> Callable[..., int]:
    """Find the driver's function that sets the calling thread's capture mode, and puts the former one in its place."""
    return _driver_function("cuThreadExchangeStreamCaptureMode") or (lambda _: 0)


def _file(path: str) -> str:
    """Return the file of a library that was loaded by its name alone; the name if the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            if "/" not in path and path in line:
                return line[line.index("/") :]
    return path


def find(name: str, variable: str = "", bundled_in: Sequence[str] = ()) -> Iterator[Place]:
    """List every place where a library of CUDA may be, the best first."""
    named = os.environ.get(variable, "") if variable else ""
    if named:
        yield Place(f"${variable}", named, is_explicit=True)
        return
    if variable:
        yield Place(f"${variable}", reason="not set")
    yield _pathfinder(name)
    for ending in [*(f".{major}" for major in MAJORS), ""]:
        yield Place("the dynamic loader ($LD_LIBRARY_PATH, ldconfig)", f"lib{name}.so{ending}")
    for package in bundled_in:
        yield from _bundled(name, package)


def _pathfinder(name: str) -> Place:
    """Ask NVIDIA's own finder, as other packages do, so that all use one copy."""
    origin = "cuda-pathfinder"
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError as error:
        return Place(origin, reason=f"not installed ({error})")
    try:
        loaded = load_nvidia_dynamic_lib(name)
    except (RuntimeError, OSError) as error:
        return Place(origin, reason=next(iter(str(error).splitlines()), "") or type(error).__name__)
    return Place(origin, loaded.abs_path) if loaded.abs_path else Place(origin, reason="found it without a path")


def _bundled(name: str, package: str) -> Iterator[Place]:
    """Look for a copy inside the wheel of another package, without importing it."""
    origin = f"{package}'s copy"
    folders = [Path(entry, f"{package}.libs") for entry in dict.fromkeys(sys.path) if Path(entry, package).is_dir()]
    files = [file for folder in folders for file in folder.glob(f"lib{name}.*so*")]
    if not files:
        where = ", ".join(map(str, folders)) or f"{package} is not installed"
        yield Place(origin, reason=f"no lib{name}.so ({where})")
    for file in files:
        yield Place(origin, str(file))
