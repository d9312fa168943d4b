"""Compare each kind of step with its definition in float64, with torchvision v2 and with Pillow, over real photos.

    python -m benchmarks.differences

torchvision is left out if it is not installed; GPUBETON_TORCHVISION_PYTHON names another interpreter that has it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from PIL import Image, ImageOps
from rich.console import Console

from benchmarks.contenders import gpubeton_steps, pillow_steps
from benchmarks.contenders.process import Contender, ContenderError
from benchmarks.harness.photos import open_photographs
from benchmarks.results import RESULTS
from benchmarks.table import save_and_draw
from gpubeton._batch import step_rows as kinds
from tests.reference import definitions

__all__ = ["PEERS", "Step", "difference", "measure", "open_photos", "steps"]

#: Columns of the table.
PEERS = ("float64", "torchvision", "Pillow")

_TORCHVISION = Contender("torchvision", "torchvision_steps", "torchvision", "GPUBETON_TORCHVISION_PYTHON")
_FILL = 124, 116, 104

Images = NDArray[np.uint8]  # (N, H, W, 3)
Case = tuple[str, tuple[Any, ...]]  # a name in `tests.reference.definitions`, and parameters


@dataclass(frozen=True)
class Step:
    """A row of the table."""

    name: str
    kinds: frozenset[int]
    change: str  # name in `tests.reference.definitions` and of the peers
    settings: str  # for readers
    parameters: tuple[tuple[Any, ...], ...]


def main(
    side: Annotated[int, typer.Option(min=3, help="Height and width of the photos.")] = 224,
    photos: Annotated[int, typer.Option(min=1, help="Number of photos.")] = 10,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Compare each kind of step with its definition, with torchvision and with Pillow."""
    save_and_draw("differences", measure(steps(side), open_photos(photos, side)), results, Console())


def open_photos(count: int, side: int) -> Images:
    """Open photographs, squares of their middle."""
    opened = islice(open_photographs(), count)
    fitted = [ImageOps.fit(photo, (side, side), Image.Resampling.BICUBIC) for _, photo in opened]
    return np.stack([np.asarray(photo) for photo in fitted])


