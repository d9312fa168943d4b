"""BranchPoint: marks where other pipelines go on from what an operation left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.state import State


class BranchPoint(Transform):
    """Keeps the batch as it is here; put by loaders behind an operation that is the source of another output.

    Parameters
    ----------
    operation : object
        The user's operation before it.

    Examples
    --------
    >>> BranchPoint("flip").apply([1, 2])
    [1, 2]
    """

    takes_ragged: ClassVar[bool] = True
    needs_declared_device: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING

    def __init__(self, operation: Any) -> None:
        self.copy_of = operation

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        return previous_state, None

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        return batch
