"""RowGeometry: flips, turns, shifts and painted rectangles as step rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.place_steps import ACROSS
from gpubeton._batch.step_rows import PAINT, SHIFT, STEP_COLUMNS, TURN, fill_columns, step_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill


class RowGeometry:
    """Step rows of `count` images of one size; a `Geometry`. Each call adds a row."""

    def __init__(self, count: int, size: tuple[int, int]) -> None:
        self.size = size
        self.rows = np.zeros((count, 0, STEP_COLUMNS), np.int32)

    def crop(self, boxes: NDArray[Any], size: tuple[int, int]) -> None:
        """Refuse: steps keep the size."""
        raise TypeError("a crop is no step: the decoder takes it")

    def place(self, placement: object) -> None:
        """Refuse: operations with other moves write their rows."""
        raise TypeError("it has no step")

    def flip(self, flipped: NDArray[Any]) -> None:
        self.turn(np.where(flipped, ACROSS, 0))

    def turn(self, bits: NDArray[Any]) -> None:
        self._add(TURN, bits[:, None], bits != 0)

    def translate(self, shift: NDArray[Any], fill: Fill) -> None:
        self._add(SHIFT, self._filled(-shift, fill), (shift != 0).any(axis=1))

    def paint(self, boxes: NDArray[Any], fill: Fill) -> None:
        is_empty = (boxes[:, 0] >= boxes[:, 2]) | (boxes[:, 1] >= boxes[:, 3])
        self._add(PAINT, self._filled(boxes, fill), ~is_empty)

    def _filled(self, columns: NDArray[Any], fill: Fill) -> NDArray[Any]:
        return np.hstack([columns, np.tile(fill_columns(fill), (len(columns), 1))])

    def _add(self, kind: int, parameters: NDArray[Any], is_done: NDArray[np.bool_]) -> None:
        self.rows = np.concatenate([self.rows, step_rows(kind, parameters, is_done)], axis=1)
