"""Write kernels/resources.json: what each kernel takes of a multiprocessor, on each architecture.

Run it after a kernel has changed, and look at the difference: fewer registers let more warps be there at a time, and
what spills goes to memory and back. Needs NVRTC
(``pip install cuda-bindings nvidia-cuda-nvrtc``), and no GPU: ``python -m tools.kernel_resources``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from gpubeton._gpu.kernels import OPTIONS, SIGNED_KERNELS, kernel_names, source_of
from tools import nvrtc
from tools.nvrtc import Compiled, Nvrtc

RESOURCES = Path(__file__).resolve().parent.parent / "kernels" / "resources.json"

#: Of the GPUs from Turing to Blackwell.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

_PATTERNS = {
    "registers": r"Used (\d+) registers",
    "shared": r"(\d+) bytes smem",
    "spilled": r"(\d+) bytes spill stores",
    "stack": r"(\d+) bytes stack frame",
}


def all_kernels() -> list[str]:
    """List every kernel, and those that are compiled for signed weights, too.

    Returns
    -------
    list of str
        What `source_of` takes.

    Examples
    --------
    >>> "resample" in all_kernels(), "resample-signed" in all_kernels()
    (True, True)
    """
    return sorted([*kernel_names(), *SIGNED_KERNELS.values()])


def resources_of(log: str) -> dict[str, int]:
    r"""Read ptxas' report of a kernel: registers of a thread, bytes of shared memory of a block, bytes spilled.

    Parameters
    ----------
    log : str
        What ``--ptxas-options=-v`` prints.

    Returns
    -------
    dict of str to int
        A number for each; 0 where ptxas is silent.

    Examples
    --------
    >>> resources_of("0 bytes stack frame, 0 bytes spill stores\nptxas info : Used 40 registers, 616 bytes smem")
    {'registers': 40, 'shared': 616, 'spilled': 0, 'stack': 0}
    """
    results = {name: re.search(pattern, log) for name, pattern in _PATTERNS.items()}
    return {name: int(match[1]) if match else 0 for name, match in results.items()}


def measured(compiler: Nvrtc, kernel: str, architecture: str) -> Compiled:
    """Compile a kernel as for use, and let the compiler report its resources.

    Parameters
    ----------
    compiler : Nvrtc
        The compiler.
    kernel : str
        The kernel's name.
    architecture : str
        What for.

    Returns
    -------
    Compiled
        The code, and a log for `resources_of`.
    """
    options = (*OPTIONS, "--ptxas-options=-v")
    return compiler.compile(source_of(kernel), kernel, architecture, options)


def text_of(measured: dict[str, object]) -> str:
    """Write figures as the file has them: one line for each kernel and architecture.

    Parameters
    ----------
    measured : dict
        Version of NVRTC, then kernels, architectures and what `resources_of` returned.

    Returns
    -------
    str
        JSON.
    """
    text = json.dumps(measured, indent=2)
    return re.sub(r"\{\s+(\"registers\"[^}]*?)\s+\}", lambda value: "{" + " ".join(value[1].split()) + "}", text) + "\n"


def main() -> None:
    """Compile every kernel for every architecture, and write the file."""
    compiler = nvrtc.load()
    kernels = {
        kernel: {
            architecture: resources_of(measured(compiler, kernel, architecture).log) for architecture in ARCHITECTURES
        }
        for kernel in all_kernels()
    }
    version = ".".join(map(str, compiler.version))
    RESOURCES.write_text(text_of({"nvrtc": version, "kernels": kernels}), encoding="utf-8")
    print(RESOURCES)


if __name__ == "__main__":
    main()
