"""Time how much fused operations add: crop, flip, jitter, cutout and normalise beside only crop and normalise.

The pipelines alternate, epoch by epoch, over the same crops of the same images, after an epoch to warm up. One worker
makes the images; the processor time of the whole process counts, which other programs disturb little.

    python -m benchmarks.fusing --rounds 15
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.contenders.work import MEAN, STD
from benchmarks.corpus import full_size_raw, make_corpus
from benchmarks.harness.timing import compare_times, race
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import Operation
from gpubeton.transforms import (
    ColorJitter,
    Cutout,
    NormalizeImage,
    RandomHorizontalFlip,
    ToTensor,
    ToTorchImage,
)

_ALONE = "crop, normalise"

#: Operations between crop and normalisation; a cutout of a quarter of the side follows them.
PIPELINES: dict[str, tuple[Operation, ...]] = {
    _ALONE: (),
    "with flip, cutout": (RandomHorizontalFlip(),),
    "with flip, jitter, cutout": (RandomHorizontalFlip(), ColorJitter(0.4, 0.4, 0.4)),
    "with flip, jitter and hue, cutout": (RandomHorizontalFlip(), ColorJitter(0.4, 0.4, 0.4, 0.1)),
}


def main(
    images: Annotated[int, typer.Option(min=1, help="Number of images.")] = 512,
    rounds: Annotated[int, typer.Option(min=1, help="Timed epochs of each pipeline.")] = 15,
    side: Annotated[int, typer.Option(min=1, help="Height and width of the result.")] = 224,
    storage: Annotated[
        str, typer.Option(help="Files to measure: jpg, raw_full, raw (at most 256 pixels a side), or all.")
    ] = "all",
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time how much fused operations add: crop, flip, jitter, cutout and normalise beside only crop and normalise."""
    console = Console()
    corpus = make_corpus(data, images, console)
    files = {
        "jpg": (corpus.jpg, corpus.facts["jpg"]),
        "raw_full": full_size_raw(corpus, data, console),
        "raw": (corpus.raw, corpus.facts["raw"]),
    }
    runs = []
    for name in files if storage == "all" else (storage,):
        beton, facts = files[name]
        seconds = measure(beton, side, rounds, console)
        console.print(_table(name, seconds, images))
        runs.append({"storage": name, "corpus": facts, "cpu_seconds": seconds, "times": ratios(seconds)})
    measured = {"side": side, "workers": 1, "images": images, "rounds": rounds, "runs": runs}
    save_and_draw("fusing", measured, results, console)


def measure(beton: str, side: int, rounds: int, console: Console) -> dict[str, list[float]]:
    """Run the pipelines in alternation; return the processor seconds of each epoch."""
    with ExitStack() as stack, console.status(f"{beton}: compiling and warming up") as status:
        loaders = {
            name: stack.enter_context(closing(_loader(beton, side, pipeline))) for name, pipeline in PIPELINES.items()
        }
        epochs = {name: partial(_time_epoch, loader) for name, loader in loaders.items()}
        race(epochs, 1)
        return race(epochs, rounds, lambda name: status.update(f"{beton}: {name}"))


def ratios(seconds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Compare each pipeline with crop and normalise."""
    return {name: compare_times(laps, seconds[_ALONE]) for name, laps in seconds.items() if name != _ALONE}


def _time_epoch(loader: Loader) -> float:
    loader.next_epoch = 0  # the same crops each time
    start = time.process_time()
    for _ in loader:
        pass
    return time.process_time() - start


def _loader(beton: str, side: int, operations: tuple[Operation, ...]) -> Loader:
    image = [
        RandomResizedCropRGBImageDecoder((side, side)),
        *([*operations, Cutout(side // 4)] if operations else []),
        NormalizeImage(MEAN, STD, np.float16),
        ToTensor(),
        ToTorchImage(),
    ]
    return Loader(
        beton, 128, num_workers=1, seed=0, drop_last=False, device="cpu", pipelines={"image": image, "label": None}
    )


def _table(storage: str, seconds: dict[str, list[float]], images: int) -> Table:
    table = Table("pipeline", "CPU ms an image, median", "least", "× alone, median", "least", title=f"{storage}-stored")
    compared = ratios(seconds)
    for name, laps in seconds.items():
        times = [f"{compared[name][how]:.3f}" for how in ("median", "least")] if name in compared else ["1", "1"]
        table.add_row(name, *(f"{1000 * value / images:.3f}" for value in (median(laps), min(laps))), *times)
    return table


if __name__ == "__main__":
    typer.run(main)