def steps(side: int) -> list[Step]:
    """List the steps and their settings, for square images."""
    far, away = side - 1, side // 4
    corners = [(0, 0), (far, 0), (far, far), (0, far)]
    ends = [
        [(away, 3), (far, 0), (far - 5, far), (0, far - away)],
        [(0, 0), (far - away, away), (far - 2, far - 2), (away, far)],
    ]
    warps = [
        (angle, shift, scale, shear, _FILL)
        for angle, shift, scale, shear in [
            (15, (0, 0), 1, (0, 0)),
            (-100, (0, 0), 1, (0, 0)),
            (0, (0, 0), 0.8, (12, -7)),
            (-8, (side // 7, -side // 9), 1.3, (0, 0)),
        ]
    ]
    views = [(corners, end, _FILL) for end in ends]
    moved, mixing = "turned, sheared, zoomed, shifted", frozenset({kinds.SAVE, kinds.ADD, kinds.FINISH})
    factors = [(0.137,), (0.621,), (1.389,), (1.913,)]

    def of(kind: int, name: str, settings: str, *parameters: tuple[Any, ...]) -> Step:
        return Step(name, frozenset({kind}), name.lower().partition(",")[0].replace(" ", "_"), settings, parameters)

    return [
        of(kinds.BRIGHTNESS, "brightness", "factors 0.137, 0.621, 1.389, 1.913", *factors),
        of(kinds.CONTRAST, "contrast", "the same", *factors),
        of(kinds.SATURATION, "saturation", "the same, and 0", (0.0,), *factors),
        of(kinds.HUE, "hue", "-0.5, -0.113, 0.021, 0.304 of a circle", (-0.5,), (-0.113,), (0.021,), (0.304,)),
        of(kinds.HSV, "HSV", "three, as in YOLO", (1.613, 0.706, 0.0131), (0.42, 1.307, -0.0146), (1, 1, 0.25)),
        of(kinds.SOLARIZE, "solarize", "from 0, 100, 128, 230 on", (0,), (100,), (128,), (230,)),
        of(kinds.SOLARIZE_ADD, "solarize add", "11, 55, 110", (11,), (55,), (110,)),
        of(kinds.POSTERIZE, "posterize", "2, 4, 6 bits", (2,), (4,), (6,)),
        of(kinds.INVERT, "invert", "", ()),
        of(kinds.AUTOCONTRAST, "autocontrast", "", ()),
        of(kinds.EQUALIZE, "equalize", "", ()),
        of(kinds.SHARPNESS, "sharpness", "factors 0, 0.531, 1.469, 3.07", (0.0,), (0.531,), (1.469,), (3.07,)),
        of(kinds.BLUR, "blur", "sigmas 0.5, 1, 2", (5, 0.5), (9, 1.0), (17, 2.0)),
        of(kinds.WARP_NEAREST, "affine, nearest", moved, *(("nearest", *warp) for warp in warps)),
        of(kinds.WARP_BILINEAR, "affine, bilinear", moved, *(("bilinear", *warp) for warp in warps)),
        of(kinds.PERSPECTIVE, "perspective, nearest", "two", *(("nearest", *turned) for turned in views)),
        of(kinds.PERSPECTIVE, "perspective, bilinear", "two", *(("bilinear", *turned) for turned in views)),
        of(kinds.PAINT, "paint", "a rectangle", (side // 5, side // 3, side // 2, side, _FILL)),
        of(kinds.TURN, "turn", "both mirrors, a quarter", (1, 0, 0), (0, 1, 0), (1, 0, 1)),
        of(kinds.SHIFT, "shift", "two, by whole pixels", (side // 7, -side // 9, _FILL), (-3, 1, _FILL)),
        Step("mixture", mixing, "mixture", "shares 0.31, 0.5, 0.83", ((0.31,), (0.5,), (0.83,))),
    ]


def measure(listed: Sequence[Step], photos: Images) -> dict[str, Any]:
    """Return how far each step is from others; torchvision is left out where it is not installed."""
    cases = [(step.change, parameters) for step in listed for parameters in step.parameters]
    of_torchvision, versions = _torchvision_results(cases, photos)
    results: dict[str, dict[int, Images]] = {
        "gpubeton": {
            number: gpubeton_steps.CHANGES[name](photos, *given) for number, (name, given) in enumerate(cases)
        },
        "float64": {number: _exact(photos, *case) for number, case in enumerate(cases)},
        "torchvision": of_torchvision,
        "Pillow": {number: _pillow(photos, *case) for number, case in enumerate(cases)},
    }
    rows, first = [], 0
    for step in listed:
        numbers = range(first, first := first + len(step.parameters))
        images = {name: np.stack([of[number] for number in numbers]) for name, of in results.items() if first - 1 in of}
        beside = {peer: difference(images["gpubeton"], images[peer]) for peer in PEERS if peer in images}
        rows.append({"name": step.name, "settings": step.settings, "beside": beside})
    versions |= {name: version(name) for name in ("pillow", "numpy")}
    return {"photos": len(photos), "side": photos.shape[1], "versions": versions, "steps": rows}


def difference(images: Images, others: Images) -> dict[str, float]:
    """Return the largest and the mean difference, and the share of equal values."""
    away = np.abs(images.astype(np.int16) - others)
    return {"largest": int(away.max()), "mean": float(away.mean()), "equal": float((away == 0).mean())}


def _exact(photos: Images, change: str, parameters: tuple[Any, ...]) -> Images:
    function = getattr(definitions, change)
    return np.stack([definitions.whole(function, function(photo, *parameters)) for photo in photos])


def _pillow(photos: Images, change: str, parameters: tuple[Any, ...]) -> Images:
    function = pillow_steps.CHANGES[change]
    return np.stack([np.asarray(function(Image.fromarray(photo), *parameters)) for photo in photos])


def _torchvision_results(cases: list[Case], photos: Images) -> tuple[dict[int, Images], dict[str, str]]:
    """Return what torchvision makes of the cases that it has, by their numbers, and versions."""
    try:
        _TORCHVISION.check_installed()
    except ContenderError:
        return {}, {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "images.npy", photos)
        (folder / "cases.json").write_text(json.dumps(cases))
        module = f"benchmarks.contenders.{_TORCHVISION.module}"
        subprocess.run([_TORCHVISION.python, "-m", module, folder], check=True, cwd=Path(__file__).parents[1])
        with np.load(folder / "results.npz") as results:
            images = {int(number): changed for number, changed in results.items()}
        return images, json.loads((folder / "versions.json").read_text())


if __name__ == "__main__":
    typer.run(main)
