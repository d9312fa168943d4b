"""Measure reading photos in place: from tar files, a zip file and a folder, beside the converted file.

The loaders take turns, lap by lap. WebDataset and wids read the same tar files, LitData's raw
dataset the folder (GPUBETON_WEBDATASET_PYTHON). Then photos of ImageNet's bytes are read over HTTP, from the converted
file and from tar files, or tar files of many small samples are indexed.

    python -m benchmarks.read_in_place
    python -m benchmarks.read_in_place --rounds 0 --http-rounds 11 --images 6144
    python -m benchmarks.read_in_place --rounds 0 --samples 1000000
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
import time
import zipfile
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image
from rich.console import Console

from benchmarks.contenders.gpubeton_remote import RemoteWork
from benchmarks.contenders.process import Contender, ContenderError, ContenderProcess
from benchmarks.contenders.work import Work
from benchmarks.corpus import IMAGENET_QUALITY, Corpus, add_file, make_corpus, tars_of, write_tars
from benchmarks.entry_points import indexed
from benchmarks.harness.photos import list_photos
from benchmarks.harness.timing import median_cpu, median_rate, race
from benchmarks.harness.web_server import serving
from benchmarks.remote import run_race
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton.dataset import index_source, open_source
from gpubeton.format import open_dataset

_OURS = Contender("gpubeton", "gpubeton_loader", "gpubeton")
_WEBDATASET = Contender("WebDataset", "webdataset_tars", "webdataset", "GPUBETON_WEBDATASET_PYTHON")
_LITDATA = Contender("LitData, raw", "litdata_raw", "litdata", "GPUBETON_WEBDATASET_PYTHON")
_SAMPLES_OF_TAR = 10_000  # small ones, to be indexed
_PHOTOS_OF_LARGE_TAR = 1024  # 115 MB: in a store, each page of a small file is a request of less than 8 MiB


def main(
    images: Annotated[int, typer.Option(min=128, help="Number of photos, a multiple of 128.")] = 1024,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the photos in a lap.")] = 2,
    rounds: Annotated[int, typer.Option(min=0, help="Timed laps of each contender; 0 for none.")] = 11,
    http_rounds: Annotated[int, typer.Option(min=0, help="Timed epochs of each kind over HTTP; 0 for none.")] = 0,
    cores: Annotated[int, typer.Option(min=1, help="Number of workers.")] = 1,
    samples: Annotated[int, typer.Option(min=0, help="Small samples that are indexed; 0 for none.")] = 0,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Measure reading photos in place."""
    console = Console()
    if rounds:
        corpus = make_corpus(data, images, console)
        with console.status("Writing tar and zip files"):
            works = _works(
                corpus, data / f"in-place-{images}", Work(corpus.jpg, corpus.folder, images, passes, cores), data
            )
        laps = race_works(works, rounds, console)
        facts = {"images": images, "cores": cores, "rounds": rounds, "corpus": corpus.facts["jpg"]}
        save_and_draw("read_in_place", {**facts, "laps": laps}, results, console)
    if http_rounds:
        save_and_draw(
            "read_in_place_http", _race_over_http(data, images, cores, http_rounds, console), results, console
        )
    if samples:
        save_and_draw("indexing", _measure_indexing(samples, console), results, console)


def _works(corpus: Corpus, folder: Path, work: Work, data: Path) -> dict[str, tuple[Contender, Work]]:
    """Write the containers; list what each contender reads."""
    tars = folder / "tars"
    if not tars.exists():
        tars.mkdir(parents=True)
        write_tars(Path(corpus.folder), tars)
        _write_zip(Path(corpus.folder), folder / "photos.zip")
    index_source(open_source(tars), tars / "train.index", overwrite=True)
    ours = {
        ".beton": corpus.jpg,
        ".beton with entry points": str(indexed(corpus, data)),
        "tar files": str(tars),
        "tar files, NAME.index with entry points": str(tars / "train.index"),
        "zip file": str(folder / "photos.zip"),
        "folder": corpus.folder,
    }
    works = {name: (_OURS, replace(work, beton=path)) for name, path in ours.items()}
    works["WebDataset"] = (_WEBDATASET, replace(work, beton=str(tars)))
    works["LitData, raw files"] = (_LITDATA, work)
    works["wids"] = (_WEBDATASET, replace(work, beton=str(tars), recipe="wids"))
    return works


