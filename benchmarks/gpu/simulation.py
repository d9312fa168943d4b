"""The simulated GPU of the tests in the place of a real one.

It proves that a benchmark runs from end to end on a machine without a GPU, and, with its work switched off, measures
what the host does by itself. A figure of a simulated run says nothing about any GPU, and says that it is simulated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

__all__ = ["VARIABLE", "is_simulated", "simulated_gpu"]

#: Set to 1, it has every process of a benchmark use the simulated GPU.
VARIABLE = "GPUBETON_SIMULATED"


def is_simulated() -> bool:
    """Whether the environment asks for the simulated GPU."""
    return os.environ.get(VARIABLE, "0") not in {"", "0"}


@contextmanager
def simulated_gpu(*, works: bool = True) -> Iterator[Any]:
    """Put the simulated GPU in the place of every real one.

    Parameters
    ----------
    works : bool
        False lets every call of CUDA and nvJPEG return at once, and nothing be done: what remains is the host's part.

    Yields
    ------
    Faults
        The simulator's switches, see ``tests/simulator/faults.py``.
    """
    from gpubeton.gpu import cuda
    from gpubeton.transforms import ToDevice

    # Not typed: tests are not.
    library = import_module("tests.simulator.build").build()
    simulated_device: Any = import_module("tests.simulator.device").SimulatedDevice
    faults: Any = import_module("tests.simulator.faults").Faults()
    opened: dict[int, Any] = {}

    def open_device(name: object) -> Any:
        number = int(str(name).partition(":")[2] or 0)
        return opened.setdefault(number, simulated_device(number))

    def copy(_: object, batch: Any, *__: object) -> Any:
        return batch.clone()

    with (
        mock.patch.dict(os.environ, {"GPUBETON_NVJPEG": str(library)}),
        mock.patch.object(cuda, "open_device", open_device),
        # Torch without CUDA has no such device; the simulated GPU's tensors are on the CPU.
        mock.patch.object(ToDevice, "apply", copy),
    ):
        faults.pixels, faults.garbage, faults.journal = works, works, False
        try:
            yield faults
        finally:
            faults.reset()
