"""Names for the types that kernels pass around."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

# Top, left, height and width of a crop in source pixels; whether the result is mirrored; its shift down and across in
# output pixels.
Box: TypeAlias = tuple[int, int, int, int, bool, int, int]

# A bit reader, see `jpeg.entropy`: the next bits, how many of them count, the address of the byte behind them.
Reader: TypeAlias = tuple[int, int, int]

# Most taps of an output sample: luma and chroma across, luma and chroma down.
TapCounts: TypeAlias = tuple[int, int, int, int]
