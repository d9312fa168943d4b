"""Element type: which types of images an operation takes, and what to do about others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.errors import PipelineError
from gpubeton.pipeline.pixel_type import dtype_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.pipeline.state import State


def checked_type(
    operation: object, state: State, levels: Sequence[str] = ("uint8",), *, takes_floats: bool = False
) -> None:
    """Check, when a pipeline is planned, that an operation takes the type that the images have there.

    Parameters
    ----------
    operation : object
        The operation, named in the error.
    state : State
        The batch before it.
    levels : sequence of str
        Types of whole numbers that it takes.
    takes_floats : bool
        Whether it takes floating-point images, too.

    Raises
    ------
    PipelineError
        If it does not take them; says where it would.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> import numpy as np
    >>> checked_type("mixup", State(True, "cpu", (8, 8, 3), np.dtype("float32")), takes_floats=True)
    """
    dtype = dtype_name(state.dtype)
    if dtype in levels or (takes_floats and "float" in dtype):
        return
    name = operation if isinstance(operation, str) else type(operation).__name__
    wanted = "levels, uint8 from 0 to 255" + (", or floating-point images" if takes_floats else "")
    if dtype != "uint16":
        advice = "Put it before NormalizeImage and whatever else converts them."
    elif takes_floats:
        advice = "Put it after NormalizeImage(0, 257, np.float32), which makes 16 bits floats from 0 to 255."
    else:
        advice = "It is for images of 8 bits: leave it out of this pipeline."
    raise PipelineError(f"{name} works on {wanted}, but here the images are {dtype}. {advice}")
