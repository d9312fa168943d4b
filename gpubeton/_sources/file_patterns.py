"""Find the files of a source by a pattern, on this machine or in an object store."""

from __future__ import annotations

import os
from glob import escape, glob
from typing import TYPE_CHECKING

from gpubeton._bytes.object_store import list_objects
from gpubeton.errors import OptionError
from gpubeton.format.dataset import expand_braces

if TYPE_CHECKING:
    from gpubeton._bytes.remote_options import RemoteOptions


def find_files(pattern: str, ending: str, remote: RemoteOptions | None = None) -> list[str]:
    """Find the files that a pattern with braces, ``*`` or ``?`` names, and those of an ending in folders among them."""
    files = [path for name in expand_braces(pattern) for path in _find(name, ending, remote)]
    missing = [path for path in files if "://" not in path and not os.path.isfile(path)]  # noqa: PTH113  a text
    if missing or not files:
        which = missing[0] if missing else pattern
        raise OptionError(
            f"{which}: no such file ({len(missing)} of {len(files)} are missing); expected files, or a folder with "
            f"names that end in {ending}"
        )
    return files


def _find(name: str, ending: str, remote: RemoteOptions | None) -> list[str]:
    if "://" in name:
        if not name.endswith("/"):
            return [name]
        return [url for url, _, _ in list_objects(name, remote) if url.endswith(ending)]
    # Absolute patterns, too, which Path.glob refuses.
    paths = sorted(glob(name)) or [name]  # noqa: PTH207
    inside = [sorted(glob(os.path.join(escape(path), f"*{ending}"))) for path in paths]  # noqa: PTH118, PTH207
    folders = [os.path.isdir(path) for path in paths]  # noqa: PTH112
    return [
        file
        for path, files, is_folder in zip(paths, inside, folders, strict=True)
        for file in (files if is_folder else [path])
    ]
