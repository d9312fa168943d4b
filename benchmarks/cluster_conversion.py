"""Conversion to shards by several processes beside one: ``python -m benchmarks.cluster_conversion --images 1024``.

Each process is what a task of a cluster is: it makes whole shards with one thread, and shares nothing with the
others. A lap makes all shards, by one process or by all, in alternation.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.harness.photos import PhotoSet, write_photos
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton._machine import count_cores
from gpubeton.dataset import Settings, convert_shards

_SHARDS = 16
_SETTINGS = {"copied": Settings(), "at most 400 pixels": Settings(max_resolution=400)}


def main(
    images: Annotated[int, typer.Option(help="Photos to convert.")] = 1024,
    processes: Annotated[int, typer.Option(help="Processes beside one; by default one for each core.")] = 0,
    rounds: Annotated[int, typer.Option(help="Laps of each.")] = 5,
    data: Annotated[Path, typer.Option(help="Folder for the photos.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time laps of one process and of several, and print the share of the ideal rate that is reached."""
    console, count = Console(), processes or count_cores()
    photos = data / f"photos-{images}"
    write_photos(photos, PhotoSet(images, (90, 90)))
    runs: list[dict[str, Any]] = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as single, ProcessPoolExecutor(count, spawn) as several:
        for name, settings in _SETTINGS.items():
            laps: dict[int, list[float]] = {1: [], count: []}
            for number in range(rounds + 1):
                for pool, size in ((single, 1), (several, count)):
                    seconds = _lap(pool, photos, settings)
                    if number:  # the first lap starts the processes
                        laps[size].append(images / seconds)
            share = [more / (count * alone) for alone, more in zip(*laps.values(), strict=True)]
            console.print(
                f"{name}: {statistics.median(laps[1]):,.0f} images/s by one process, "
                f"{statistics.median(laps[count]):,.0f} by {count}: {statistics.median(share):.2f} of the ideal rate "
                f"({min(share):.2f} to {max(share):.2f})"
            )
            rates = {str(size): lap for size, lap in laps.items()}
            runs.append({"name": name, "images_per_second": rates, "share": share})
    measured = {"images": images, "shards": _SHARDS, "processes": count, "runs": runs}
    save_and_draw("cluster_conversion", measured, results, console)


def _lap(pool: ProcessPoolExecutor, photos: Path, settings: Settings) -> float:
    """Make all shards; return the seconds of it."""
    folder = Path(tempfile.mkdtemp())
    try:
        begin = time.perf_counter()
        list(pool.map(partial(_make_share, photos, folder / "shards", settings), range(_SHARDS)))
        return time.perf_counter() - begin
    finally:
        shutil.rmtree(folder)


def _make_share(photos: Path, target: Path, settings: Settings, number: int) -> None:
    convert_shards(photos, target, _SHARDS, settings, share=(number, _SHARDS), num_workers=1)


if __name__ == "__main__":
    typer.run(main)
