"""Time gpubeton beside other loaders: in alternation, on the same images, on the same cores.

Writes benchmarks/results/DATE-compare-....json and draws the tables of the two READMEs from it.

    python -m benchmarks.compare --rounds 7

Loaders that are not installed are left out; the result lists them. They can be in other environments, which
environment variables name: see benchmarks/README.md.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.contenders.process import Contender, ContenderError, ContenderProcess
from benchmarks.contenders.work import Work
from benchmarks.corpus import IMAGENET_QUALITY, Corpus, make_corpus, tars_of
from benchmarks.harness.timing import Lap, median_rate, race
from benchmarks.machine import describe_machine
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton._machine import count_cores


@dataclass(frozen=True)
class Entry(Contender):
    """A contender of a race."""

    interpolation: str = "area"  # of gpubeton's loader
    storages: tuple[str, ...] = ("jpg", "imagenet", "evaluation")  # the races it runs in
    reads_tars: bool = False


#: Photos of 55 kB, photos of ImageNet's bytes, the latter whole for evaluation, raw pixels.
RACES = ("jpg", "imagenet", "evaluation", "raw")
_TORCHVISION, _WEBDATASET = "GPUBETON_TORCHVISION_PYTHON", "GPUBETON_WEBDATASET_PYTHON"
ENTRIES = (
    Entry("gpubeton, area", "gpubeton_loader", "gpubeton", storages=RACES),
    Entry("gpubeton, bilinear", "gpubeton_loader", "gpubeton", interpolation="bilinear", storages=("jpg", "raw")),
    Entry("gpubeton, antialias", "gpubeton_loader", "gpubeton", interpolation="antialias", storages=RACES),
    Entry("gpubeton, bicubic", "gpubeton_loader", "gpubeton", interpolation="bicubic", storages=("jpg", "raw")),
    Entry("FFCV", "ffcv_loader", "ffcv", "GPUBETON_FFCV_PYTHON", storages=RACES),
    Entry("FFCV, erow's fork", "ffcv_loader", "ffcv", "GPUBETON_EROW_FFCV_PYTHON", storages=RACES),
    Entry("PyTorch DataLoader, Pillow", "torch_dataloader", "torch"),
    Entry("PyTorch DataLoader, tuned", "torch_tuned", "torch"),
    Entry("PyTorch DataLoader, torchvision v2", "torchvision_images", "torchvision", _TORCHVISION),
    Entry("PyTorch DataLoader, torchcodec", "torchcodec_images", "torchvision, torchcodec.decoders", _TORCHVISION),
    Entry("WebDataset", "webdataset_tars", "webdataset", _WEBDATASET, reads_tars=True),
    Entry("LitData", "litdata_local", "litdata", _WEBDATASET),
    Entry("DALI, CPU", "dali_pipeline", "nvidia.dali", "GPUBETON_DALI_PYTHON"),
    Entry("SPDL", "spdl_pipeline", "spdl.io", "GPUBETON_SPDL_PYTHON"),
)


def main(
    images: Annotated[int, typer.Option(min=128, help="Number of images.")] = 3000,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the images in a lap.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Timed laps of each contender.")] = 7,
    cores: Annotated[int, typer.Option(min=0, help="Cores for each; 0: all.")] = 0,
    races: Annotated[str, typer.Option(help="Races to run, with commas.")] = ",".join(RACES),
    cold: Annotated[bool, typer.Option(help="Also start each loader with nothing compiled.")] = True,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time gpubeton beside other loaders: in alternation, on the same images, on the same cores."""
    console = Console()
    machine = describe_machine()
    machine["cores"] = cores = cores or count_cores()
    ran = []
    for name in races.split(","):
        is_imagenet = name in ("imagenet", "evaluation")
        corpus = make_corpus(data, images, console, *([IMAGENET_QUALITY] if is_imagenet else []))
        beton, crop = corpus.raw if name == "raw" else corpus.jpg, "center" if name == "evaluation" else "random"
        work = Work(beton, corpus.folder, images, passes, cores, crop=crop)
        ran.append(run_race(console, name, work, corpus, rounds, cold=cold))
    save_and_draw("compare", {"machine": machine, "races": ran}, results, console)


def run_race(
    console: Console,
    storage: str,
    work: Work,
    corpus: Corpus,
    rounds: int,
    entries: Sequence[Entry] = ENTRIES,
    *,
    cold: bool = True,
) -> dict[str, Any]:
    """Run one race."""
    left_out: dict[str, str] = {}
    starts: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        running: dict[str, ContenderProcess] = {}
        for entry in entries:
            if storage not in entry.storages:
                continue
            with console.status(f"{storage}: {entry.name}: starting, compiling and warming up"):
                try:
                    task = replace(work, interpolation=entry.interpolation)
                    task = replace(task, beton=tars_of(corpus)) if entry.reads_tars else task
                    entry.check_installed()
                    seconds = _start_uncompiled(entry, task) if cold else None
                    process = ContenderProcess(entry.name, entry.python, entry.module, task)
                    running[entry.name] = stack.enter_context(process)
                    lap, memory = process.watched_lap()
                    first = process.start_seconds + (lap.first_batch_seconds or 0)
                    starts[entry.name] = {"cold_seconds": seconds, "warm_seconds": first, "memory_bytes": memory}
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
        "work": {key: value for key, value in asdict(work).items() if key not in _NOT_OF_THE_WORK},
        "crop": work.crop,
        "corpus": corpus.facts["raw" if storage == "raw" else "jpg"],
        "contenders": {
            name: {"versions": versions[name], **starts[name], "laps": [asdict(lap) for lap in laps_of_contender]}
            for name, laps_of_contender in laps.items()
        },
        "left_out": left_out,
    }


#: Of the race or of a contender.
_NOT_OF_THE_WORK = ("beton", "folder", "interpolation", "crop")


def _start_uncompiled(entry: Entry, work: Work) -> float:
    """Start a contender that finds no machine code of an earlier run; return the seconds to its first batch."""
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        arguments = (entry.name, entry.python, entry.module, replace(work, passes=1))
        with ContenderProcess(*arguments, environment) as process:
            return process.start_seconds + (process.lap().first_batch_seconds or 0)


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
