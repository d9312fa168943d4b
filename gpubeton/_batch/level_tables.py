"""Level tables: replace each level by its entry in a table, per image and channel.

A change of levels is a kind and a parameter, two int32:

============  =================================================================================
KEEP          nothing
SOLARIZE      levels from `parameter` on become ``255 - level``
POSTERIZE     the upper `parameter` bits stay
INVERT        ``255 - level``
AUTOCONTRAST  each channel is stretched: its least level becomes 0, its largest 255
EQUALIZE      each channel's levels become equally frequent, as nearly as they can: Pillow's way
============  =================================================================================

AUTOCONTRAST and EQUALIZE make the table from the histogram of the channel. `normalize` has a table of its results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.image_batch import ImageChange, as_nchw, as_nhwc, is_nchw
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.pixel_type import pixel_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

KEEP, SOLARIZE, POSTERIZE, INVERT, AUTOCONTRAST, EQUALIZE = range(6)

_WITH_HISTOGRAM = AUTOCONTRAST, EQUALIZE


def level_tables(
    kind: int,
    parameters: Any,  # (N, 1, 1) int64: parameter of each
    histograms: Any,  # (N, 3, 256) int64
) -> Any:  # (N, 3, 256) uint8
    """Make the tables of images that have the same kind of change."""
    import torch

    level = torch.arange(256, device=parameters.device).expand(len(parameters), 3, 256)
    if kind == SOLARIZE:
        table = torch.where(level >= parameters, 255 - level, level)
    elif kind == POSTERIZE:
        table = level & (256 - (1 << (8 - parameters)))
    elif kind == INVERT:
        table = 255 - level
    else:
        occurs = histograms > 0
        least = torch.where(occurs, level, 255).amin(2, keepdim=True)
        most = torch.where(occurs, level, 0).amax(2, keepdim=True)
        if kind == AUTOCONTRAST:
            span = most - least
            table = (level - least).clamp(min=0) * 255 // span.clamp(min=1)
            table = torch.where(span > 0, table, level)
        else:
            before = histograms.cumsum(2) - histograms
            # How many pixels to a level: all but those of the largest, spread over 255.
            step = (histograms.sum(2, keepdim=True) - histograms.gather(2, most)) // 255
            table = (before + step // 2) // step.clamp(min=1)
            table = torch.where(step > 0, table, level)
    return table.clamp(0, 255).to(torch.uint8)


def _change_arrays(images: NDArray[np.uint8], rows: NDArray[Any]) -> None:
    # Not torch's tables: its threads would wait for each other wherever all cores are busy.
    parts = (count_levels, write_table, look_up)
    count, write, look = (Compiler.compile(part) for part in parts)

    def change_images(images: Any, rows: Any) -> None:
        counts = np.zeros((3, 256), np.int64)
        table = np.empty((3, 256), np.uint8)
        for number in range(len(images)):
            kind = rows[number, 0]
            if kind == KEEP:
                continue
            if kind >= AUTOCONTRAST:
                count(images[number], counts)
            for channel in range(3):
                write(kind, rows[number, 1], counts[channel], table[channel])
            look(images[number], table)

    Compiler.compile(change_images)(images, rows)


def _change_tensors(images: Any, rows: NDArray[Any]) -> None:
    import torch

    for kind in range(1, EQUALIZE + 1):
        chosen = np.flatnonzero(rows[:, 0] == kind)
        if len(chosen) == 0:
            continue
        indices = torch.from_numpy(chosen).to(images.device)
        # Level and channel of every value in one number: its place in the three tables of its image.
        levels = images[indices].to(torch.int64)
        places = (levels + 256 * torch.arange(3, device=images.device)).flatten(1)
        histograms = None
        if kind in _WITH_HISTOGRAM:
            counts = torch.zeros((len(indices), 768), dtype=torch.int64, device=images.device)
            histograms = counts.scatter_add_(1, places, torch.ones_like(places)).view(-1, 3, 256)
        parameters = torch.from_numpy(rows[chosen, 1].astype(np.int64)).to(images.device).view(-1, 1, 1)
        tables = level_tables(kind, parameters, histograms)
        images[indices] = tables.flatten(1).gather(1, places).view(levels.shape)


def write_table(
    kind: Any,
    parameter: Any,
    counts: Any,  # (256,) int64
    table: Any,  # (256,) uint8: written
) -> None:
    """Make the table of one channel, as `level_tables` does."""
    least, most, before = 255, 0, 0
    if kind >= AUTOCONTRAST:
        for level in range(256):
            if counts[level] > 0:
                least, most = min(least, level), level
    step = (counts.sum() - counts[most]) // 255
    for level in range(256):
        value = level
        if kind == SOLARIZE:
            value = 255 - level if level >= parameter else level
        elif kind == POSTERIZE:
            value = level & (256 - (1 << (8 - parameter)))
        elif kind == INVERT:
            value = 255 - level
        elif kind == AUTOCONTRAST and most > least:
            value = (max(level, least) - least) * 255 // (most - least)
        elif kind == EQUALIZE and step > 0:
            value = (before + step // 2) // step
            before += counts[level]
        table[level] = min(value, 255)


def count_levels(
    image: Any,  # (H, W, 3) uint8: levels
    counts: Any,  # (3, 256) int64: written
) -> None:
    """Count how often each level occurs."""
    counts[:] = 0
    red, green, blue = counts[0], counts[1], counts[2]
    for y in range(len(image)):
        line = image[y]
        for x in range(len(line)):
            red[line[x, 0]] += 1
            green[line[x, 1]] += 1
            blue[line[x, 2]] += 1


def look_up(
    image: Any,  # (H, W, 3) uint8: levels, changed
    table: Any,  # (3, 256) uint8: the table
) -> None:
    """Replace each level by its entry in the table."""
    red, green, blue = table[0], table[1], table[2]
    for y in range(len(image)):
        line = image[y]
        for x in range(len(line)):
            line[x, 0] = red[line[x, 0]]
            line[x, 1] = green[line[x, 1]]
            line[x, 2] = blue[line[x, 2]]


change_levels = ImageChange(_change_arrays, _change_tensors)


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
