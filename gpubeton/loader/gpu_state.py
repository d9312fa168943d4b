"""GpuState: whether the GPU of this process can decode, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gpubeton.errors import DeviceError


@dataclass(frozen=True)
class GpuState:
    """Whether the GPU of this process can decode, and if not, why."""

    name: str = ""  # empty if there is none that can decode
    reason: str = ""  # why it cannot decode
    is_present: bool = False  # whether the driver or torch sees one
    driver: str = ""  # its version; empty if unknown
    nvjpeg: str = ""  # its version; empty if it cannot be loaded
    # A note for each way to decode; "missing: " and the reason for one that could not be opened.
    routes: dict[str, str] = field(default_factory=dict)
    # The fault that the self-test has seen in each way to decode, and in the kernels after the CPU.
    self_test: dict[str, str] = field(default_factory=dict)

    def missing(self, route: str) -> bool:
        """Whether a way to decode, such as "hardware" for the JPEG engines, was tried and could not be opened."""
        return self.routes.get(route, "").startswith("missing: ")


def read_gpu() -> GpuState:
    """Try the GPU, its driver, nvJPEG and its ways to decode."""
    import torch

    driver = _driver()
    try:
        torch.cuda.current_device()
    except (RuntimeError, AssertionError) as error:  # the latter: built without CUDA
        reason = f"torch sees no GPU: {error}"
        return GpuState(reason=reason, is_present=bool(driver), driver=driver)
    from gpubeton._gpu.cuda import open_device
    from gpubeton._gpu.nvjpeg import load
    from gpubeton._gpu.nvjpeg_backends import open_nvjpeg_backends, with_entries
    from gpubeton._gpu.options import GpuOptions
    from gpubeton._gpu.self_test import read_faults, with_self_test
    from gpubeton._plan.routes import DecodeRoute

    nvjpeg = ""
    try:
        device = open_device("cuda:0")
        library = load()
        nvjpeg = ".".join(map(str, library.version))
        with device.active():
            opener = partial(open_nvjpeg_backends, library=library, options=GpuOptions(), largest=(1024, 1024))
            decoders = with_self_test(partial(with_entries, opener), device)
            usable = {*decoders.backends, *([DecodeRoute.ENTRIES] if decoders.takes_entries else [])}
            notes = decoders.notes.items()
            routes = {route.name.lower(): note if route in usable else f"missing: {note}" for route, note in notes}
            for backend in decoders.backends.values():
                backend.close()
    except DeviceError as error:
        return GpuState(reason=str(error), is_present=True, driver=driver, nvjpeg=nvjpeg)
    return GpuState(device.name, "", True, driver, nvjpeg, routes, read_faults(device))


def _driver(
    path: Path = Path("/proc/driver/nvidia/version"),
    wsl: tuple[Path, ...] = (Path("/dev/dxg"), Path("/usr/lib/wsl/lib/libcuda.so.1")),
) -> str:
    """Return the version of NVIDIA's kernel module: the first word of its line that looks like a version."""
    try:
        words = path.read_text().split()
    except OSError:
        return "that of Windows (WSL2)" if all(place.exists() for place in wsl) else ""
    return next((word for word in words if word[0].isdigit() and "." in word), "")
