"""How this package was installed, for errors that recommend an extra."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

_INSTALLERS = {"uv": "uv pip install"}

# The torch of PyPI is built for CUDA 13. An installed one is kept, so this one comes first.
_TORCH_FOR_CUDA_12 = "torch --index-url https://download.pytorch.org/whl/cu126"


@cache
def install(extra: str) -> str:
    """Give the command that installs an extra, from where the package came and with the same program; cuda12: two."""
    try:
        return command(distribution("gpubeton"), extra)
    except PackageNotFoundError:  # a folder on PYTHONPATH
        return f"pip install '{Path(__file__).parent.parent}[{extra}]'"


def command(package: Distribution, extra: str) -> str:
    """Give the command for an installed package."""
    program = _INSTALLERS.get((package.read_text("INSTALLER") or "").strip(), "pip install")
    if extra == "cuda12":
        program = f"{program} {_TORCH_FOR_CUDA_12} && {program}"
    origin: dict[str, dict[str, object]] = {}
    with suppress(ValueError):
        origin = json.loads(package.read_text("direct_url.json") or "{}")  # PEP 610
    url = str(origin.get("url", ""))
    if url.startswith("file:") and "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"{program} {editable}'{unquote(urlsplit(url).path)}[{extra}]'"
    if vcs := origin.get("vcs_info"):
        return f"{program} 'gpubeton[{extra}] @ {vcs.get('vcs')}+{url}'"
    return f"{program} 'gpubeton[{extra}]'"
