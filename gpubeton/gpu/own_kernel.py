"""OwnKernel: a kernel of `kernels/` with users' pixel operations compiled into it."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from gpubeton.transforms.pixel_operation import PixelOperation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.plan.program import ImageProgram

_HEAD = "static __device__ __forceinline__ void own_{number}({arguments}) {{\n"
_CHOICE = """\
template <class Step>
static __device__ __forceinline__ void own_operation(int number, [[maybe_unused]] const Step* step, float& r, float& g,
                                                     float& b, float x, float y, float height, float width) {{
{calls}}}
"""
_CALL = "    if (number == {number}) own_{number}({arguments});\n"
_POSITION = ("x", "y", "height", "width")


class OwnKernel(str):
    """Name of such a kernel: another one for other operations. `Device.launch` takes it as it takes any name.

    Parameters
    ----------
    kernel : str
        The kernel of `kernels/`, which is also the name of its function.
    text : str
        What stands before its source.

    Examples
    --------
    >>> OwnKernel("augment", "// mine").startswith("augment-")
    True
    """

    __slots__ = ("kernel", "text")

    kernel: str
    text: str

    def __new__(cls, kernel: str, text: str) -> OwnKernel:
        made = super().__new__(cls, f"{kernel}-{hashlib.sha256(text.encode()).hexdigest()[:16]}")
        made.kernel, made.text = kernel, text
        return made


def augment_kernel(program: ImageProgram) -> str:
    """Give the kernel that makes a program's images.

    Parameters
    ----------
    program : ImageProgram
        The program.

    Returns
    -------
    str
        ``augment``; an `OwnKernel` where the program has pixel operations.
    """
    text = text_of([one for one, _ in program.colours if isinstance(one, PixelOperation)])
    return OwnKernel("augment", text) if text else "augment"


def text_of(operations: Sequence[PixelOperation]) -> str:
    """Write pixel operations as functions for the device, and one that chooses among them.

    Parameters
    ----------
    operations : sequence of PixelOperation
        With their CUDA halves, in the order of the pipeline.

    Returns
    -------
    str
        CUDA C++, to stand before a kernel that includes ``colour_step.cuh``; nothing without operations. ``#line``
        names the user's statements, so that the compiler's messages do.

    Examples
    --------
    >>> print(text_of([PixelOperation("r += glow;", parameters={"glow": 3}, name="glow")]).splitlines()[3])
    r += glow;
    """
    if not operations:
        return ""
    functions, calls = [], []
    for number, operation in enumerate(operations):
        kinds = {"float&": ["r", "g", "b"], "const float": [*operation.parameters, *_POSITION]}
        arguments = [f"[[maybe_unused]] {kind} {name}" for kind, names in kinds.items() for name in names]
        shown = re.sub(r"[^\w ().,:<>+-]", "_", operation.name)
        functions += [
            _HEAD.format(number=number, arguments=", ".join(arguments)),
            f'#line 1 "PixelOperation {shown}, cuda"\n{operation.cuda}\n',
            f'#line 1 "behind PixelOperation {shown}, cuda"\n;}}\n',
        ]
        count = len(operation.parameters)
        values = [f"__int_as_float(step[{place - count}].factor)" for place in range(count)]
        calls.append(_CALL.format(number=number, arguments=", ".join(["r", "g", "b", *values, *_POSITION])))
    return "".join(["#define OWN_OPERATIONS\n", *functions, _CHOICE.format(calls="".join(calls))])
