"""The CUDA compiler of this machine."""

from __future__ import annotations

from tools import nvrtc


def compiler():
    """NVRTC, or None where it or its binding is not installed."""
    try:
        return nvrtc.load()
    except (ImportError, RuntimeError, OSError):
        return None


WHY_NONE = "no NVRTC: pip install cuda-bindings nvidia-cuda-nvrtc"
