"""Trainings with each arm, side by side on the cores. Each is kept in a file, so that a stopped study goes on."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from benchmarks.accuracy.batches import EXACT, FAULTS, GPUBETON, NUDGED, REFERENCE, STD, Arm, Batch, batches, decoded
from benchmarks.accuracy.pictures import CLASSES, PictureSet, write_pictures
from benchmarks.accuracy.training import Training, make_network, predict
from gpubeton._machine import count_cores

__all__ = ["ARMS", "BATCH", "Run", "Study"]

ARMS = {arm.name: arm for arm in (REFERENCE, GPUBETON, NUDGED, *FAULTS)}
BATCH = 64
_FIRST = 20  # steps
_COMPARED = 16  # batches of training, and as many of the test
_POINT = 30  # steps for a point of a curve
_SOURCES = ("batches", "pictures", "training")


@dataclass(frozen=True)
class Run:
    """What a training gave."""

    first: float  # mean loss of the first 20 steps
    last: float  # of the last fifth of the steps
    curve: list[float]  # mean loss of each 30 steps
    accuracy: float  # percent of the arm's test images
    crossed: float  # percent of the reference's test images; of the reference: of gpubeton's
    changed: float  # percent of the test images that get another class from these
    seconds: float  # of processor time


@dataclass(frozen=True)
class Study:
    """A set of pictures, and the trainings on it."""

    folder: Path
    pictures: PictureSet
    epochs: int

    @property
    def paths(self) -> tuple[Path, Path]:
        """The files to train with and to test with."""
        return self.folder / "train.beton", self.folder / "test.beton"

    @property
    def steps(self) -> int:
        """The steps of a training."""
        return self.epochs * (self.pictures.train // BATCH)

    def prepare(self, *, has_faults: bool) -> None:
        """Make the pictures and decode them, unless that is done."""
        for path in write_pictures(self.folder, self.pictures):
            for is_fast in (False, True)[: 1 + has_faults]:
                decoded(path, is_fast=is_fast)

    def runs(self, jobs: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int, Run]]:
        """Train for each arm's name and seed, one training on each core; yield them as they end."""
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(count_cores(), context) as pool:
            tasks = {pool.submit(self.run, *job): job for job in jobs}
            for task in as_completed(tasks):
                yield *tasks[task], task.result()

    def run(self, name: str, seed: int) -> Run:
        """Train a network with an arm's batches, and test it; or read what that gave."""
        sources = b"".join((Path(__file__).parent / f"{source}.py").read_bytes() for source in _SOURCES)
        record = self.folder / f"runs-{self.epochs}-{hashlib.sha256(sources).hexdigest()[:8]}" / f"{name}-{seed}.json"
        if record.is_file():
            return Run(**json.loads(record.read_text()))
        run = self._train(ARMS[name], seed)
        record.parent.mkdir(exist_ok=True)
        new = record.with_suffix(".new")
        new.write_text(json.dumps(asdict(run)))
        new.replace(record)
        return run

    def _train(self, arm: Arm, seed: int) -> Run:
        torch.set_num_threads(1)  # two trainings at once are faster than one with two threads, and repeat to the bit
        torch.use_deterministic_algorithms(True)
        started = time.process_time()
        network = make_network(seed, CLASSES[self.pictures.kind], is_nudged=arm.is_nudged)
        losses = Training(network, self.steps).run(self.batches(arm, seed, self.epochs))
        classes, labels = predict(network, self._tests(arm))
        crossed, true_labels = predict(network, self._tests(GPUBETON if arm == REFERENCE else REFERENCE))
        curve = [round(float(np.mean(losses[at : at + _POINT])), 4) for at in range(0, len(losses), _POINT)]
        return Run(
            first=float(np.mean(losses[:_FIRST])),
            last=float(np.mean(losses[-self.steps // 5 :])),
            curve=curve,
            accuracy=_percent(classes == labels),
            crossed=_percent(crossed == true_labels),
            changed=_percent(classes != crossed),
            seconds=time.process_time() - started,
        )

    def _tests(self, arm: Arm) -> Iterable[Batch]:
        """Give the batches of the test, which are the same for all seeds."""
        return self._reference_tests() if arm in (REFERENCE, NUDGED) else self.batches(arm, 0, 0)

    @lru_cache(maxsize=1)  # noqa: B019  Pillow takes 9 s for them; the processes of a study end with it
    def _reference_tests(self) -> list[Batch]:
        return list(self.batches(REFERENCE, 0, 0))

    def compare_pixels(self, arm: Arm) -> dict[str, float]:
        """Compare batches with their definition: the measures of stage 1, and two that help to understand them."""
        scale = torch.from_numpy(STD).view(1, 3, 1, 1)
        levels, labels = [], []
        for epochs in (1, 0):
            pairs = zip(self.batches(arm, 0, epochs), self.batches(EXACT, 0, epochs), strict=True)
            for batch, expected in islice(pairs, _COMPARED):
                levels.append((batch.images.double() - expected.images) * scale)
                labels.append(batch.labels != expected.labels)
        away = torch.cat(levels)
        return {
            "labels": _percent(torch.cat(labels)),
            "mean level": float(away.mean()),
            "mean difference": float(away.abs().mean()),
            "more than 4 levels": _percent(away.abs() > 4),
            "largest": float(away.abs().max()),
        }

    def batches(self, arm: Arm, seed: int, epochs: int) -> Iterator[Batch]:
        """Give batches to train with, or with no epoch those of the test."""
        return batches(self.paths[epochs == 0], arm, seed=seed, epochs=epochs, batch_size=BATCH)


def _percent(chosen: torch.Tensor) -> float:
    return 100 * float(chosen.double().mean())
