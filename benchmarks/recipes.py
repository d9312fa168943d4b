"""Measure recipes and single operations beside the plain recipe: random resized crop, flip, normalize to float16.

Each is loaded in alternation with the plain recipe, from JPEGs with entry points, with 1 worker and with more. The
ratios compare the epochs of one round. A round has all cases, so that those of one case are minutes apart: a machine
that others slow for a while shows it in some rounds. The processor time is that of all threads; that of the loader's
thread, which prepares batches and carries out what no worker does, is listed per batch: it is the limit of many cores.

    python -m benchmarks.recipes
    python -m benchmarks.recipes --cases none --rounds 2 --threads 2 --opponents

With --opponents some recipes also race with torchvision v2 (GPUBETON_TORCHVISION_PYTHON), per image in the workers of a
DataLoader and on whole batches, and with DALI on the CPU (GPUBETON_DALI_PYTHON).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.contenders.process import Contender, ContenderError, ContenderProcess
from benchmarks.contenders.work import Work
from benchmarks.corpus import make_corpus
from benchmarks.entry_points import indexed
from benchmarks.gpu.host_cost import spend
from benchmarks.harness.timing import median_rate, race
from benchmarks.recipe_cases import OPERATIONS, PLAIN, RECIPES, pipelines_of
from benchmarks.recipe_tables import added_us, beside_plain
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton._compile.simd import HAS_AVX512
from gpubeton.format import open_dataset
from gpubeton.loader import Loader, OrderOption

__all__ = ["KIND", "OPPONENTS", "measure"]

#: Of results: processors without AVX-512 have a table of their own.
KIND = "recipes" if HAS_AVX512 else "recipes_avx2"

OPPONENTS = (
    Contender("gpubeton", "gpubeton_loader", "gpubeton"),
    Contender("torchvision v2 in a DataLoader", "torchvision_images", "torchvision", "GPUBETON_TORCHVISION_PYTHON"),
    Contender("torchvision v2 on batches", "torchvision_batches", "torchvision", "GPUBETON_TORCHVISION_PYTHON"),
    Contender("DALI, CPU", "dali_recipes", "nvidia.dali", "GPUBETON_DALI_PYTHON"),
)
_OPPOSED = (PLAIN, "jitter", "RandAugment", "torchvision", "DeiT III", "SimCLR, a view")
_PASSES = 4  # over the images, in a lap of other loaders: enough that the first batch does not count
_EXTRA = 12  # batches of an epoch besides the timed ones: to warm up, and to have some ahead at the end


def main(
    cases: Annotated[
        str, typer.Option(help="What to measure: recipes, operations, all, none (opponents only), or names with ';'.")
    ] = "all",
    threads: Annotated[str, typer.Option(help="Numbers of workers, with commas.")] = "1,2",
    images: Annotated[int, typer.Option(min=1, help="Number of photos.")] = 1024,
    batches: Annotated[int, typer.Option(min=1, help="Timed batches of an epoch.")] = 24,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a batch.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Timed epochs of each case.")] = 7,
    side: Annotated[int, typer.Option(min=32, help="Height and width of the images.")] = 224,
    interpolation: Annotated[str, typer.Option(help="Of all cases; '' for that of each recipe.")] = "area",
    opponents: Annotated[bool, typer.Option(help="Race with other loaders, too.")] = False,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Measure recipes and single operations beside the plain recipe."""
    console = Console()
    listed = {"recipes": [*RECIPES], "operations": [*OPERATIONS], "all": [*RECIPES, *OPERATIONS], "none": []}
    names = [name for name in listed.get(cases, cases.split(";")) if name != PLAIN]
    corpus = make_corpus(data, images, console)
    beton = str(indexed(corpus, data))
    make = partial(_loader, beton, batch_size, batches, side, interpolation or None)
    counts = [int(count) for count in threads.split(",")]
    facts = {"batch_size": batch_size, "rounds": rounds, "side": side, "images": images, "corpus": corpus.facts["jpg"]}
    if names:
        runs, left_out = measure(make, names, counts, batches, rounds, console)
        console.print(_table(runs))
        measured = {**facts, "batches": batches, "interpolation": interpolation, "left_out": left_out}
        save_and_draw(KIND, {**measured, "runs": runs}, results, console)
    if opponents:
        work = Work(beton, corpus.folder, images, _PASSES, max(counts), batch_size, side)
        opposed = [name for name in _OPPOSED if name in (PLAIN, *names) or not names]
        races = [_race(name, replace(work, recipe=name), rounds, console) for name in opposed]
        save_and_draw("recipe_opponents", {**facts, "passes": _PASSES, "races": races}, results, console)


