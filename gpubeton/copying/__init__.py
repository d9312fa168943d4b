"""Making ``.beton`` files from samples of others without encoding them, as ``gpubeton split`` and ``subset`` do."""

from __future__ import annotations

from gpubeton.copying.copy import choose, copy_samples, split

__all__ = ["choose", "copy_samples", "split"]
