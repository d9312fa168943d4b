"""Users' pixel operations: the workers call their machine code by address, once per row of an image.

The decoder is compiled once per machine and kept on disk. A user's function is compiled separately, with the loop over
the pixels of a row, so a call costs the decoder little.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types

from gpubeton.batch.pixel_functions import compiled_line
from gpubeton.cpu.simd import I64, Vector, VectorBuilder, vector_kernel
from gpubeton.plan.program import MAX_COLOR_STEPS, ImageProgram
from gpubeton.transforms.pixel_operation import PixelOperation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.cpu.intrinsics import Array

# For each operation of a program: the address of its function and its number of parameters.
USER_OP_FIELDS = 2

# Published without types, or with too few.
_numba: Any = numba
_types: Any = types

_VALUES = _types.CPointer(_types.float32)
_ROW = _types.CPointer(_types.int32)
_SIGNATURE = _types.void(_ROW, _VALUES, *[_types.int64] * 3)


@vector_kernel
def call_user_op(
    emit: VectorBuilder,
    function: Vector,  # address, see `user_ops_of`
    row: Vector,  # address of (3, width) int32: values of one row, changed
    parameters: Vector,  # address of float32: the first parameter; eight bytes from one to the next
    y: Vector,  # number of the row
    height: Vector,  # of the image, in pixels
    width: Vector,
) -> None:
    """Call an operation on one row of pixels."""
    kind = ir.FunctionType(ir.VoidType(), [I64] * 5)
    arguments = (row, parameters, y, height, width)
    emit.builder.call(emit.pointer(function, kind), [one.value for one in arguments])


def user_ops_of(programs: Sequence[ImageProgram]) -> Array:  # (P, USER_OP_FIELDS * MAX_COLOR_STEPS) int64
    """Compile the pixel operations of each program; return their addresses and numbers of parameters, in order."""
    rows = np.zeros((len(programs), USER_OP_FIELDS * MAX_COLOR_STEPS), np.int64)
    for row, program in zip(rows, programs, strict=True):
        operations = [one for one, _ in program.colors if isinstance(one, PixelOperation)]
        for number, operation in enumerate(operations):
            assert operation.numba is not None
            change = compiled_line(operation.numba, operation.arguments, operation.parameters)
            row[USER_OP_FIELDS * number] = _callable_by_address(change, len(operation.parameters)).address
            row[USER_OP_FIELDS * number + 1] = len(operation.parameters)
    return rows


# Kept forever: a worker may be inside it until the process ends.
@cache
def _callable_by_address(change: Any, num_parameters: int) -> Any:
    carray, count = _numba.carray, 2 * num_parameters

    def call(row: Any, parameters: Any, y: Any, height: Any, width: Any) -> None:
        change(carray(row, (3, width)), carray(parameters, (count,)), y, height, width)

    return _numba.cfunc(_SIGNATURE, nopython=True)(call)
