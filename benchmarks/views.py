"""Measure several views of each image from one decode on the CPU, beside as many decodes.

A loader with several outputs of one field takes turns with loaders of one output each, which do the same apart. What is
compared is processor time, in the steps of whoever else uses the machine: pairs of laps that follow each other.

    python -m benchmarks.views
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from benchmarks.contenders.work import MEAN, STD
from benchmarks.corpus import make_corpus
from benchmarks.results import RESULTS, save
from benchmarks.table import draw_tables
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

_Wish = tuple[int, tuple[float, float]]
"""Side of a view in pixels, and what share of the image its crop takes."""

_LARGE: _Wish = (224, (0.08, 1.0))
_GLOBAL: _Wish = (224, (0.25, 1.0))
_LOCAL: _Wish = (96, (0.05, 0.25))

_SETS: dict[str, list[_Wish]] = {
    "one view of 224": [_LARGE],
    "2 views of 224 (SimCLR)": [_LARGE] * 2,
    "2 views of 224 and 6 of 96 (DINO)": [_GLOBAL] * 2 + [_LOCAL] * 6,
}


def main(
    images: Annotated[int, typer.Option(min=8, help="Number of images.")] = 256,
    rounds: Annotated[int, typer.Option(min=1, help="How often the two ways take turns.")] = 7,
    data: Annotated[Path | None, typer.Option(help="Where the images go; by default a temporary folder.")] = None,
    results: Annotated[Path, typer.Option(help="Where the result goes.")] = RESULTS,
) -> None:
    """Measure several views of each image from one decode on the CPU, beside as many decodes."""
    console = Console()
    with tempfile.TemporaryDirectory() as place:
        corpus = make_corpus(data or Path(place), images, console)
        runs = []
        for storage, path in (("JPEG", corpus.jpg), ("raw", corpus.raw)):
            for name, wishes in _SETS.items():
                with console.status(f"{storage}-stored, {name}"):
                    run = {"name": name, "storage": storage, **_race(Path(path), wishes, rounds)}
                console.print(
                    f"{storage}-stored, {name}: {run['together_us']:.0f} of {run['apart_us']:.0f} µs for an image, "
                    f"× {run['ratio']:.2f} ({run['least_ratio']:.2f} to {run['largest_ratio']:.2f})"
                )
                runs.append(run)
        written = save("views", {"images": images, "rounds": rounds, "facts": corpus.facts, "runs": runs}, results)
    console.print(f"Written: {written}", soft_wrap=True)
    if results == RESULTS:
        draw_tables()


def _race(path: Path, wishes: Sequence[_Wish], rounds: int) -> dict[str, Any]:
    """Let both ways take turns; processor time per image in microseconds, and the ratios of each round."""
    together, apart = [_loader(path, wishes)], [_loader(path, [wish]) for wish in wishes]
    spent = [(_lap(together), _lap(apart)) for _ in range(rounds + 1)][1:]
    for loader in (*together, *apart):
        loader.close()
    ratios = [first / second for first, second in spent]
    return {
        "together_us": statistics.median(first for first, _ in spent),
        "apart_us": statistics.median(second for _, second in spent),
        "ratio": statistics.median(ratios),
        "least_ratio": min(ratios),
        "largest_ratio": max(ratios),
    }


def _loader(path: Path, wishes: Sequence[_Wish]) -> Loader:
    pipelines: dict[str, Any] = {"image": None, "label": None}
    for number, (side, scale) in enumerate(wishes):
        decoder = RandomResizedCropRGBImageDecoder((side, side), scale)
        finish = [NormalizeImage(MEAN, STD, "float16"), ToTensor(), ToTorchImage()]
        transforms = [decoder, RandomHorizontalFlip(), *finish]
        pipelines[f"view {number}"] = PipelineSpec("image", transforms=transforms)
    return Loader(path, 64, num_workers=1, seed=0, drop_last=False, pipelines=pipelines)


def _lap(loaders: Sequence[Loader]) -> float:
    """Processor time of an epoch of each, in microseconds per image."""
    torch.set_num_threads(1)
    samples, begin = 0, time.process_time()
    for loader in loaders:
        samples = sum(len(batch[0]) for batch in loader)
    return (time.process_time() - begin) / samples * 1e6


if __name__ == "__main__":
    typer.run(main)
