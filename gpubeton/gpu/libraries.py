"""Where CUDA's libraries are: searched in one order for all of them, with a reason for every place that has none.

The order: the environment variable that names the file, cuda-pathfinder, NVIDIA's wheels beside us, a CUDA toolkit of
the system, then copies that other packages carry.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpubeton.errors import LibraryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Newest first. The numbers of CUDA whose libraries the dynamic loader is asked for by name.
MAJORS = (13, 12)


@dataclass(frozen=True)
class Place:
    """A place where a library may be.

    Attributes
    ----------
    origin : str
        Where that is, in words.
    path : str
        What to give to ``dlopen``; empty where there is none.
    reason : str
        Why there is none, or why the one there cannot be used.
    is_explicit : bool
        Whether somebody named exactly this file; then no other is tried.
    """

    origin: str
    path: str = ""
    reason: str = ""
    is_explicit: bool = False


def find(name: str, *, variable: str = "", bundled_in: Sequence[str] = ()) -> list[Place]:
    """Give every place where a library of CUDA is or might have been, the best first.

    Parameters
    ----------
    name : str
        Its short name, e.g. "nvjpeg" for ``libnvjpeg.so.13``.
    variable : str
        The environment variable that names the file, if there is one. If it is set, it alone counts.
    bundled_in : sequence of str
        Python packages that carry a copy in ``PACKAGE.libs``.

    Returns
    -------
    list of Place
        Those with a path may be loaded; the others say why not.

    Examples
    --------
    >>> find("nvjpeg", variable="GPUBETON_NVJPEG")[0].origin
    '$GPUBETON_NVJPEG'
    """
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
    """Load a library of CUDA from the first place where it can be used.

    Parameters
    ----------
    name : str
        Its short name, e.g. "nvjpeg".
    path : str, optional
        Exactly this file, and no other.
    variable, bundled_in
        As for `find`.
    install : str
        What to try if it is found nowhere, e.g. "pip install gpubeton[cuda13]".
    check : callable, optional
        Given the library and its place, says why it cannot be used; "" if it can.

    Returns
    -------
    library : CDLL
        Its calls let other Python threads run.
    place : Place
        Where it was; its path is the file that the dynamic loader took.

    Raises
    ------
    LibraryError
        With every place and what was wrong there.
    """
    places = [Place("the path given", path, is_explicit=True)] if path else _places(name, variable, bundled_in)
    tried: list[str] = []
    paths: set[str] = set()
    for place in places:
        if place.path in paths:  # cuda-pathfinder looks into the wheels, too
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
    """Ask NVIDIA's driver which CUDA it is for.

    Returns
    -------
    tuple of int or None
        The newest CUDA that it knows, e.g. (13, 0); None where there is no driver.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        version = ctypes.c_int()
        if driver.cuDriverGetVersion(ctypes.byref(version)) != 0 or version.value <= 0:
            return None
    except (OSError, AttributeError):
        return None
    return version.value // 1000, version.value % 1000 // 10


def number_of_gpus() -> int:
    """Ask NVIDIA's driver how many GPUs this process may use.

    Returns
    -------
    int
        0 where there is no driver, or it does not work.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        number = ctypes.c_int()
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(number)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return number.value


def _open(place: Place) -> tuple[ctypes.CDLL | None, str]:
    """Load what is in a place; give the library, or why it could not be."""
    if not place.path:
        return None, place.reason
    try:
        return ctypes.CDLL(place.path), ""
    except OSError as error:
        return None, str(error)


def _file(library: ctypes.CDLL) -> str:
    """The file of a loaded library, by what the dynamic loader knows of it; empty if it does not say."""
    link_map = ctypes.POINTER(_LinkMap)()
    handle = ctypes.c_void_p(library._handle)  # noqa: SLF001 - documented, in spite of its name
    try:
        failed = ctypes.CDLL(None).dlinfo(handle, _RTLD_DI_LINKMAP, ctypes.byref(link_map))
    except AttributeError:
        return ""
    return "" if failed else os.fsdecode(link_map.contents.name)


class _LinkMap(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("name", ctypes.c_char_p))  # how it begins


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
    """Ask NVIDIA's own finder, which other packages ask too: so all of them use one copy."""
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
    """Look where a CUDA toolkit says it is, then let the dynamic loader search as it does for programs."""
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
    """Look for a copy that was put into another package when its wheel was made."""
    origin = f"{package}'s copy"
    folders = [Path(folder).parent / f"{package}.libs" for folder in _package_folders(package)]
    files = [file for folder in folders for file in folder.glob(f"lib{name}.*so*")]
    if not files:
        where = ", ".join(map(str, folders)) or f"{package} is not installed"
        yield Place(origin, reason=f"no lib{name}.so ({where})")
    for file in sorted(files, key=_version, reverse=True):
        yield Place(origin, str(file))


def _package_folders(package: str) -> list[str]:
    """Where a package lies, without importing it.

    All of them: parts of `nvidia` may lie in several places, though some of its wheels make it a package of one place.
    """
    found = (Path(entry, package) for entry in dict.fromkeys(sys.path) if entry)
    return [str(folder) for folder in found if folder.is_dir()]


def _version(file: Path) -> list[int]:
    """The numbers behind ``.so``; more of them is newer."""
    return [int(number) for number in re.findall(r"\d+", file.name.partition(".so")[2])]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
