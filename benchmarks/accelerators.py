"""How many GPUs do the cores of this machine feed? The method of MLPerf Storage, with decoding and augmentation.

As there, an accelerator is simulated: it takes a batch of 400 images, sleeps for the time of a step of ResNet-50 on a
GPU, and takes the next. Its utilization is the share of its time that it sleeps. The answer is the largest number of
accelerators that one loader keeps at 90 % or more. It is no result of MLPerf: there nothing is decoded, the files are
larger than the memory, and an epoch has 3,200 steps.

    python -m benchmarks.accelerators
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.contenders.process import Contender, ContenderError, ContenderProcess
from benchmarks.contenders.work import Work
from benchmarks.corpus import IMAGENET_QUALITY, make_corpus
from benchmarks.entry_points import indexed
from benchmarks.harness.timing import race
from benchmarks.machine import describe_machine
from benchmarks.referee_tables import LEAST_UTILIZATION, fed
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton._machine import count_cores

__all__ = ["LOADERS", "STEP_SECONDS", "search"]

#: Of ResNet-50 in MLPerf Storage 2.0, for a batch of 400.
STEP_SECONDS = {"H100": 0.224, "A100": 0.435}
_BATCH = 400
_ENTRY_POINTS = "gpubeton, entry points"
LOADERS = (
    Contender("gpubeton", "gpubeton_loader", "gpubeton"),
    Contender(_ENTRY_POINTS, "gpubeton_loader", "gpubeton"),
    Contender("FFCV", "ffcv_loader", "ffcv", "GPUBETON_FFCV_PYTHON"),
    Contender("DataLoader, Pillow, tuned", "torch_tuned", "torch"),
    Contender(
        "DataLoader, torchcodec", "torchcodec_images", "torchvision, torchcodec.decoders", "GPUBETON_TORCHVISION_PYTHON"
    ),
)


def main(
    images: Annotated[int, typer.Option(min=1, help="Number of photos.")] = 3000,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each accelerator.")] = 50,
    rounds: Annotated[int, typer.Option(min=1, help="Searches for each loader, in alternation.")] = 3,
    cores: Annotated[int, typer.Option(min=0, help="Cores of a loader; 0: all.")] = 0,
    storages: Annotated[str, typer.Option(help="Photos of 55 kB, of ImageNet's bytes, raw.")] = "jpg,imagenet,raw",
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Find how many simulated accelerators each loader feeds."""
    console = Console()
    machine = describe_machine()
    machine["cores"] = cores = cores or count_cores()
    runs: list[dict[str, Any]] = []
    for storage in storages.split(","):
        corpus = make_corpus(data, images, console, *([IMAGENET_QUALITY] if storage == "imagenet" else []))
        # Laps so long that few of them begin in a measurement.
        work = Work(corpus.jpg, corpus.folder, images, -(-200_000 // images), cores, _BATCH)
        works = dict.fromkeys(LOADERS, work)
        if storage == "raw":
            works = {
                loader: replace(work, beton=corpus.raw) for loader in LOADERS if loader.name in ("gpubeton", "FFCV")
            }
        else:
            works[LOADERS[1]] = replace(work, beton=str(indexed(corpus, data)))
        kind = {"storage": storage, "corpus": corpus.facts["raw" if storage == "raw" else "jpg"]}
        runs += [{**kind, **run} for run in _measure(works, steps, rounds, console)]
    facts = {"batch_size": _BATCH, "steps": steps, "rounds": rounds, "step_seconds": STEP_SECONDS}
    save_and_draw("accelerators", {"machine": machine, **facts, "runs": runs}, results, console)


def search(utilization: Callable[[int], float], first: int) -> dict[int, float]:
    """Measure numbers of accelerators from `first` on, until one is enough and the next too many."""
    measured: dict[int, float] = {}
    count = max(1, first)
    while count not in measured:
        measured[count] = utilization(count)
        count = count + 1 if measured[count] >= LEAST_UTILIZATION else max(1, count - 1)
    return measured


def _measure(works: dict[Contender, Work], steps: int, rounds: int, console: Console) -> list[dict[str, Any]]:
    """Search for each loader, with each kind of accelerator."""
    runs: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        running: dict[str, ContenderProcess] = {}
        for loader, work in works.items():
            run: dict[str, Any] = {"loader": loader.name, "utilization": {}}
            runs[loader.name] = run
            try:
                loader.check_installed()
                process = ContenderProcess(loader.name, loader.python, loader.module, work)
                running[loader.name] = stack.enter_context(process)
                # Accelerators that need no time are a warm-up, and show the loader's speed.
                run["images_per_second"] = steps * work.batch_size / process.feed(1, 0.0, steps)
                run["versions"] = process.versions
            except ContenderError as error:
                running.pop(loader.name, None)
                run["left_out"] = str(error)
                console.print(f"{loader.name}: left out: {error}")
        for gpu, seconds in STEP_SECONDS.items():
            searches = {
                name: partial(_search_with, process, seconds, steps, runs[name]) for name, process in running.items()
            }
            for name, of_rounds in race(searches, rounds).items():
                if "left_out" in runs[name]:
                    running.pop(name)
                    console.print(f"{name}: left out: {runs[name]['left_out']}")
                    continue
                runs[name]["utilization"][gpu] = of_rounds
                console.print(f"{name} feeds {fed(of_rounds)[0]} × {gpu}: {of_rounds}")
    return list(runs.values())


def _search_with(process: ContenderProcess, step_seconds: float, steps: int, run: dict[str, Any]) -> dict[int, float]:
    """Begin with what the speed of a loader promises; a loader whose process ended is left out."""

    def utilization(accelerators: int) -> float:
        return steps * step_seconds / process.feed(accelerators, step_seconds, steps)

    if "left_out" in run:
        return {}
    try:
        return search(utilization, int(run["images_per_second"] * step_seconds / _BATCH / LEAST_UTILIZATION))
    except ContenderError as error:
        run["left_out"] = str(error)
        return {}


if __name__ == "__main__":
    typer.run(main)
