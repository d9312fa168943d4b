"""ReplaceLabel: give chosen samples another label."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpubeton.transforms.chosen_samples import ChosenSamples

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.state import State


class ReplaceLabel(ChosenSamples):
    """Give those samples that were chosen another label.

    Parameters
    ----------
    indices : sequence of int, or of whole float
        Their sample ids.
    new_label : int
        The label.

    Raises
    ------
    OptionError
        If `indices` are not whole numbers from 0.

    Notes
    -----
    FFCV's, for experiments with wrong labels. Which samples they are does not depend on their order.

    Examples
    --------
    >>> import numpy as np
    >>> ReplaceLabel([8, 9], 1).apply(np.array([[5], [6]]), np.array([7, 8], "u8")).tolist()
    [[5], [1]]
    """

    def __init__(self, indices: Sequence[int] | NDArray[Any], new_label: int) -> None:
        super().__init__(indices)
        self.new_label = new_label

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        return replace(previous_state, shape=tuple(previous_state.shape)), None

    def change(self, batch: Any, rows: NDArray[np.intp]) -> None:
        batch[rows] = self.new_label
