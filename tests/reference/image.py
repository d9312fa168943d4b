"""What one image of a batch has to look like, from its pixels and its draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpubeton._plan.draw_rows import (
    DRAW_COLUMNS,
    FLIP,
    HEIGHT,
    LEFT,
    NUM_PAINTS,
    PAINT_COLUMNS,
    RESIZED_HEIGHT,
    RESIZED_WIDTH,
    SHIFT_X,
    SHIFT_Y,
    TOP,
    WIDTH,
)
from tests.reference.weights import resize


@dataclass(frozen=True)
class Reference:
    """One image as the program wants it.

    Parameters
    ----------
    levels : ndarray of float64, shape (H, W, 3)
        Levels from 0 to 255 before rounding, painted where the draw paints.
    output : ndarray, shape (H, W, 3)
        The result: rounded, and looked up if there is a table.
    """

    levels: np.ndarray
    output: np.ndarray


def reference_image(rgb: np.ndarray, draw: np.ndarray, program: Any) -> Reference:
    """Carry the one pass of a program out on one image.

    Parameters
    ----------
    rgb : ndarray of the program's kind, shape (h, w, C)
        The whole image.
    draw : ndarray of int32, shape (DRAW_COLUMNS + K * PAINT_COLUMNS,)
        Its row of `program.draw`.
    program : ImageProgram
        The program.

    Returns
    -------
    Reference
        Exact levels and exact output.
    """
    levels = place(rgb, draw, (program.height, program.width), program.interpolation)
    assert levels.shape[2] == program.kind.channels
    for top, left, bottom, right, fill in draw[DRAW_COLUMNS:].reshape(-1, PAINT_COLUMNS)[: draw[NUM_PAINTS]]:
        levels[top:bottom, left:right] = program.fills[fill]
    assert not np.isnan(levels).any(), "the draw leaves pixels unspecified"
    return Reference(levels, written(levels, program))


def place(rgb: np.ndarray, draw: np.ndarray, size: tuple[int, int], interpolation: str) -> np.ndarray:
    """Crop, resize, flip and shift; NaN where nothing comes to lie."""
    crop = rgb[draw[TOP] : draw[TOP] + draw[HEIGHT], draw[LEFT] : draw[LEFT] + draw[WIDTH]]
    assert crop.shape[:2] == (draw[HEIGHT], draw[WIDTH]), "the crop box passes the image's border"
    inner = int(draw[RESIZED_HEIGHT]) or size[0], int(draw[RESIZED_WIDTH]) or size[1]
    resized = resize_opaque(crop, inner, interpolation) if rgb.shape[2] == 4 else resize(crop, inner, interpolation)
    if draw[FLIP]:
        resized = resized[:, ::-1]
    out = np.full((*size, rgb.shape[2]), np.nan)
    row, column = np.arange(size[0]) + draw[SHIFT_Y], np.arange(size[1]) + draw[SHIFT_X]
    rows, columns = (row >= 0) & (row < inner[0]), (column >= 0) & (column < inner[1])
    out[np.ix_(rows, columns)] = resized[np.ix_(row[rows], column[columns])]
    return out


def written(levels: np.ndarray, program: Any) -> np.ndarray:
    """Round levels to whole ones and look them up."""
    whole = np.clip(np.rint(levels), 0, program.kind.max_level).astype(program.kind.dtype)
    return whole if program.table is None else program.table[whole, np.arange(program.kind.channels)]


def resize_opaque(rgba: np.ndarray, size: tuple[int, int], interpolation: str) -> np.ndarray:
    """Resize an image with transparency as Pillow does: colors count by how opaque they are."""
    if rgba.shape[:2] == size:
        return rgba.astype(np.float64)
    alpha = rgba[..., 3:].astype(np.float64)
    most = float(np.iinfo(rgba.dtype).max)
    limits = np.array([most**2] * 3 + [most])
    opaque = resize(np.concatenate([rgba[..., :3] * alpha, alpha], axis=2), size, interpolation, limits)
    colors = np.divide(opaque[..., :3], opaque[..., 3:], out=np.zeros((*size, 3)), where=opaque[..., 3:] > 1e-9)
    return np.concatenate([np.minimum(colors, most), opaque[..., 3:]], axis=2)
