"""Show that a network trains the same with gpubeton's batches as with those of Pillow and NumPy.

    python -m benchmarks.accuracy                    # an hour on two cores
    python -m benchmarks.accuracy --train 2000 --test 500 --epochs 1 --seeds 2

One network, one order, the same crops and flips: they come from the plan of gpubeton's loader. Each pair of trainings
begins with the same weights. Then the same comparison looks at batches with planted mistakes: it has to reject each.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console

from benchmarks.accuracy.batches import FAULTS, GPUBETON, REFERENCE, STD, Arm, batches, decode_all
from benchmarks.accuracy.equivalence import MARGINS, compare
from benchmarks.accuracy.glyphs import GlyphSet, write_glyphs
from benchmarks.accuracy.training import Run, count_correct, make_network, predict, train
from benchmarks.results import DATA, RESULTS, save

_BATCH = 128
_FIRST = 20  # steps
_IMAGES = 16  # batches whose pixels are compared


class Study:
    """The data, and the trainings that were done."""

    def __init__(self, folder: Path, glyphs: GlyphSet, epochs: int) -> None:
        self._train, self._test = write_glyphs(folder, glyphs)
        self._steps = epochs * (glyphs.train // _BATCH)
        self._epochs = epochs
        self._decoded = {
            path: {is_fast: decode_all(path, is_fast=is_fast) for is_fast in (False, True)}
            for path in (self._train, self._test)
        }

    def run(self, arm: Arm, seed: int) -> Run:
        """Train a network with an arm's batches, and test it with the same arm's."""
        network = make_network(seed)
        losses = train(network, self._batches(arm, seed, self._epochs), self._steps)
        test = list(self._batches(arm, seed, 0))
        return Run(losses, count_correct(predict(network, test), test))

    def changed_predictions(self, seed: int) -> float:
        """Train with the reference; give the percent of test images to which gpubeton's pixels give another class."""
        network = make_network(seed)
        train(network, self._batches(REFERENCE, seed, self._epochs), self._steps)
        first, second = (predict(network, self._batches(arm, seed, 0)) for arm in (REFERENCE, GPUBETON))
        return float((first != second).double().mean() * 100)

    def images(self, arm: Arm, seed: int) -> dict[str, list[float]]:
        """Compare the first batches of an arm with the reference's, image by image."""
        scale = torch.from_numpy(STD).float().view(1, 3, 1, 1)
        differences: dict[str, list[float]] = {"mean level": [], "absolute levels": [], "labels": []}
        pairs = zip(self._batches(arm, seed, 1), self._batches(REFERENCE, seed, 1), strict=True)
        for batch, expected in islice(pairs, _IMAGES):
            levels = (batch.images - expected.images) * scale
            differences["mean level"] += levels.mean((1, 2, 3)).tolist()
            differences["absolute levels"] += levels.abs().mean((1, 2, 3)).tolist()
            differences["labels"] += (100.0 * (batch.labels != expected.labels)).tolist()
        return differences

    def _batches(self, arm: Arm, seed: int, epochs: int) -> Any:
        path = self._train if epochs else self._test
        return batches(path, arm, self._decoded[path], seed=seed, epochs=epochs, batch_size=_BATCH)


def main(
    train_images: Annotated[int, typer.Option("--train", help="Number of images to train with.")] = 50_000,
    test_images: Annotated[int, typer.Option("--test", help="Number of images to test with.")] = 10_000,
    epochs: Annotated[int, typer.Option(help="Epochs of a training.")] = 4,
    seeds: Annotated[int, typer.Option(help="Pairs of trainings.")] = 5,
    fault_seeds: Annotated[int, typer.Option(help="Pairs of trainings for each planted mistake.")] = 3,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="File or folder for the result.")] = RESULTS,
) -> None:
    """Train with both, and with each planted mistake, and compare."""
    console, started = Console(), time.perf_counter()
    glyphs = GlyphSet(train_images, test_images)
    study = Study(data / f"glyphs-{train_images}", glyphs, epochs)
    reference = {seed: study.run(REFERENCE, seed) for seed in range(seeds)}
    arms = []
    for arm in (GPUBETON, *FAULTS):
        count = seeds if arm is GPUBETON else min(fault_seeds, seeds)
        runs = {seed: study.run(arm, seed) for seed in range(count)}
        figures = {**_pairs(runs, reference, len(reference[0].losses) // epochs), **study.images(arm, 0)}
        verdicts = compare(figures)
        rejected = [verdict.measure for verdict in verdicts if not verdict.is_equivalent]
        rows = [{**asdict(verdict), "is_equivalent": verdict.is_equivalent} for verdict in verdicts]
        arms.append({"name": arm.name, "runs": [asdict(run) for run in runs.values()], "verdicts": rows})
        console.print(f"{arm.name}: {'differs in ' + ', '.join(rejected) if rejected else 'equivalent'}")
    measured = {
        "set": asdict(glyphs),
        "epochs": epochs,
        "margins": MARGINS,
        "seconds": time.perf_counter() - started,
        "reference": [asdict(run) for run in reference.values()],
        "arms": arms,
        "changed_predictions_percent": study.changed_predictions(0),
    }
    console.print(f"Written: {save('accuracy', measured, results)}", soft_wrap=True)


def _pairs(runs: Mapping[int, Run], reference: Mapping[int, Run], epoch: int) -> dict[str, Sequence[float]]:
    """Subtract the reference's figures from those of the runs with the same seeds."""

    def differences(figure: Any) -> list[float]:
        return [float(figure(run) - figure(reference[seed])) for seed, run in runs.items()]

    def mean(losses: Sequence[float]) -> float:
        return float(np.mean(losses))

    return {
        "accuracy": differences(lambda run: run.accuracy),
        "last epoch's loss": differences(lambda run: mean(run.losses[-epoch:])),
        "first losses": differences(lambda run: mean(run.losses[:_FIRST])),
    }


if __name__ == "__main__":
    typer.run(main)
