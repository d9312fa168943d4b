"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

from tools.numba_cache import cache_folder

# Before anything imports numba, which reads it once.
os.environ["NUMBA_CACHE_DIR"] = str(cache_folder())

# Nothing is timed in a test: a busy machine is no bug.
settings.register_profile("house", deadline=None)
settings.load_profile("house")
