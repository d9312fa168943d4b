"""Time how much a user's compiled operation adds to FFCV's loader and to gpubeton's.

Both run the same operation on the same images, in alternation, with and without it; the benchmark compares the
differences. FFCV runs in another environment (see benchmarks/ffcv_environment.sh):

    GPUBETON_FFCV_PYTHON=.venv-ffcv/bin/python python -m benchmarks.custom_operation
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.contenders.process import ContenderProcess
from benchmarks.contenders.work import Work
from benchmarks.corpus import make_corpus
from benchmarks.harness.timing import Lap, race
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw

#: Module of each loader, and the environment variable with its interpreter.
LOADERS = {"FFCV": ("ffcv_loader", "GPUBETON_FFCV_PYTHON"), "gpubeton": ("gpubeton_loader", "")}

#: Work.own_operation of the pipeline without the operation, and with it.
PLACES = {"in front of NormalizeImage": ("", "with"), "and nothing else does": ("bare", "instead")}


def main(
    images: Annotated[int, typer.Option(min=128, help="Number of images.")] = 1024,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the images in a lap.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Timed laps of each.")] = 9,
    cores: Annotated[int, typer.Option(min=1, help="Workers of each.")] = 1,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time how much a user's compiled operation adds to FFCV's loader and to gpubeton's."""
    console = Console()
    corpus = make_corpus(data, images, console)
    with ExitStack() as stack:
        running = {}
        for loader, (module, variable) in LOADERS.items():
            python = os.environ.get(variable) or sys.executable
            for place in dict.fromkeys(operation for pair in PLACES.values() for operation in pair):
                name = _name(loader, place)
                work = Work(corpus.raw, "", images, passes, cores, own_operation=place)
                with console.status(f"{name}: starting, compiling and warming up"):
                    running[name] = stack.enter_context(ContenderProcess(name, python, module, work))
                    running[name].lap()
        laps = race({name: contender.lap for name, contender in running.items()}, rounds)
        versions = {name: contender.versions for name, contender in running.items()}
    added = {place: {loader: _added(laps, loader, pair) for loader in LOADERS} for place, pair in PLACES.items()}
    console.print(_table(added))
    measured = {
        "cores": cores,
        "images": images,
        "rounds": rounds,
        "corpus": corpus.facts["raw"],
        "versions": versions,
        "laps": {name: [asdict(lap) for lap in laps_of_loader] for name, laps_of_loader in laps.items()},
        "added_cpu_ms": added,
    }
    save_and_draw("custom_operation", measured, results, console)


def _name(loader: str, operation: str) -> str:
    return f"{loader}, {operation or 'normalising'}"


def _added(laps: dict[str, list[Lap]], loader: str, pair: tuple[str, str]) -> list[float]:
    """Return the processor time that the operation adds, in ms per image, for each round."""
    without, with_it = (laps[_name(loader, operation)] for operation in pair)
    return [more.cpu_seconds_per_1000 - less.cpu_seconds_per_1000 for more, less in zip(with_it, without, strict=True)]


def _table(added: dict[str, dict[str, list[float]]]) -> Table:
    table = Table("place of the operation", *(f"{loader}: added CPU ms per image" for loader in LOADERS), "ratio")
    for place, costs in added.items():
        values = [median(times) for times in costs.values()]
        table.add_row(place, *(f"{value:.4f}" for value in values), f"{values[1] / values[0]:.2f}")
    return table


if __name__ == "__main__":
    typer.run(main)
