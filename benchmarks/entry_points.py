"""Measure loading JPEG-stored photos on the CPU: without entry points, and with them.

The loaders take turns, lap by lap; the rates and the processor time of whole processes are compared. FFCV takes part if
it is installed (GPUBETON_FFCV_PYTHON, see benchmarks/ffcv_environment.sh).

    python -m benchmarks.entry_points
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.contenders.process import Contender, ContenderError, ContenderProcess
from benchmarks.contenders.work import Work
from benchmarks.corpus import Corpus, make_corpus
from benchmarks.harness.timing import median_cpu, median_rate, race
from benchmarks.machine import describe_machine
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton.dataset import index_images
from gpubeton.format import open_dataset

WITHOUT = "without entry points"

_FFCV = Contender("FFCV", "ffcv_loader", "ffcv", "GPUBETON_FFCV_PYTHON")


def main(
    images: Annotated[int, typer.Option(min=128, help="Number of images.")] = 1024,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the images in a lap.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Timed laps of each contender.")] = 25,
    cores: Annotated[int, typer.Option(min=1, help="Number of workers.")] = 1,
    interpolation: Annotated[str, typer.Option(help="Interpolation of gpubeton.")] = "area",
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Measure loading photos without entry points, and with them."""
    console = Console()
    machine = describe_machine()
    machine["cores"] = cores
    corpus = make_corpus(data, images, console)
    work = Work(corpus.jpg, corpus.folder, images, passes, cores, interpolation=interpolation)
    own = Contender("gpubeton", "gpubeton_loader", "gpubeton")
    works = {WITHOUT: (own, work)}
    with console.status("Writing files"):
        works["with entry points"] = (own, replace(work, beton=str(indexed(corpus, data))))
    works[_FFCV.name] = (_FFCV, work)
    with ExitStack() as stack:
        running: dict[str, ContenderProcess] = {}
        for name, (contender, its_work) in works.items():
            with console.status(f"{name}: starting and warming up"):
                try:
                    contender.check_installed()
                    process = ContenderProcess(name, contender.python, contender.module, its_work)
                    running[name] = stack.enter_context(process)
                    running[name].lap()
                except ContenderError as error:
                    running.pop(name, None)
                    console.print(f"{name}: left out: {error}")
        with console.status(f"{rounds} rounds"):
            laps = race({name: process.lap for name, process in running.items()}, rounds)
    for name, one in laps.items():
        console.print(f"{name}: {median_rate(one):,.0f} images/s, {median_cpu(one):.3f} CPU ms an image")
    files = {name: _bytes(Path(works[name][1].beton)) for name in laps}
    measured: dict[str, Any] = {
        "machine": machine,
        "work": {**asdict(work), "beton": "", "folder": ""},
        "corpus": corpus.facts["jpg"],
        "file_bytes": files,
        "laps": {name: [asdict(lap) for lap in laps_of_kind] for name, laps_of_kind in laps.items()},
    }
    save_and_draw("entry_points", measured, results, console)


def indexed(corpus: Corpus, data: Path) -> Path:
    """Copy the file and find its entry points."""
    path = data / f"indexed-{Path(corpus.jpg).name}"
    if not path.exists():
        shutil.copyfile(corpus.jpg, path)
    index_images(path)
    return path


def _bytes(path: Path) -> int:
    """Count the bytes of the images and of their entry points; pages of a file hide small differences."""
    index = Path(f"{path}.index")
    images = int(open_dataset(path).regions("image").size.sum())
    return images + (index.stat().st_size if index.exists() else 0)


if __name__ == "__main__":
    typer.run(main)
