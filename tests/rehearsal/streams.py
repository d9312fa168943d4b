"""The simulator's stream that a stream of torch is."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

from tests.simulator.library import library


def simulated_stream(stream):
    """As `tests.simulator.faults.Faults` takes streams."""
    find = library().rehearsal_stream
    find.restype = ctypes.c_void_p
    return SimpleNamespace(handle=find(ctypes.c_void_p(stream.cuda_stream)))
