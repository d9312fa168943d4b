"""Step rows: what is done to each image between resampling and normalization, as lists of int32.

The images of a batch have lists of S rows, int32 (N, S, STEP_COLUMNS), carried out in order. A row that is zero
changes nothing. The Numba code in this room and ``kernels/image_steps.cu`` carry out the same rows, with the same
integer arithmetic.

================  ============================================================================================
kind              columns from `PARAMETERS` on
================  ============================================================================================
KEEP              none: the image stays as it is
BRIGHTNESS        factor; see `color_formulas`, here and for the next three
CONTRAST          factor
SATURATION        factor
HUE               factor
SOLARIZE          levels from this one on become ``255 - level``; all of this up to BLUR is for uint8
SOLARIZE_ADD      levels below 128 rise by this, up to 255
POSTERIZE         how many upper bits stay
INVERT            none: ``255 - level``
AUTOCONTRAST      none: each channel is stretched; its least level becomes 0, its largest 255
EQUALIZE          none: the levels of each channel become equally frequent, as nearly as they can: Pillow's way
SHARPNESS         factor; see `filter_steps`
BLUR              reach R, and the weights of distance 0 to R from the middle; see `filter_steps`
WARP_NEAREST      fill (two columns), and six int64, each as two columns: see `warp_steps`
WARP_BILINEAR     the same
PERSPECTIVE       fill (two columns), nine int64, and 1 for bilinear: see `warp_steps`
PAINT             top, left, bottom, right, fill (two columns): a rectangle, inside the image or empty
TURN              1: mirror left to right; 2: top to bottom; 4: then rows become columns (of square images)
SHIFT             pixels down, pixels right, fill (two columns); the uncovered part is filled
HSV               factors of saturation and value, and a turn of the hue: see `hsv_step`
SAVE              none: keep the image; an empty mixture begins
ADD               weight: add the image, times this, to the mixture; the kept image takes its place
FINISH            none: the image becomes the mixture, rounded
================  ============================================================================================

Factors and weights are in units of 2**-15. A fill is the level of four channels, each of 16 bits. Of images with four
channels, the fourth is opacity: it moves with the others, and all else leaves it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

STEP_COLUMNS = 16  # one cache line; a step with more parameters takes several rows
KIND = 0
SPAN = 1  # rows of the step; of KEEP, 0 counts as 1
PARAMETERS = 2

(KEEP, BRIGHTNESS, CONTRAST, SATURATION, HUE, SOLARIZE, SOLARIZE_ADD, POSTERIZE, INVERT, AUTOCONTRAST, EQUALIZE,
 SHARPNESS, BLUR, WARP_NEAREST, WARP_BILINEAR, PERSPECTIVE, PAINT, TURN, SHIFT, HSV, SAVE, ADD,
 FINISH) = range(23)  # fmt: skip
NUM_KINDS = 23

#: Kinds whose steps in a row run together, on pixels that stay in registers.
COLORS = frozenset({BRIGHTNESS, CONTRAST, SATURATION, HUE})
#: Kinds whose result has pixels of other places, so that a GPU cannot write it over the image.
MOVING = frozenset({SHARPNESS, WARP_NEAREST, WARP_BILINEAR, PERSPECTIVE, TURN, SHIFT})
MIXING = frozenset({SAVE, ADD, FINISH})  # they need a mixture and a kept image
MAX_STEPS = 64  # rows of an image


def num_rows_of(num_parameters: int) -> int:
    """Return how many rows a step takes."""
    return -(-(PARAMETERS + num_parameters) // STEP_COLUMNS)


def step_rows(
    kind: int,
    parameters: NDArray[np.int32],  # (N, P)
    is_done: NDArray[np.bool_] | None = None,  # (N,): whether the step changes the image; None: of all
) -> NDArray[np.int32]:  # (N, span, STEP_COLUMNS)
    """Write one step of each image; those that are not done are KEEP."""
    count, width = parameters.shape
    span = num_rows_of(width)
    rows = np.zeros((count, span * STEP_COLUMNS), np.int32)
    rows[:, KIND], rows[:, SPAN] = kind, span
    rows[:, PARAMETERS : PARAMETERS + width] = parameters
    if is_done is not None:
        rows[~is_done] = 0
    return rows.reshape(count, span, STEP_COLUMNS)


def step_kinds(rows: NDArray[np.int32]) -> NDArray[np.int32]:  # (N, S), of rows (N, S, STEP_COLUMNS)
    """Return the kind of the step that begins in each row; KEEP in its further rows, which hold parameters."""
    kinds = rows[..., KIND].copy()
    following = np.zeros(len(rows), np.int32)
    for row in range(rows.shape[1]):
        kinds[following > 0, row] = KEEP
        following = np.maximum(np.where(following > 0, following, rows[:, row, SPAN]) - 1, 0)
    return kinds


def fill_columns(fill: Sequence[float]) -> NDArray[np.int32]:  # (2,)
    """Pack the levels of a color; equal ones are those of all channels."""
    levels = np.zeros(4, np.uint16)
    levels[:] = fill[0] if len(set(fill)) == 1 else [*fill, 0][:4]
    return levels.view(np.int32)


def words(values: NDArray[np.int64]) -> NDArray[np.int32]:  # (N, 2 * K)
    """View int64 numbers, (N, K), as the columns that hold them."""
    return np.ascontiguousarray(values, np.int64).view(np.int32)
