from __future__ import annotations

from tests.ctrl_c import ctrl_c
from tests.quick_garbage import quick_garbage

__all__ = ["ctrl_c", "quick_garbage"]
