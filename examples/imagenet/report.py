"""A JSON file about a training, beside what others published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from examples.imagenet.__main__ import Settings

PUBLISHED = Path(__file__).with_name("published.json")


def write_report(settings: Settings, result: Mapping[str, float]) -> dict[str, Any]:
    """Write the result of a run, its settings and its log to ``settings.report``; return the line for `PUBLISHED`."""
    log = [json.loads(line) for line in (Path(settings.folder) / "log.jsonl").read_text().splitlines()]
    top_1 = round(100 * result["top_1"], 3)
    processes = next((line["world"] for line in log if "world" in line), 1)
    line = {
        "network": settings.network,
        "epochs": settings.epochs,
        "top_1": top_1,
        "seed": settings.seed,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "processes": processes,
        "batch_size": settings.batch_size * processes,
        "gpubeton": version("gpubeton"),
        "torch": torch.__version__,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    report: dict[str, Any] = {"line": line, "expected": expected(settings, top_1), "result": dict(result)}
    report |= {"settings": asdict(settings), "log": log}
    Path(settings.report).write_text(json.dumps(report, indent=1) + "\n")
    return line


def expected(settings: Settings, top_1: float) -> dict[str, Any]:
    """Compare a top-1 in percent with the published ones of this network; those of as many epochs have a band."""
    listed = json.loads(PUBLISHED.read_text())
    band = listed["band"]
    others = [entry for entry in listed["published"] if entry["network"] == settings.network]
    same = [entry for entry in others if entry["epochs"] == settings.epochs]
    low, high = (same[0]["top_1"] - band, same[0]["top_1"] + band) if same else (None, None)
    outcome = "no published result of as many epochs"
    if low is not None and high is not None:
        outcome = "below the band" if top_1 < low else "above the band" if top_1 > high else "within the band"
    return {"low": low, "high": high, "outcome": outcome, "published": others}
