"""The GPU, its driver and the versions of all packages that a result belongs to."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from typing import Any

from benchmarks.gpu.simulation import is_simulated
from benchmarks.machine import commit, describe_machine

__all__ = ["COMMIT_VARIABLE", "describe"]

#: The measured commit, if the files are not in a checkout.
COMMIT_VARIABLE = "GPUBETON_COMMIT"

_PACKAGES = (
    "torch", "torchvision", "cupy-cuda13x", "cupy-cuda12x", "numba", "numpy", "pillow", "simplejpeg", "nvidia-nvjpeg",
    "nvidia-nvjpeg-cu12", "nvidia-cuda-nvrtc", "nvidia-ml-py", "nvidia-dali-cuda120", "nvidia-dali-cuda130",
    "pynvjpeg", "scikit-image", "scikit-learn", "cuda-pathfinder",
)  # fmt: skip

_ASKED = (
    "name,driver_version,power.limit,enforced.power.limit,clocks.max.sm,clocks.max.memory,memory.total,"
    "pcie.link.gen.max,pcie.link.width.max,ecc.mode.current,compute_mode,mig.mode.current"
)


def describe() -> dict[str, Any]:
    """Describe machine, GPU and software; unknown values contain the error."""
    result: dict[str, Any] = {
        "simulated": is_simulated(),
        "machine": describe_machine(),
        "commit": os.environ.get(COMMIT_VARIABLE) or commit(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
    }
    if is_simulated():
        result["gpu"] = {"name": "simulated"}
        return result
    result["gpu"] = _smi()
    try:
        import torch

        properties = torch.cuda.get_device_properties(0)
        result["gpu"] |= {"name": properties.name, "multiprocessors": properties.multi_processor_count}
        result["torch_cuda"] = torch.version.cuda
    except Exception as error:  # noqa: BLE001 - the measurement matters more than its description
        result["torch_cuda"] = f"{type(error).__name__}: {error}"
    try:
        from benchmarks.gpu.nvjpeg_parts import cuda_version
        from gpubeton._gpu.nvjpeg import load

        library = load()
        result["nvjpeg"] = {"path": library.path, "version": library.version, "cuda": cuda_version(library)}
    except Exception as error:  # noqa: BLE001 - as above
        result["nvjpeg"] = f"{type(error).__name__}: {error}"
    return result


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _smi() -> dict[str, Any]:
    """Query nvidia-smi."""
    error = ""
    for asked in (_ASKED, "name,driver_version,power.limit"):  # older versions refuse unknown fields
        command = ["nvidia-smi", "--id=0", "--format=csv,noheader", f"--query-gpu={asked}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError) as failed:
            error = str(failed)
            continue
        values = [value.strip() for value in done.stdout.splitlines()[0].split(",")]
        return dict(zip(asked.replace(".", "_").split(","), values, strict=False))
    return {"name": "unknown", "error": error}
