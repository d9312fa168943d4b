"""Measure the size of files, and the speed of writing and reading them, for every write mode and resolution.

Writes benchmarks/results/DATE-user_terms-....json and draws the tables of
docs/figures.md from it.

    python -m benchmarks.user_terms --rounds 5

Writing is timed in one process. Reading is timed in one process for each number of cores, limited to these cores:
random resized crop to 224, flip, normalize to float16 channels_last, warm cache. All alternate, lap by lap.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.contenders.work import Work
from benchmarks.harness.photos import PhotoSet, write_photos
from benchmarks.harness.timing import Lap, race, time_lap
from benchmarks.machine import describe_machine
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton._machine import count_cores
from gpubeton.fields import Field, IntField, RGBImageField
from gpubeton.format.dataset import open_dataset
from gpubeton.format.layout import ImageMode
from gpubeton.writer import DatasetWriter

_QUALITY = 90
#: Bytes of raw pixels above which "smart" stores JPEG: of 400 x 300 pixels.
_SMART_THRESHOLD = 3 * 400 * 300


@dataclass(frozen=True)
class Setting:
    """How a file is written."""

    mode: str
    max_resolution: int | None

    @property
    def name(self) -> str:
        """Name in files and messages."""
        return f"{self.mode}-{self.max_resolution or 'full'}"

    def field(self) -> RGBImageField:
        """Make the field."""
        threshold = _SMART_THRESHOLD if self.mode == "smart" else None
        return RGBImageField(self.mode, self.max_resolution, threshold, jpeg_quality=_QUALITY)


def main(
    images: Annotated[int, typer.Option(min=8, help="Number of images.")] = 1000,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the images in a lap of reading.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Timed laps of each.")] = 5,
    most_cores: Annotated[int, typer.Option(min=0, help="Maximum number of cores; 0: all.")] = 0,
    modes: Annotated[str, typer.Option(help="Write modes.")] = "jpg,raw,smart,proportion",
    resolutions: Annotated[str, typer.Option(help="Values of max_resolution; 0: as they are.")] = "0,500,400,256",
    data: Annotated[Path, typer.Option(help="Folder for images and files.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Measure size, writing and reading of files of every write mode and resolution."""
    console = Console()
    machine = describe_machine()
    machine["cores"] = most_cores or count_cores()
    photos = data / f"photos-{images}"
    with console.status(f"Making {images} photos in {photos}"):
        write_photos(photos, PhotoSet(images, (_QUALITY, _QUALITY)))
    settings = [Setting(mode, int(side) or None) for mode, side in product(modes.split(","), resolutions.split(","))]
    paths = {setting: data / "user_terms" / f"{setting.name}.beton" for setting in settings}
    (data / "user_terms").mkdir(exist_ok=True)
    writing = time_writing(photos, paths, rounds, console)
    reading = time_reading(paths, images, passes, list(core_counts(machine["cores"])), rounds, console)
    measured = [
        {
            **asdict(setting),
            **describe_file(paths[setting]),
            "writing": [asdict(lap) for lap in writing[setting.name]],
            "reading": {cores: [asdict(lap) for lap in laps[setting.name]] for cores, laps in reading.items()},
        }
        for setting in settings
    ]
    work = {"images": images, "passes": passes, "quality": _QUALITY, "smart_threshold": _SMART_THRESHOLD}
    save_and_draw("user_terms", {"machine": machine, "work": work, "settings": measured}, results, console)


def core_counts(most: int) -> Iterator[int]:
    """Yield 1, 2, 4 and so on, and `most` last."""
    count = 1
    while count < most:
        yield count
        count *= 2
    yield most


def time_writing(photos: Path, paths: dict[Setting, Path], rounds: int, console: Console) -> dict[str, list[Lap]]:
    """Time writing each file with one process, in alternation; returns laps by the name of the setting."""
    columns: dict[Setting, dict[str, Field]] = {
        setting: {"image": setting.field(), "label": IntField()} for setting in paths
    }

    def write(setting: Setting) -> int:
        DatasetWriter(paths[setting], columns[setting], num_workers=1, progress=False).from_image_folder(photos)
        return open_dataset(paths[setting]).num_samples

    laps = {setting.name: partial(time_lap, partial(write, setting)) for setting in paths}
    with console.status("") as status:
        return race(laps, rounds, lambda name: status.update(f"writing {name}"))


def time_reading(
    paths: dict[Setting, Path], images: int, passes: int, cores: list[int], rounds: int, console: Console
) -> dict[str, dict[str, list[Lap]]]:
    """Time reading each file with each number of cores, in alternation; laps by number of cores and name."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack, console.status("") as status:
        laps = {}
        for count in cores:
            process = stack.enter_context(ProcessPoolExecutor(1, context, confine, (allowed[:count],)))
            for setting, path in paths.items():
                work = Work(str(path), "", images, passes, count, batch_size=min(128, images))
                laps[f"{count} {setting.name}"] = partial(_lap_elsewhere, process, work)
        race(laps, 1, lambda name: status.update(f"warming up: {name}"))
        timed = race(laps, rounds, lambda name: status.update(f"reading: {name}"))
    return {str(count): {setting.name: timed[f"{count} {setting.name}"] for setting in paths} for count in cores}


def confine(cores: list[int]) -> None:
    """Limit this process to these cores, if the system can do that."""
    if cores:
        os.sched_setaffinity(0, cores)


def read_lap(work: Work) -> Lap:
    """Time passes over a file, from the first batch on, without the start of the loader."""
    from benchmarks.contenders.gpubeton_loader import make_loader

    loader = make_loader(work)
    try:
        warm_up = iter(loader)
        next(warm_up)
        warm_up.close()
        return time_lap(lambda: sum(len(labels) for _, labels in loader))
    finally:
        loader.close()


def describe_file(path: Path) -> dict[str, Any]:
    """Describe a file and its images; sizes in bytes and pixels."""
    index = open_dataset(path)
    column = index.column("image")
    return {
        "file_bytes": index.file_size,
        "image_bytes": int(index.regions("image").size.sum()),
        "images": index.num_samples,
        "share_of_jpeg": float(np.mean(column["mode"] == ImageMode.JPG)),
        "median_width": int(np.median(column["width"])),
        "median_height": int(np.median(column["height"])),
    }


def _lap_elsewhere(process: ProcessPoolExecutor, work: Work) -> Lap:
    return process.submit(read_lap, work).result()


if __name__ == "__main__":
    typer.run(main)
