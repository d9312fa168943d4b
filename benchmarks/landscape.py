"""Time loaders with the dataset RANDOM of the data-loader landscape (arXiv 2209.13705): images of noise.

As in smartnets/dataloader-benchmarks: uniform noise of 250 x 250 in 20 classes, saved by Pillow with its defaults;
flip, normalize; batches of 16, 64 and 128. All loaders read the same JPEG files, FFCV and gpubeton from one .beton
file.

    python -m benchmarks.landscape --images 45000      # as many as there
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image
from rich.console import Console

from benchmarks.contenders.process import Contender
from benchmarks.contenders.work import Work
from benchmarks.corpus import write_tars
from benchmarks.read_in_place import race_works
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton.fields import IntField, RGBImageField
from gpubeton.writer import DatasetWriter

__all__ = ["LOADERS", "write_random"]

_SIDE, _CLASSES = 250, 20
_TARS = Contender("WebDataset", "webdataset_tars", "webdataset", "GPUBETON_WEBDATASET_PYTHON")
LOADERS = (
    Contender("gpubeton", "gpubeton_loader", "gpubeton"),
    Contender("FFCV", "ffcv_loader", "ffcv", "GPUBETON_FFCV_PYTHON"),
    Contender("PyTorch DataLoader", "torch_dataloader", "torch"),
    _TARS,
)


def main(
    images: Annotated[int, typer.Option(min=128, help="Number of images.")] = 5000,
    rounds: Annotated[int, typer.Option(min=1, help="Epochs of each loader.")] = 3,
    batches: Annotated[str, typer.Option(help="Sizes of batches, with commas.")] = "16,64,128",
    workers: Annotated[str, typer.Option(help="Numbers of workers, with commas.")] = "1,2",
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time loaders with RANDOM."""
    console = Console()
    folder, beton, tars = (data / f"random-{images}{suffix}" for suffix in ("", ".beton", "-tars"))
    with console.status(f"Making {images} images"):
        if not beton.exists():
            write_random(folder, images)
            tars.mkdir(exist_ok=True)
            write_tars(folder, tars)
            fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
            DatasetWriter(beton, fields, index=False).from_image_folder(folder)
    runs: list[dict[str, Any]] = []
    for cores in map(int, workers.split(",")):
        for size in map(int, batches.split(",")):
            console.print(f"{cores} workers, batches of {size}")
            work = Work(str(beton), str(folder), images, 1, cores, size, _SIDE, crop="whole")
            works = {
                loader.name: (loader, replace(work, beton=str(tars)) if loader is _TARS else work) for loader in LOADERS
            }
            runs.append({"workers": cores, "batch_size": size, "laps": race_works(works, rounds, console)})
    save_and_draw("random", {"images": images, "rounds": rounds, "runs": runs}, results, console)


def write_random(folder: Path, images: int) -> None:
    """Write the images, a folder for each class; the same ones each time."""
    for number in range(images):
        path = folder / f"{number % _CLASSES:02}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(256, size=(_SIDE, _SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)


if __name__ == "__main__":
    typer.run(main)
