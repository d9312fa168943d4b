"""Search of CUDA's libraries, in one order for all, with the reason why a place has none.

The order: the environment variable that names the file, cuda-pathfinder, NVIDIA's wheels, a CUDA toolkit of the system,
then copies inside other packages.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton.errors import LibraryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: What to try if a library of CUDA is missing or does not fit the driver.
INSTALL = "pip install 'gpubeton[cuda13]' (gpubeton[cuda12] for drivers before 580, and for V100 and older GPUs)"

#: Versions of CUDA whose libraries the dynamic loader is asked for by name, the newest first.
MAJORS = (13, 12)


@dataclass(frozen=True)
class Place:
    """A place where a library may be."""

    origin: str  # for messages
    path: str = ""  # for ``dlopen``; empty if there is no file
    reason: str = ""  # why there is none, or why it cannot be used
    is_explicit: bool = False  # the user named this file: no other is tried


def find(name: str, *, variable: str = "", bundled_in: Sequence[str] = ()) -> list[Place]:
    """List every place where a library of CUDA was looked for, the best first."""
    return list(_places(name, variable, bundled_in))


def load(
    name: str,
    *,
    path: str | None = None,
    variable: str = "",
    bundled_in: Sequence[str] = (),
    install: str,
    check: Callable[[ctypes.CDLL, Place], str] | None = None,
) -> tuple[ctypes.CDLL, Place]:
    """Load a library of CUDA from the first place where it can be used; a LibraryError lists all places."""
    places = [Place("the path given", path, is_explicit=True)] if path else _places(name, variable, bundled_in)
    tried: list[str] = []
    paths: set[str] = set()
    for place in places:
        if place.path in paths:  # cuda-pathfinder also looks into the wheels
            continue
        library, reason = _open(place)
        if library is not None:
            reason = check(library, place) if check else ""
            if not reason:
                return library, replace(place, path=_file(library) or place.path)
        paths |= {place.path} - {""}
        where = "" if place.path in reason else f"{place.path}: "
        tried.append(f"\n  {place.origin}: {where}{reason}")
    advice = f"Try {install}" + (f", or set {variable} to the file" if variable and not path else "")
    raise LibraryError(f"CUDA's library {name} was not found. {advice}. Tried:{''.join(tried)}")


def driver_version() -> tuple[int, int] | None:
    """Ask NVIDIA's driver for the newest CUDA that it supports, such as (13, 0); None without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        version = ctypes.c_int()
        if driver.cuDriverGetVersion(ctypes.byref(version)) != 0 or version.value <= 0:
            return None
    except (OSError, AttributeError):
        return None
    return version.value // 1000, version.value % 1000 // 10


_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@cache
def _exchange_capture_mode() -> Callable[[Any], int] | None:
    """Find the driver's function that sets a thread's capture mode and returns the former one; None without it."""
    try:
        function = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return None
    return function


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Let this thread call CUDA while another thread captures a graph; otherwise both the call and the capture fail."""
    exchange, mode = _exchange_capture_mode(), ctypes.c_int(_RELAXED)
    if exchange is None:
        yield
        return
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def number_of_gpus() -> int:
    """Ask NVIDIA's driver for the number of GPUs; 0 without a working driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        number = ctypes.c_int()
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(number)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return number.value


def _open(place: Place) -> tuple[ctypes.CDLL | None, str]:
    """Load the library of a place; return it, or the reason why it failed."""
    if not place.path:
        return None, place.reason
    try:
        return ctypes.CDLL(place.path), ""
    except OSError as error:
        return None, str(error)


def _file(library: ctypes.CDLL) -> str:
    """Ask the dynamic loader for the file of a loaded library; empty if unknown."""
    link_map = ctypes.POINTER(_LinkMap)()
    handle = ctypes.c_void_p(library._handle)  # noqa: SLF001 - documented, despite its name
    try:
        failed = ctypes.CDLL(None).dlinfo(handle, _RTLD_DI_LINKMAP, ctypes.byref(link_map))
    except AttributeError:
        return ""
    return "" if failed else os.fsdecode(link_map.contents.name)


class _LinkMap(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("name", ctypes.c_char_p))  # its first fields


_RTLD_DI_LINKMAP = 2


def _places(name: str, variable: str, bundled_in: Sequence[str]) -> Iterator[Place]:
    named = os.environ.get(variable, "") if variable else ""
    if named:
        yield Place(f"${variable}", named, is_explicit=True)
        return
    if variable:
        yield Place(f"${variable}", reason="not set")
    yield _pathfinder(name)
    yield from _wheels(name)
    yield from _toolkits(name)
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
        return Place(origin, reason=_first_line(error))
    return Place(origin, loaded.abs_path) if loaded.abs_path else Place(origin, reason="found it without a path")


def _wheels(name: str) -> Iterator[Place]:
    """Look into the wheels that share the name `nvidia`: ``nvidia/cu13/lib``, before that ``nvidia/nvjpeg/lib``."""
    folders = _package_folders("nvidia")
    files = [file for folder in folders for file in Path(folder).glob(f"*/lib/lib{name}.so*")]
    if not files:
        where = ", ".join(folders) or "no package `nvidia` is installed"
        yield Place("NVIDIA's wheels", reason=f"no lib{name}.so in */lib ({where})")
    for file in sorted(files, key=_version, reverse=True):
        yield Place("NVIDIA's wheels", str(file))


def _toolkits(name: str) -> Iterator[Place]:
    """Look in CUDA toolkits, then let the dynamic loader search."""
    for variable, root in (
        ("$CUDA_HOME", os.environ.get("CUDA_HOME", "")),
        ("$CUDA_PATH", os.environ.get("CUDA_PATH", "")),
        ("/usr/local/cuda", "/usr/local/cuda"),
        ("the Python environment", sys.prefix),  # conda puts libraries there
    ):
        if not root:
            yield Place(variable, reason="not set")
            continue
        files = [file for part in ("lib64", "lib") for file in Path(root, part).glob(f"lib{name}.so*")]
        if not files:
            yield Place(variable, reason=f"no lib{name}.so in lib64 or lib ({root})")
        for file in sorted(files, key=_version, reverse=True)[:1]:
            yield Place(variable, str(file))
    for ending in [*(f".{major}" for major in MAJORS), ""]:
        yield Place("the dynamic loader ($LD_LIBRARY_PATH, ldconfig)", f"lib{name}.so{ending}")


def _bundled(name: str, package: str) -> Iterator[Place]:
    """Look for a copy inside the wheel of another package."""
    origin = f"{package}'s copy"
    folders = [Path(folder).parent / f"{package}.libs" for folder in _package_folders(package)]
    files = [file for folder in folders for file in folder.glob(f"lib{name}.*so*")]
    if not files:
        where = ", ".join(map(str, folders)) or f"{package} is not installed"
        yield Place(origin, reason=f"no lib{name}.so ({where})")
    for file in sorted(files, key=_version, reverse=True):
        yield Place(origin, str(file))


def _package_folders(package: str) -> list[str]:
    """List the folders of a package, without importing it."""
    # Parts of `nvidia` may be in several places, though some of its wheels make it a regular package.
    found = (Path(entry, package) for entry in dict.fromkeys(sys.path) if entry)
    return [str(folder) for folder in found if folder.is_dir()]


def _version(file: Path) -> list[int]:
    """Return the numbers after ``.so``; more numbers are newer."""
    return [int(number) for number in re.findall(r"\d+", file.name.partition(".so")[2])]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
