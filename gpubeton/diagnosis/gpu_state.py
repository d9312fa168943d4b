"""GpuState: whether a GPU can decode here, and if not, why."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from gpubeton.errors import DeviceError

__all__ = ["GpuState", "read_gpu"]

_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class GpuState:
    """What is known of the GPU of this process.

    Parameters
    ----------
    name : str
        The GPU; empty if there is none that can decode.
    reason : str
        Why it cannot, or nothing.
    is_present : bool
        Whether there is a GPU at all, as the driver or torch sees it.
    driver : str
        Version of the driver; empty if it is not known.
    nvjpeg : str
        Version of nvJPEG; empty if it cannot be loaded.
    lanes : dict of str to str
        What there is to say of each way to decode.
    capabilities : str or None
        NVIDIA_DRIVER_CAPABILITIES: what the container was started with.
    """

    name: str = ""
    reason: str = ""
    is_present: bool = False
    driver: str = ""
    nvjpeg: str = ""
    lanes: dict[str, str] = field(default_factory=dict)
    capabilities: str | None = None

    @property
    def has_engines(self) -> bool:
        """Whether the JPEG engines can be used."""
        return "hardware" in self.lanes and not self.missing("hardware")

    def missing(self, lane: str) -> bool:
        """Tell whether a way to decode is not there.

        Parameters
        ----------
        lane : str
            "hardware", "sm" or "hybrid".

        Returns
        -------
        bool
            Whether its note is the reason why it could not be opened.
        """
        return self.lanes.get(lane, "").startswith("missing: ")


def read_gpu() -> GpuState:
    """Try the GPU, the driver, nvJPEG and its ways to decode.

    Returns
    -------
    GpuState
        What there is, and why not more.
    """
    import torch

    driver, capabilities = _driver(), os.environ.get("NVIDIA_DRIVER_CAPABILITIES")
    if not torch.cuda.is_available():
        built = "" if torch.version.cuda else "; this torch was built without CUDA"
        return GpuState(
            reason=f"torch sees no GPU{built}", is_present=bool(driver), driver=driver, capabilities=capabilities
        )
    from gpubeton.gpu.cuda import open_device
    from gpubeton.gpu.gpu_options import GpuOptions
    from gpubeton.gpu.nvjpeg import load
    from gpubeton.gpu.nvjpeg_backends import open_nvjpeg_lanes

    name = nvjpeg = ""
    try:
        device = open_device("cuda:0")
        name = device.name
        library = load()
        nvjpeg = ".".join(map(str, library.version))
        with device.active():
            found = open_nvjpeg_lanes(device, library, GpuOptions(), (1024, 1024))
            lanes = {
                lane.name.lower(): note if lane in found.lanes else f"missing: {note}"
                for lane, note in found.notes.items()
            }
            for lane in found.lanes.values():
                lane.close()
    except DeviceError as error:
        return GpuState(reason=str(error), is_present=True, driver=driver, nvjpeg=nvjpeg, capabilities=capabilities)
    return GpuState(name, "", True, driver, nvjpeg, lanes, capabilities)


def _driver() -> str:
    """Version of NVIDIA's kernel module: the first word with two dots or one in its line."""
    try:
        words = _DRIVER.read_text().split()
    except OSError:
        return ""
    return next((word for word in words if word[0].isdigit() and "." in word), "")
