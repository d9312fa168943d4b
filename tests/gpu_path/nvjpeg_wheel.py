"""The nvJPEG that pip installed, which loads without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def installed_nvjpeg() -> Path:
    """The file of the installed wheel; skips the test where there is none."""
    files = [file for folder in sys.path for file in Path(folder).glob("nvidia/*/lib/libnvjpeg.so*")]
    if not files:
        pytest.skip("nvJPEG is not installed: pip install nvidia-nvjpeg (4 MB, needs no GPU)")
    return files[0]


def header() -> str:
    """The text of the header that comes with it; skips the test where there is none."""
    library = installed_nvjpeg()
    files = list(library.parent.parent.glob("include/nvjpeg.h"))
    if not files:
        pytest.skip(f"{library.parent.parent} has no include/nvjpeg.h")
    return files[0].read_text()
