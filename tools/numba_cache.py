"""Name a cache folder for Numba after the present sources of the CPU executor.

Numba looks at the file of a cached function alone: when a function that it calls stands in another file and changes
there, stale machine code runs on. A folder for each state of the sources cannot be stale.

    python3 tools/numba_cache.py
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def cache_folder() -> Path:
    """Give the folder.

    Returns
    -------
    Path
        It need not exist yet.
    """
    digest = hashlib.sha256()
    for source in sorted((_ROOT / "gpubeton" / "cpu").rglob("*.py")):
        digest.update(source.relative_to(_ROOT).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    return _ROOT / ".numba_cache" / digest.hexdigest()[:16]


if __name__ == "__main__":
    print(cache_folder())
