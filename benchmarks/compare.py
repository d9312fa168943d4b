"""Time gpubeton beside other loaders: in alternation, on the same images, on the same cores.

Writes benchmarks/results/DATE-compare-....json and draws the tables of the two READMEs from it.

    python -m benchmarks.compare --rounds 7

Loaders that are not installed are left out; the result lists them. They can be in other environments, named by
GPUBETON_FFCV_PYTHON (see benchmarks/ffcv_environment.sh), GPUBETON_DALI_PYTHON and GPUBETON_SPDL_PYTHON.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.contenders.process import Contender, ContenderError, ContenderProcess
from benchmarks.contenders.work import Work
from benchmarks.corpus import Corpus, make_corpus
from benchmarks.harness.timing import Lap, median_rate, race
from benchmarks.machine import describe_machine
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton._machine import count_cores


@dataclass(frozen=True)
class Entry(Contender):
    """A contender of a race."""

    interpolation: str = "area"  # of gpubeton's loader
    storages: tuple[str, ...] = ("jpg",)  # the races it can run in


ENTRIES = (
    *(
        Entry(f"gpubeton, {name}", "gpubeton_loader", "gpubeton", interpolation=name, storages=("jpg", "raw"))
        for name in ("area", "bilinear", "antialias", "bicubic")
    ),
    Entry("FFCV", "ffcv_loader", "ffcv", "GPUBETON_FFCV_PYTHON", storages=("jpg", "raw")),
    Entry("PyTorch DataLoader, Pillow", "torch_dataloader", "torch"),
    Entry("PyTorch DataLoader, tuned", "torch_tuned", "torch"),
    Entry("DALI, CPU", "dali_pipeline", "nvidia.dali", "GPUBETON_DALI_PYTHON"),
    Entry("SPDL", "spdl_pipeline", "spdl.io", "GPUBETON_SPDL_PYTHON"),
)


def main(
    images: Annotated[int, typer.Option(min=128, help="Number of images.")] = 3000,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the images in a lap.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Timed laps of each contender.")] = 7,
    cores: Annotated[int, typer.Option(min=0, help="Cores for each; 0: all.")] = 0,
    storage: Annotated[str, typer.Option(help="Races to run: jpg, raw or both.")] = "both",
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time gpubeton beside other loaders: in alternation, on the same images, on the same cores."""
    console = Console()
    machine = describe_machine()
    machine["cores"] = cores = cores or count_cores()
    corpus = make_corpus(data, images, console)
    races = [
        run_race(console, name, Work(beton, corpus.folder, images, passes, cores), corpus, rounds)
        for name, beton in (("jpg", corpus.jpg), ("raw", corpus.raw))
        if storage in (name, "both")
    ]
    save_and_draw("compare", {"machine": machine, "races": races}, results, console)


def run_race(
    console: Console, storage: str, work: Work, corpus: Corpus, rounds: int, entries: Sequence[Entry] = ENTRIES
) -> dict[str, Any]:
    """Run one race."""
    left_out: dict[str, str] = {}
    with ExitStack() as stack:
        running: dict[str, ContenderProcess] = {}
        for entry in entries:
            if storage not in entry.storages:
                continue
            with console.status(f"{storage}: {entry.name}: starting, compiling and warming up"):
                try:
                    running[entry.name] = stack.enter_context(_start(entry, work))
                    lap = running[entry.name].lap()
                except ContenderError as error:
                    running.pop(entry.name, None)
                    left_out[entry.name] = str(error)
                    console.print(f"{storage}: {entry.name}: left out: {error}")
                    continue
            console.print(f"{storage}: {entry.name}: warm-up {lap.images_per_second:,.0f} images/s")
        laps = _run_rounds(console, storage, running, rounds)
        versions = {name: contender.versions for name, contender in running.items()}
    return {
        "storage": storage,
        "work": {key: value for key, value in asdict(work).items() if key not in ("beton", "folder", "interpolation")},
        "corpus": corpus.facts[storage],
        "contenders": {
            name: {"versions": versions[name], "laps": [asdict(lap) for lap in laps_of_contender]}
            for name, laps_of_contender in laps.items()
        },
        "left_out": left_out,
    }


def _start(entry: Entry, work: Work) -> ContenderProcess:
    entry.check_installed()
    return ContenderProcess(entry.name, entry.python, entry.module, replace(work, interpolation=entry.interpolation))


def _run_rounds(
    console: Console, storage: str, running: dict[str, ContenderProcess], rounds: int
) -> dict[str, list[Lap]]:
    done = 0
    with console.status("", refresh_per_second=1) as status:

        def advance(name: str) -> None:
            nonlocal done
            status.update(f"{storage}: round {done // len(running) + 1} of {rounds}: {name}")
            done += 1

        laps = race({name: contender.lap for name, contender in running.items()}, rounds, advance)
    for name, lap in laps.items():
        console.print(f"{storage}: {name}: {median_rate(lap):,.0f} images/s")
    return laps


if __name__ == "__main__":
    typer.run(main)
