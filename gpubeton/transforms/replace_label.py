"""ReplaceLabel: give chosen samples another label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubeton.transforms.poisoning import ChosenSamples

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


class ReplaceLabel(ChosenSamples):
    """Give those samples that were chosen another label.

    Parameters
    ----------
    indices : sequence of int, or of whole float
        Their sample ids.
    new_label : int
        The label.

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

    def change(self, batch: Any, rows: NDArray[np.intp]) -> None:
        batch[rows] = self.new_label
