"""What all tests share."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def kernels_fingerprint() -> str:
    """Name the present sources of the CPU executor and whatever compiles them.

    Numba looks at the file of a cached function alone: when a function that it calls stands in another file and
    changes there, the stale machine code is used. A cache folder per state of the sources cannot be stale.
    """
    digest = hashlib.sha256()
    for source in sorted((ROOT / "gpubeton" / "cpu").rglob("*.py")):
        digest.update(source.relative_to(ROOT).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


# Before anything imports numba, which reads it once.
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".numba_cache" / kernels_fingerprint())
