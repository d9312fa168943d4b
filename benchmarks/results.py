"""Result files: dated, with the machine and the commit."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, describe_machine
from gpubeton import __version__

__all__ = ["DATA", "RESULTS", "latest", "save"]

RESULTS = Path(__file__).resolve().parent / "results"
DATA = Path(__file__).resolve().parent / "data"  # images and files of the benchmarks; not committed


def save(kind: str, measured: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write a dated result file; a ``machine`` in `measured` replaces the description of this one."""
    now = datetime.now(timezone.utc)
    result: dict[str, Any] = {
        "kind": kind,
        "made": now.isoformat(timespec="seconds"),
        "gpubeton": {"version": __version__, "commit": commit()},
        "machine": describe_machine(),
        **measured,
    }
    cpu = re.sub(r"[^a-z0-9]+", "-", result["machine"]["cpu"].lower()).strip("-")
    path = folder / f"{now:%Y-%m-%d-%H%M}-{kind}-{cpu}-{result['machine']['cores']}-cores.json"
    folder.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def latest(kind: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """Read the newest result of a benchmark; None if there is none."""
    results = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return max(
        (result for result in results if result["kind"] == kind), key=lambda result: result["made"], default=None
    )
