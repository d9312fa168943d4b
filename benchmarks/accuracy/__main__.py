"""Show that a network trains the same with gpubeton's batches as with those of Pillow and NumPy.

    python -m benchmarks.accuracy                    # an hour on two idle cores; a stopped run goes on
    python -m benchmarks.accuracy --train 2000 --test 500 --epochs 1 --seeds 2 --fault-seeds 1

One network, one order, the same crops and flips: they come from the plan of gpubeton's loader. Each pair of trainings
begins with the same weights. `benchmarks.accuracy.equivalence` is the test. It then looks at batches with planted
mistakes, and has to reject each. Besides: pixels beside Pillow, torchvision (GPUBETON_TORCHVISION_PYTHON) and float64,
masks and boxes beside their definition, a resumed training beside an uninterrupted one, bad images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.accuracy.agreement import agreement
from benchmarks.accuracy.batches import FAULTS, GPUBETON, NUDGED, REFERENCE
from benchmarks.accuracy.equivalence import LIMITS, MARGINS, Verdict, compare, power, within_limits
from benchmarks.accuracy.pictures import CLASSES, PictureSet, write_pictures
from benchmarks.accuracy.same_again import bad_images, resuming
from benchmarks.accuracy.shapes import boxes, masks
from benchmarks.accuracy.study import ARMS, Run, Study
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw

_TURNS = 0.4  # share of the images that the second set has
_TURN_EPOCHS = 0.75  # times as many


def main(
    train: Annotated[int, typer.Option(help="Number of images to train with.")] = 50_000,
    test: Annotated[int, typer.Option(help="Number of images to test with.")] = 40_000,
    epochs: Annotated[int, typer.Option(help="Epochs of a training.")] = 4,
    seeds: Annotated[int, typer.Option(min=2, help="Pairs of trainings.")] = 12,
    fault_seeds: Annotated[int, typer.Option(min=1, help="Pairs of trainings for each planted mistake.")] = 1,
    photos: Annotated[int, typer.Option(min=1, help="Photos whose pixels are compared.")] = 40,
    data: Annotated[Path, typer.Option(help="Folder for the images, and for the trainings that are done.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Train with both, and with each planted mistake, and compare."""
    console = Console()
    sets = [
        Study(data / f"glyphs-{train}-{test}", PictureSet("glyphs", train, test), epochs),
        Study(
            data / f"turns-{train}-{test}",
            PictureSet("turns", int(_TURNS * train), int(_TURNS * test)),
            max(1, round(_TURN_EPOCHS * epochs)),
        ),
    ]
    measured: dict[str, Any] = {"limits": LIMITS, "margins": MARGINS}
    with TemporaryDirectory() as name:
        folder = Path(name)
        path, _ = write_pictures(folder, PictureSet("glyphs", min(train, 2048), 64))
        measured["resuming"] = resuming(path, CLASSES["glyphs"])
        measured["bad_images"] = bad_images(path)
        measured["masks"], measured["boxes"] = masks(folder), boxes(folder)
        measured["agreement"] = agreement(folder, photos)
    measured["sets"] = [
        compare_arms(study, seeds, fault_seeds * (number == 0), console) for number, study in enumerate(sets)
    ]
    measured["versions"] = {package: version(package) for package in ("torch", "numpy", "pillow", "simplejpeg")}
    save_and_draw("accuracy", measured, results, console)


def compare_arms(study: Study, seeds: int, fault_seeds: int, console: Console) -> dict[str, Any]:
    """Train with the arms on one set of pictures; return the runs, and the verdicts of each arm."""
    study.prepare(has_faults=fault_seeds > 0)
    counts = {arm.name: seeds for arm in (REFERENCE, GPUBETON, NUDGED)}
    counts |= {arm.name: min(fault_seeds, seeds) for arm in FAULTS if fault_seeds}
    runs: dict[str, dict[int, Run]] = {name: {} for name in counts}
    jobs = [(name, seed) for name, count in counts.items() for seed in range(count)]
    for name, seed, run in study.runs(jobs):
        runs[name][seed] = run
        console.print(f"{study.pictures.kind}: {name}, seed {seed}: {run.accuracy:.2f} %", highlight=False)
    reference = runs[REFERENCE.name]
    nudged = _differences(runs[NUDGED.name], reference)
    arms = []
    for name in counts.keys() - {REFERENCE.name}:
        is_fault = name not in (GPUBETON.name, NUDGED.name)
        pixels = study.compare_pixels(ARMS[name])
        verdicts = within_limits(pixels) + compare(_differences(runs[name], reference), nudged if is_fault else None)
        arms.append({"name": name, "pixels": pixels, "verdicts": [_entry(verdict) for verdict in verdicts]})
    return {
        "set": asdict(study.pictures),
        "epochs": study.epochs,
        "runs": {name: [asdict(run) for _, run in sorted(of.items())] for name, of in runs.items()},
        "arms": sorted(arms, key=lambda arm: list(counts).index(str(arm["name"]))),
        "power": {name: power(float(np.std(nudged[name], ddof=1)), seeds, margin) for name, margin in MARGINS.items()},
    }


def _differences(runs: Mapping[int, Run], reference: Mapping[int, Run]) -> dict[str, Sequence[float]]:
    """Subtract the reference's figures from those of the runs with the same seeds."""
    pairs = [(run, reference[seed]) for seed, run in sorted(runs.items())]
    return {
        "first losses": [run.first - other.first for run, other in pairs],
        "last losses": [run.last - other.last for run, other in pairs],
        "accuracy": [run.accuracy - other.accuracy for run, other in pairs],
        "accuracy, reference's images": [run.crossed - other.accuracy for run, other in pairs],
    }


def _entry(verdict: Verdict) -> dict[str, Any]:
    return asdict(verdict) | {"outcome": verdict.outcome}


if __name__ == "__main__":
    typer.run(main)
