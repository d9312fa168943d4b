from __future__ import annotations

from tests.quick_garbage import quick_garbage

__all__ = ["quick_garbage"]
