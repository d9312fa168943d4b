"""What all tests share."""

from __future__ import annotations

import os

from tools.numba_cache import cache_folder

# Before anything imports numba, which reads it once.
os.environ["NUMBA_CACHE_DIR"] = str(cache_folder())
