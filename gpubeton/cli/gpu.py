"""Which GPU the demo runs on, if any."""

from __future__ import annotations

from gpubeton.errors import DeviceError

__all__ = ["find_gpu"]


def find_gpu() -> tuple[str, str]:
    """Look for a GPU that can decode.

    Returns
    -------
    tuple of str
        Device for a loader, "cpu" or "cuda:0", and what is to be said about it.
    """
    import torch

    if not torch.cuda.is_available():
        return "cpu", "torch sees no GPU: everything runs on the CPU"
    from gpubeton.gpu.cuda import open_device
    from gpubeton.gpu.nvjpeg import load

    try:
        device, library = open_device("cuda:0"), load()
    except DeviceError as error:
        return "cpu", f"there is a GPU, but it cannot be used: {error}"
    version = ".".join(map(str, library.version))
    return "cuda:0", f"on {device.name} with nvJPEG {version}"
