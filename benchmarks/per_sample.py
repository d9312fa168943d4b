"""Time the call of a function for each image with `PerSample`: one that does nothing, on finished batches.

The processor time of all threads counts:

    python -m benchmarks.per_sample
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console

from benchmarks.harness.timing import time_lap
from benchmarks.results import RESULTS, save
from gpubeton.transforms import PerSample

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH, _SIDE = 128, 224


def keep(image: NDArray[np.uint8], generator: np.random.Generator) -> NDArray[np.uint8]:  # noqa: ARG001
    """Do nothing."""
    return image


def main(
    batches: Annotated[int, typer.Option(min=1, help="Batches of a lap.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Timed laps.")] = 9,
    cores: Annotated[int, typer.Option(min=1, help="Threads.")] = 2,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time the call of a function for each image."""
    lap = partial(time_lap, partial(_lap, PerSample(keep, num_workers=cores), batches))
    lap()
    laps = [lap() for _ in range(rounds)]
    cpu_ms = median(lap.cpu_seconds_per_1000 for lap in laps)
    Console().print(f"{cpu_ms:.3f} ms of processor time for each image")
    facts = {"batch_size": _BATCH, "side": _SIDE, "batches": batches, "cores": cores, "rounds": rounds}
    save("per_sample", {**facts, "laps": [asdict(lap) for lap in laps], "cpu_ms": cpu_ms}, results)


def _lap(operation: PerSample, batches: int) -> int:
    """Run the operation on batches of images; return their number."""
    images = np.zeros((_BATCH, _SIDE, _SIDE, 3), np.uint8)
    keys = np.arange(_BATCH, dtype=np.uint64)[:, None]
    for _ in range(batches):
        operation.apply(images, keys)
    return batches * _BATCH


if __name__ == "__main__":
    typer.run(main)
