"""New ``.beton`` files from samples of others, without encoding anything; what ``gpubeton split`` and its like do."""

from __future__ import annotations

from gpubeton.copying.choice import choose, split
from gpubeton.copying.copy import copy_samples

__all__ = ["choose", "copy_samples", "split"]
