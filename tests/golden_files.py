"""The golden files: written by FFCV, with a JSON beside each that describes its content."""

from __future__ import annotations

import functools
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).resolve().parent / "golden"

NAMES = tuple(sorted(path.name.partition(".")[0] for path in GOLDEN.glob("*.beton.xz")))

#: Metadata dtypes of the custom fields in them.
CUSTOM_TYPES = {"caption": np.dtype("<u8")}


@functools.cache
def content(name: str) -> bytes:
    """The file."""
    return lzma.decompress((GOLDEN / f"{name}.beton.xz").read_bytes())


@functools.cache
def sidecar(name: str) -> dict[str, Any]:
    """Read the description of its content."""
    return json.loads((GOLDEN / f"{name}.json").read_text())


def save(name: str, folder: Path) -> Path:
    """Put the file in a folder."""
    path = folder / f"{name}.beton"
    path.write_bytes(content(name))
    return path
