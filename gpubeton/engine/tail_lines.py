"""What is said of an output that is finished by a tail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.pipeline.operation import operation_name
from gpubeton.pipeline.pixel_type import dtype_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.plan.batch_ops import BatchOps


def tail_lines(name: str, first: Sequence[tuple[str, str]], tail: BatchOps) -> str:
    """Describe an output: a headline, and a line for each operation with where it runs.

    Parameters
    ----------
    name : str
        Name of the output.
    first : sequence of (str, str)
        What stands before the tail.
    tail : BatchOps
        The tail.

    Returns
    -------
    str
        The lines.

    Examples
    --------
    >>> import numpy as np
    >>> from gpubeton.pipeline.state import State
    >>> from gpubeton.plan.tail import compile_tail
    >>> from gpubeton.transforms import ToTensor
    >>> state = State(True, "cpu", (1,), np.dtype("int64"))
    >>> print(tail_lines("label", [("IntDecoder", "numpy")], compile_tail([ToTensor()], state, field_number=0)))
    label: shape (N, 1), int64
      IntDecoder  numpy
      ToTensor()  after, on the finished batch
    """
    lines = [*first, *((operation_name(step.operation), str(step)) for step in tail.steps)]
    width = min(max(len(operation) for operation, _ in lines), 72)
    shape = ", ".join(map(str, ("N", *tail.state.shape)))
    head = f"{name}: shape ({shape}), {dtype_name(tail.state.dtype)}"
    return "\n".join([head, *(f"  {operation:<{width}}  {where}" for operation, where in lines)])
