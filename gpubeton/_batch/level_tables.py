"""Level tables: replace levels by values of any type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.image_batch import as_nchw, as_nhwc, is_nchw
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.pixel_type import pixel_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def normalize(batch: Any, table: NDArray[Any], dtype: str, take: Callable[..., Any] = np.empty) -> Any:
    """Replace levels by the entries of a table, (num_levels, C); `take(shape, dtype)` gives memory for arrays."""
    levels, written = as_nhwc(batch), pixel_type(dtype)
    if isinstance(batch, np.ndarray):
        values = take(levels.shape, table.dtype)
        bits = f"u{table.itemsize}"
        Compiler.compile(look_up_values)(levels, np.ascontiguousarray(table.T).view(bits), values.view(bits))
        values = written.tensor(values) if written.jit_dtype is None else values.view(written.jit_dtype)
    else:
        values = written.tensor(table).to(batch.device)[levels.long(), list(range(levels.shape[3]))]
    return as_nchw(values) if is_nchw(batch) else values


def look_up_values(
    levels: Any,  # (N, H, W, C) uint8 or uint16: levels
    table: Any,  # (C, num_levels): for each channel and level a value
    values: Any,  # (N, H, W, C): written
) -> None:
    """Replace each level by its entry in a table: numpy would take twenty times as long."""
    for number in range(len(levels)):
        for y in range(levels.shape[1]):
            line, target = levels[number, y], values[number, y]
            for channel in range(len(table)):
                entries = table[channel]
                for x in range(len(line)):
                    target[x, channel] = entries[line[x, channel]]
