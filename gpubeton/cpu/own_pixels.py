"""Users' pixel operations inside the pass: machine code that the workers call by its address, once for each line.

The pass itself is compiled once for each machine and kept on disk. A user's function is compiled by itself, with the
loop over a line around it, which costs the pass a call for each line of an image.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types

from gpubeton.batch.pixel_functions import compiled_line
from gpubeton.cpu.lanes import I64, Emitter, Lanes, vector_kernel
from gpubeton.plan.program import MAX_COLOUR_STEPS, ImageProgram
from gpubeton.transforms.pixel_operation import PixelOperation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.cpu.types import Array

# Of each operation of a program: the address of its function, and how many parameters it has.
OWN_FIELDS = 2

# Published without types, or with too few.
_numba: Any = numba
_types: Any = types

_VALUES = _types.CPointer(_types.float32)
_LINE = _types.CPointer(_types.int32)
_SIGNATURE = _types.void(_LINE, _VALUES, *[_types.int64] * 3)


@vector_kernel
def change_own_line(
    emit: Emitter, function: Lanes, line: Lanes, values: Lanes, y: Lanes, height: Lanes, width: Lanes
) -> None:
    """Call an operation on a line of pixels.

    Parameters
    ----------
    function : address
        See `own_pixels`.
    line : address of int32, shape (3, width)
        Levels, changed.
    values : address of float32
        Its parameters, eight bytes from one to the next.
    y : int
        Which line of the image.
    height, width : int
        Size of the image in pixels.
    """
    kind = ir.FunctionType(ir.VoidType(), [I64] * 5)
    arguments = (line, values, y, height, width)
    emit.builder.call(emit.pointer(function, kind), [one.value for one in arguments])


def own_pixels(programs: Sequence[ImageProgram]) -> Array:
    """Compile the pixel operations of programs.

    Parameters
    ----------
    programs : sequence of ImageProgram
        The loader's image programs.

    Returns
    -------
    ndarray of int64, shape (P, OWN_FIELDS * MAX_COLOUR_STEPS)
        For each program its operations in order: address and number of parameters.
    """
    rows = np.zeros((len(programs), OWN_FIELDS * MAX_COLOUR_STEPS), np.int64)
    for row, program in zip(rows, programs, strict=True):
        own = [one for one, _ in program.colours if isinstance(one, PixelOperation)]
        for number, operation in enumerate(own):
            assert operation.numba is not None
            change = compiled_line(operation.numba, operation.arguments, operation.parameters)
            row[OWN_FIELDS * number] = _callable_by_address(change, len(operation.parameters)).address
            row[OWN_FIELDS * number + 1] = len(operation.parameters)
    return rows


# Never forgotten: a worker may be in it for as long as the process lives.
@cache
def _callable_by_address(change: Any, num_parameters: int) -> Any:
    carray, count = _numba.carray, 2 * num_parameters

    def call(line: Any, values: Any, y: Any, height: Any, width: Any) -> None:
        change(carray(line, (3, width)), carray(values, (count,)), y, height, width)

    return _numba.cfunc(_SIGNATURE, nopython=True)(call)
