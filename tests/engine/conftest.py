from __future__ import annotations

from tests.ctrl_c import ctrl_c

__all__ = ["ctrl_c"]
