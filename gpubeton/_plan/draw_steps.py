"""Draw the step rows of one operation; operations that could fold, but come too late for it, become rows, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton._batch.place_steps import RowGeometry
from gpubeton._batch.step_rows import PAINT, SHIFT, TURN
from gpubeton.transforms.step_transform import StepTransform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State
    from gpubeton.transforms.transform import Transform


def draw_step(
    operation: Transform, uniform: Uniform, count: int, image: State
) -> NDArray[np.int32]:  # (N, S, STEP_COLUMNS)
    """Draw the step rows of an operation."""
    if isinstance(operation, StepTransform):
        return operation.draw(uniform, count, image)
    geometry = RowGeometry(count, (image.shape[0], image.shape[1]))
    operation.fold(geometry, operation.draw(uniform, count, image))
    return geometry.rows


def num_rows(operation: Transform, image: State) -> int:
    """Return the number of step rows of each image."""
    if isinstance(operation, StepTransform):
        return operation.num_rows

    rows = draw_step(operation, lambda count, rows=None: np.zeros((1, count)), 1, image)  # noqa: ARG005
    return int(rows.shape[1])


def kinds_of(operation: Transform) -> frozenset[int]:
    """Return the kinds of steps that an operation may have."""
    return operation.kinds if isinstance(operation, StepTransform) else frozenset({PAINT, SHIFT, TURN})