def measure(
    make: Any, names: Iterable[str], counts: Sequence[int], batches: int, rounds: int, console: Console
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Time each case in alternation with the plain recipe; return the epochs, and the cases that are not there."""
    runs, left_out = [], {}
    for workers in counts:
        listed: list[dict[str, Any]] = []
        for name in names:
            try:
                loader = make(name, workers)
            except (AttributeError, NameError) as error:
                left_out[name] = str(error)
                continue
            with closing(loader), console.status(f"{workers} threads: first batch of {name}"):
                start = time.perf_counter()
                next(iter(loader))
                first = time.perf_counter() - start
            case = {"name": name, "is_recipe": name in RECIPES, "threads": workers, "first_batch_seconds": first}
            listed.append({**case, "laps": [], "plain": []})
        with closing(make(PLAIN, workers)) as plain:
            for number in range(rounds):
                for run in listed:
                    name = run["name"]
                    with closing(make(name, workers)) as loader, console.status(f"{workers} threads: {number}, {name}"):
                        # The first of the two changes from round to round.
                        epochs = [
                            ("laps", partial(_epoch, loader, batches)),
                            ("plain", partial(_epoch, plain, batches)),
                        ]
                        laps = race(dict(epochs if number % 2 else epochs[::-1]), 1)
                    run["laps"] += laps["laps"]
                    run["plain"] += laps["plain"]
        runs += listed
    return runs, left_out


def _epoch(loader: Loader, batches: int) -> dict[str, float]:
    """Load an epoch; return images/s, and processor time: µs per image, ms of the loader's thread per batch."""
    loader.next_epoch = 0  # the same draws each time
    spent = spend(iter(loader), batches)
    return {
        "images_per_second": spent.images / spent.wall_seconds,
        "cpu_us": 1e6 * spent.cpu_seconds / spent.images,
        "thread_ms": 1e3 * spent.by_thread.get("gpubeton-prefetch", 0.0) / batches,
    }


def _loader(
    beton: str, batch_size: int, batches: int, side: int, interpolation: Any, name: str, workers: int
) -> Loader:
    return Loader(
        beton,
        batch_size,
        num_workers=workers,
        order=OrderOption.RANDOM,
        seed=0,
        indices=np.arange((batches + _EXTRA) * batch_size) % open_dataset(beton).num_samples,
        pipelines={**pipelines_of(name, side, interpolation), "label": None},
        device="cpu",
    )


def _race(name: str, work: Work, rounds: int, console: Console) -> dict[str, Any]:
    """Race a recipe with the other loaders."""
    left_out: dict[str, str] = {}
    running: dict[str, ContenderProcess] = {}
    with ExitStack() as stack:
        for contender in OPPONENTS:
            with console.status(f"{name}: {contender.name}: starting and warming up"):
                try:
                    contender.check_installed()
                    process = ContenderProcess(contender.name, contender.python, contender.module, work)
                    running[contender.name] = stack.enter_context(process)
                    process.lap()
                except ContenderError as error:
                    running.pop(contender.name, None)
                    left_out[contender.name] = str(error)
                    console.print(f"{name}: {contender.name}: left out: {error}")
        laps = race({loader: process.lap for loader, process in running.items()}, rounds)
        versions = {loader: process.versions for loader, process in running.items()}
    for loader, its_laps in laps.items():
        console.print(f"{name}: {loader}: {median_rate(its_laps):,.0f} images/s")
    listed = {loader: [asdict(lap) for lap in its_laps] for loader, its_laps in laps.items()}
    return {"name": name, "threads": work.cores, "laps": listed, "versions": versions, "left_out": left_out}


def _table(runs: list[dict[str, Any]]) -> Table:
    added = added_us(runs)
    table = Table("threads", "images/s", "× plain", "CPU µs", "added µs", "thread, ms a batch", "× plain", "case")
    table.columns[-1].overflow = "fold"
    for run, its_added in zip(runs, added, strict=True):
        laps, beside = run["laps"], beside_plain(run)
        rate, cpu, thread = (median(lap[what] for lap in laps) for what in ("images_per_second", "cpu_us", "thread_ms"))
        numbers = f"{rate:,.0f}", f"{median(beside['× plain']):.2f}", f"{cpu:.0f}", f"{its_added:.0f}"
        last = f"{thread:.2f}", f"{median(beside['× thread']):.2f}"
        table.add_row(str(run["threads"]), *numbers, *last, run["name"])
    return table


if __name__ == "__main__":
    typer.run(main)
