"""Machine code on disk: kept between runs in a folder that is named after the sources that it was made of.

Numba's own cache compares the source file of the cached function alone. The functions that it calls are in other files,
and machine code of an older decoder would run on after one of those has changed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import shutil
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite
import numba

from gpubeton._compile.numba_hooks import dump_code, load_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FunctionType

_config: Any = numba.config
_PACKAGE = Path(__file__).resolve().parent.parent

#: Rooms and modules that machine code is made of: after a change in one of them all of it is compiled again. They have
#: the compiled functions and the constants that these capture; tests/cpu/test_kept.py follows each name to its module.
SOURCES = (
    "_batch",
    "_compile",
    "_cpu",
    "_plan.arena_layout",
    "_plan.draw_rows",
    "_plan.jpeg_windows",
    "_plan.philox",
    "_plan.routes",
    "fields.png",
    "format.layout",
    "pipeline.compiler",
    "pipeline.interpolation",
)
#: Folders of earlier sources that are left: branches that are switched, processes that still run.
_NUM_OLD = 3

_NOTICE = (
    "gpubeton compiles its decoder for this CPU, which takes up to half a minute. The machine code %s. "
    "`gpubeton warm-up` compiles it ahead of time."
)


def folders(package: Path = _PACKAGE) -> list[Path]:
    """List the folders where machine code of the present sources may be kept, the preferred one first."""
    # In NUMBA_CACHE_DIR if that is set, in the package, and in the user's cache. They need not exist.
    state = hashlib.sha256()
    for path in source_files(package):
        state.update(f"{path.relative_to(package).as_posix()}\0".encode())
        state.update(hashlib.sha256(path.read_bytes()).digest())
    # Installations that share a root do not remove each other's code.
    folder = Path(f"gpubeton-{hashlib.sha256(os.fsencode(package)).hexdigest()[:8]}") / state.hexdigest()[:16]
    roots = [package / "_cpu" / "__pycache__"]
    if _config.CACHE_DIR:
        roots.insert(0, Path(_config.CACHE_DIR))
    with suppress(RuntimeError):  # there may be no home
        roots.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"))
    return [root / folder for root in roots]


def source_files(package: Path = _PACKAGE) -> list[Path]:
    """List the files of `SOURCES`."""
    places = [package.joinpath(*name.split(".")) for name in SOURCES]
    files = {path for place in places for path in (*place.rglob("*.py"), place.with_suffix(".py")) if path.is_file()}
    return sorted(files)


def is_source(module: str) -> bool:
    """Return whether the functions of a module may be kept: those of other modules may change unnoticed."""
    return any(f"{module}.".startswith(f"gpubeton.{name}.") for name in SOURCES)


class KeptCode:
    """The machine code of one function, in place of Numba's cache of a dispatcher."""

    # What `function` captures is in its name, see `compile.keep`. The folders are searched in their order; the first
    # that can be written gets new code. With `has_notice` a line is logged before compiling, by one process at a time.
    # `options` are Numba's, where they differ from those of `compiled`.
    def __init__(self, function: FunctionType, folders: Sequence[Path], has_notice: bool, *, options: str = "") -> None:
        self._name = f"{function.__module__}.{function.__qualname__}-{function.__code__.co_firstlineno}"
        self._folders, self._options = folders, options
        self.has_notice = has_notice
        self.folder: Path | None = None  # of the code that was asked for last; None if there is none

    @property
    def cache_path(self) -> str:
        """The preferred folder."""
        return str(self._folders[0])

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the machine code for a signature, None if there is none yet."""
        if _takes_a_function(signature):
            return None
        target.refresh()
        name = self._file_name(signature, target.codegen())
        for folder in self._folders:
            with suppress(OSError, EOFError, pickle.UnpicklingError):
                values = pickle.loads((folder / name).read_bytes())
                self.folder = folder
                with suppress(OSError):
                    os.utime(folder)
                return load_code(target, values)
        if self.has_notice:
            _log_notice(next(self._writable(), None))
        return None

    def save_overload(self, signature: Any, code: Any) -> None:
        """Keep machine code where that is possible."""
        self.folder = None
        if code.library.has_dynamic_globals or _takes_a_function(signature):
            return  # it holds addresses of this process
        name = self._file_name(signature, code.codegen)
        data = dump_code(code)
        for folder in self._writable():
            partial = folder / f"{name}.{uuid.uuid4().hex}"
            with suppress(OSError):
                partial.write_bytes(data)
                # Whole or not there, however many processes write it.
                partial.replace(folder / name)
                self.folder = folder
                return
            with suppress(OSError):
                partial.unlink()

    def _file_name(self, signature: Any, codegen: Any) -> str:
        checks = _config.BOUNDSCHECK  # of the indices of arrays, which the environment may ask for
        made_for = (signature, self._options, checks, codegen.magic_tuple(), numba.__version__, llvmlite.__version__)
        number = hashlib.sha256(repr(made_for).encode()).hexdigest()[:16]
        return f"{self._name}-{sys.implementation.cache_tag}-{number}"

    def _writable(self) -> Iterator[Path]:
        """Give the folders that may be written; they are made."""
        for folder in self._folders:
            with suppress(OSError):
                if not folder.is_dir():
                    folder.mkdir(parents=True, exist_ok=True)  # another process may be as far
                    _remove_old(folder)
                if os.access(folder, os.W_OK):
                    yield folder


def _takes_a_function(signature: Any) -> bool:
    """Return whether a function is an argument: its type is the function itself."""
    return " at 0x" in repr(signature)


def _remove_old(folder: Path) -> None:
    """Remove machine code of earlier sources beside a new folder, but for the few that were used last."""
    with suppress(OSError):
        others = sorted(
            (path for path in folder.parent.iterdir() if path != folder), key=lambda path: path.stat().st_mtime
        )
        for path in others[:-_NUM_OLD]:
            shutil.rmtree(path, ignore_errors=True)


def _log_notice(folder: Path | None) -> None:
    """Log that compiling begins, unless another process has done so and compiles as well."""
    if folder is not None:
        with suppress(OSError):
            # Open, and so locked, until this process ends.
            lock = os.open(folder / "compiling", os.O_CREAT | os.O_RDWR)
            try:
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            except ImportError:  # Windows: each process logs it
                os.close(lock)
    if folder is not None:
        where = f"is kept for later processes, in {folder}"
    else:
        chosen = os.environ.get("NUMBA_CACHE_DIR")
        where = "cannot be kept, and each process compiles it again: " + (
            f"NUMBA_CACHE_DIR={chosen} cannot be written, nor the other folders"
            if chosen
            else "set NUMBA_CACHE_DIR to a folder that can be written"
        )
    # Without any configuration of its own, logging writes a warning to stderr.
    logging.getLogger("gpubeton").warning(_NOTICE, where)
