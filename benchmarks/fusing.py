"""Time what fused operations add: crop, flip, jitter, cutout and normalise beside crop and normalise alone.

The pipelines take turns, epoch by epoch, over the same crops of the same images; the first of each is not counted. One
worker makes the images, and what is counted is the processor's time of the whole process, so that other programs on the
machine disturb little.

    python -m benchmarks.fusing --rounds 15
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.contenders.work import MEAN, STD
from benchmarks.corpus import full_size_raw, make_corpus
from benchmarks.results import RESULTS, save
from benchmarks.table import draw_tables
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

_DATA = Path(__file__).resolve().parent / "data"
_ALONE = "crop, normalise"

#: What stands between the crop and normalising; at last a cutout of a quarter of the side.
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
    data: Annotated[Path, typer.Option(help="Where the images go.")] = _DATA,
    results: Annotated[Path, typer.Option(help="Where the result goes.")] = RESULTS,
) -> None:
    """Time what fused operations add: crop, flip, jitter, cutout and normalise beside crop and normalise alone."""
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
    path = save("fusing", {"side": side, "workers": 1, "images": images, "rounds": rounds, "runs": runs}, results)
    console.print(f"Written: {path}", soft_wrap=True)
    if results == RESULTS:
        draw_tables()


def measure(beton: str, side: int, rounds: int, console: Console) -> dict[str, list[float]]:
    """Run the pipelines by turns.

    Parameters
    ----------
    beton : str
        The file.
    side : int
        Height and width of the result in pixels.
    rounds : int
        Timed epochs of each.
    console : Console
        Where to say what is being done.

    Returns
    -------
    dict of str to list of float
        For each pipeline the processor's seconds of each of its epochs; those at one place are of one round.
    """
    loaders = {name: _loader(beton, side, own) for name, own in PIPELINES.items()}
    seconds: dict[str, list[float]] = {name: [] for name in loaders}
    with console.status(f"{beton}: warming up (compiling takes its time)") as status:
        for number in range(-1, rounds):
            for name, loader in loaders.items():
                loader.next_epoch = 0  # the same crops each time
                start = time.process_time()
                for _ in loader:
                    pass
                if number >= 0:
                    seconds[name].append(time.process_time() - start)
                    status.update(f"{beton}: round {number + 1} of {rounds}: {name}")
    for loader in loaders.values():
        loader.close()
    return seconds


def ratios(seconds: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Compare each pipeline with the crop alone.

    Parameters
    ----------
    seconds : dict of str to list of float
        What `measure` gave.

    Returns
    -------
    dict of str to dict
        For each of the others: ``median``, the median of the ratios of each round, and ``least``, the ratio of the two
        shortest times, which other programs disturbed the least.

    Examples
    --------
    >>> ratios({"crop, normalise": [1.0, 2.0, 1.0], "more": [1.5, 2.2, 1.3]})
    {'more': {'median': 1.3, 'least': 1.3}}
    """
    alone = seconds[_ALONE]
    return {
        name: {
            "median": round(median(mine / theirs for mine, theirs in zip(own, alone, strict=True)), 4),
            "least": round(min(own) / min(alone), 4),
        }
        for name, own in seconds.items()
        if name != _ALONE
    }


def _loader(beton: str, side: int, own: tuple[Operation, ...]) -> Loader:
    image = [
        RandomResizedCropRGBImageDecoder((side, side)),
        *([*own, Cutout(side // 4)] if own else []),
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
    for name, own in seconds.items():
        times = [f"{compared[name][how]:.3f}" for how in ("median", "least")] if name in compared else ["1", "1"]
        table.add_row(name, *(f"{1000 * value / images:.3f}" for value in (median(own), min(own))), *times)
    return table


if __name__ == "__main__":
    typer.run(main)