def _race_over_http(data: Path, images: int, cores: int, rounds: int, console: Console) -> dict[str, Any]:
    """Let a loader of the converted file and one of tar files take turns, both in window order, with entry points."""
    corpus = make_corpus(data, images, console, IMAGENET_QUALITY)
    beton, tars = indexed(corpus, data), Path(tars_of(corpus, _PHOTOS_OF_LARGE_TAR))
    index_source(open_source(tars), tars / "train.index", overwrite=True)
    work = RemoteWork("", cores, streams=4, width=4)
    with tempfile.TemporaryDirectory() as place, serving(data.resolve(), Path(place) / "nginx") as server:
        paths = {".beton": beton, "tar files, NAME.index": tars / "train.index"}
        works = {
            name: replace(work, beton=f"{server.http}/{path.relative_to(data).as_posix()}")
            for name, path in paths.items()
        }
        measured = run_race(console, server, works, rounds)
    return {"images": images, "corpus": corpus.facts["jpg"], **measured}


def race_works(works: dict[str, tuple[Contender, Work]], rounds: int, console: Console) -> dict[str, Any]:
    """Let contenders take turns, each with its own work; return the laps, by name."""
    with ExitStack() as stack:
        running: dict[str, ContenderProcess] = {}
        for name, (contender, work) in works.items():
            with console.status(f"{name}: starting and warming up"):
                try:
                    contender.check_installed()
                    running[name] = stack.enter_context(
                        ContenderProcess(name, contender.python, contender.module, work)
                    )
                    running[name].lap()
                except ContenderError as error:
                    running.pop(name, None)
                    console.print(f"{name}: left out: {error}")
        with console.status(f"{rounds} rounds"):
            laps = race({name: process.lap for name, process in running.items()}, rounds)
    for name, its_laps in laps.items():
        console.print(f"{name}: {median_rate(its_laps):,.0f} images/s, {median_cpu(its_laps):.3f} CPU ms an image")
    return {name: [asdict(lap) for lap in its_laps] for name, its_laps in laps.items()}


def _write_zip(photos: Path, path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for photo, _ in list_photos(photos):
            archive.write(photo, Path(photo).relative_to(photos))


def _measure_indexing(samples: int, console: Console) -> dict[str, Any]:
    """Index tar files of small samples by their headers; open the index."""
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(buffer, "JPEG")
    with tempfile.TemporaryDirectory() as work:
        tars = Path(work) / "tars"
        tars.mkdir()
        first = tars / "000000.tar"
        with tarfile.open(first, "w") as tar:
            for number in range(min(_SAMPLES_OF_TAR, samples)):
                add_file(tar, f"{number:08}.jpg", buffer.getvalue())
                add_file(tar, f"{number:08}.cls", str(number % 1000).encode())
        for number in range(1, samples // _SAMPLES_OF_TAR):
            shutil.copyfile(first, tars / f"{number:06}.tar")
        start, cpu = time.perf_counter(), time.process_time()
        written = index_source(open_source(tars), tars / "train.index", entry_points=False)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
        start = time.perf_counter()
        opened = open_dataset(tars / "train.index").num_samples
        open_seconds = time.perf_counter() - start
    facts = {
        "samples": opened,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "bytes_per_sample": written.bytes / written.samples,
        "open_seconds": open_seconds,
        "cores": os.cpu_count(),
    }
    console.print(facts)
    return facts


if __name__ == "__main__":
    typer.run(main)
