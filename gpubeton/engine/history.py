"""History: what was done to an output, from its decoder on, also before it branched off another one."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from gpubeton.engine.branch_output import BranchOutput
from gpubeton.engine.image_output import ImageOutput
from gpubeton.plan.branch_point import BranchPoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubeton.plan.batch_ops import BatchOp


def history_of(output: Any, outputs: Mapping[str, Any]) -> tuple[Any, list[BatchOp]]:
    """Find where an output begins, and what is done behind that.

    Parameters
    ----------
    output : ImageOutput, RowOutput or BranchOutput
        The output.
    outputs : mapping of str to ImageOutput, RowOutput or BranchOutput
        All outputs, by name.

    Returns
    -------
    tuple of (ImageOutput or RowOutput, list of BatchOp)
        The output whose decoder it begins with, and all that is done behind that one's decoder or pass over the pixels.
    """
    if not isinstance(output, BranchOutput):
        return output, list(output.program.tail.steps if isinstance(output, ImageOutput) else output.tail.steps)
    root, steps = history_of(outputs[output.parent], outputs)
    shared = takewhile(lambda step: not _begins_at(output, step), steps)
    return root, [*shared, *output.tail.steps]


def _begins_at(branch: BranchOutput, step: BatchOp) -> bool:
    return isinstance(step.operation, BranchPoint) and step.operation.copy_of is branch.operation
