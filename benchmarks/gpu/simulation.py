"""Use the simulated GPU of the tests instead of a real one.

It shows that a benchmark runs from end to end on a machine without a GPU, and, with its work switched off, measures the
work of the host. Figures of a simulated run are marked as such and do not apply to any GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

from benchmarks.gpu.idle_device import IdleDevice

__all__ = ["REHEARSAL", "VARIABLE", "is_rehearsed", "is_simulated", "rehearsed_gpu", "simulated_gpu"]

#: If 1, every process of a benchmark uses the simulated GPU.
VARIABLE = "GPUBETON_SIMULATED"
#: If 1, the real CuPy and torch run over the simulated GPU: see ``tests/rehearsal``.
REHEARSAL = "GPUBETON_REHEARSAL"


def is_simulated() -> bool:
    """Whether the environment selects the simulated GPU."""
    return os.environ.get(VARIABLE, "0") not in {"", "0"}


def is_rehearsed() -> bool:
    """Whether CuPy and torch are the real ones, over the simulated GPU."""
    return os.environ.get(REHEARSAL, "0") not in {"", "0"}


@contextmanager
def rehearsed_gpu() -> Iterator[Any]:
    """Yield the switches of the simulated GPU that CuPy and torch run over."""
    faults: Any = import_module("tests.simulator.faults").Faults()
    faults.journal = False
    try:
        yield faults
    finally:
        faults.make_usual()


@contextmanager
def simulated_gpu(*, works: bool = True, is_idle: bool = False) -> Iterator[Any]:
    """Replace every GPU by the simulated one, or an idle one; yields switches, see ``tests/simulator/faults.py``."""
    from gpubeton._gpu import cuda
    from gpubeton.transforms import ToDevice

    # Tests have no types.
    library = import_module("tests.simulator.build").build()
    simulator: Any = import_module("tests.simulator.device")
    faults: Any = import_module("tests.simulator.faults").Faults()
    opened: dict[int, Any] = {}

    def open_device(name: object) -> Any:
        number = int(str(name).partition(":")[2] or 0)
        if number not in opened:
            stream = simulator.library().simulated_stream_make(number, True) if is_idle else 0
            opened[number] = IdleDevice(number, stream) if is_idle else simulator.SimulatedDevice(number)
        return opened[number]

    def copy(_: object, batch: Any, *__: object) -> Any:
        return batch.clone()

    with (
        mock.patch.dict(os.environ, {"GPUBETON_NVJPEG": str(library), "GPUBETON_SELF_TEST": "0"}),
        mock.patch.object(cuda, "open_device", open_device),
        # The simulated GPU's tensors are on the CPU, as torch may have no CUDA.
        mock.patch.object(ToDevice, "apply", copy),
    ):
        faults.pixels, faults.garbage, faults.journal = works, works, False
        try:
            yield faults
        finally:
            faults.reset()
