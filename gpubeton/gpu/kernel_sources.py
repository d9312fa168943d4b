"""Kernel sources: the files of ``kernels/``, each as one text that any compiler takes without a search path."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from gpubeton.errors import KernelError
from gpubeton.gpu.own_kernel import OwnKernel

# Where a wheel puts them, and where they are in a checkout.
_INSTALLED = Path(__file__).resolve().parents[1] / "_kernels"
_CHECKOUT = Path(__file__).resolve().parents[2] / "kernels"

_INCLUDE = re.compile(r'#include "([\w.]+)"')
_ONCE = "#pragma once"


def folder() -> Path:
    """Give the folder of the kernels.

    Returns
    -------
    Path
        That of the installed package, or of the checkout.

    Raises
    ------
    KernelError
        If there is neither.
    """
    for place in (_INSTALLED, _CHECKOUT):
        if place.is_dir():
            return place
    raise KernelError(
        f"The CUDA kernels were not found: neither {_INSTALLED} nor {_CHECKOUT} is a folder. "
        "The installation is incomplete; install gpubeton anew."
    )


def kernel_names() -> list[str]:
    """Give the name of every kernel.

    Returns
    -------
    list of str
        In alphabetical order.

    Examples
    --------
    >>> "augment" in kernel_names()
    True
    """
    return sorted(path.stem for path in folder().glob("*.cu"))


def function_of(kernel: str) -> str:
    """Give the name of a kernel's function.

    Parameters
    ----------
    kernel : str
        The kernel's name.

    Returns
    -------
    str
        The same; of an `OwnKernel`, that of the kernel in `kernels/`.

    Examples
    --------
    >>> function_of("plant"), function_of(OwnKernel("augment", ""))
    ('plant', 'augment')
    """
    return kernel.kernel if isinstance(kernel, OwnKernel) else kernel


@cache
def source_of(kernel: str) -> str:
    """Give the source of a kernel with what it includes, each file once.

    Parameters
    ----------
    kernel : str
        Its name; an `OwnKernel` has the users' part in front.

    Returns
    -------
    str
        CUDA C++. ``#line`` tells the compiler where each line comes from, so that its messages name our files.

    Raises
    ------
    KernelError
        If there is no such kernel, or it includes a file that is not there.

    Examples
    --------
    >>> source_of("plant").splitlines()[0]
    '#line 1 "kernels/plant.cu"'
    """
    if isinstance(kernel, OwnKernel):
        return kernel.text + source_of(kernel.kernel)
    if kernel not in kernel_names():
        raise KernelError(f"There is no kernel {kernel!r}; {folder()} has {', '.join(kernel_names())}.")
    return "".join(_lines(f"{kernel}.cu", set()))


def _lines(name: str, seen: set[str]) -> list[str]:
    """A file's lines, those of a file that it includes in the place of the ``#include``."""
    seen.add(name)
    path = folder() / name
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise KernelError(f"{path}: {error.strerror}. A kernel includes it; install gpubeton anew.") from error
    made = [f'#line 1 "kernels/{name}"\n']
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        include = _INCLUDE.match(line)
        if include is None:
            made.append(line if line.strip() != _ONCE else "\n")
            continue
        if include[1] not in seen:
            made += _lines(include[1], seen)
        made.append(f'#line {number + 1} "kernels/{name}"\n')
    return made
