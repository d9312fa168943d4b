"""The GPU to measure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.gpu.simulation import is_simulated, simulated_gpu

if TYPE_CHECKING:
    from gpubeton._gpu.cuda import Device
    from gpubeton._gpu.nvjpeg import Library

__all__ = ["Target", "open_target"]


class Target(NamedTuple):
    """The GPU to measure, and its nvJPEG."""

    device: Device  # cuda:0
    library: Library
    faults: Any  # switches of the simulator, or None

    @property
    def is_simulated(self) -> bool:
        """Whether the GPU is simulated."""
        return self.faults is not None


@contextmanager
def open_target() -> Iterator[Target]:
    """Open cuda:0, or the simulated GPU if the environment selects it, as the current device of this thread."""
    from gpubeton._gpu import cuda
    from gpubeton._gpu.nvjpeg import load

    with ExitStack() as stack:
        faults = stack.enter_context(simulated_gpu()) if is_simulated() else None
        device = cuda.open_device("cuda:0")
        stack.enter_context(device.active())
        yield Target(device, load(), faults)
