"""Measure several views of each image from one decode on the CPU, beside one decode per view.

A loader with several outputs of one field alternates with loaders of one output each. The processor time of consecutive
laps is compared, because other programs may disturb the machine.

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
from benchmarks.results import RESULTS
from benchmarks.table import save_and_draw
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

_View = tuple[int, tuple[float, float]]  # side in pixels, and the share of the image that its crop takes

_LARGE: _View = (224, (0.08, 1.0))
_GLOBAL: _View = (224, (0.25, 1.0))
_LOCAL: _View = (96, (0.05, 0.25))

_SETS: dict[str, list[_View]] = {
    "one view of 224": [_LARGE],
    "2 views of 224 (SimCLR)": [_LARGE] * 2,
    "2 views of 224 and 6 of 96 (DINO)": [_GLOBAL] * 2 + [_LOCAL] * 6,
}


def main(
    images: Annotated[int, typer.Option(min=8, help="Number of images.")] = 256,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")] = 7,
    data: Annotated[Path | None, typer.Option(help="Folder for the images. Default: a temporary one.")] = None,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Measure several views of each image from one decode on the CPU, beside one decode per view."""
    console = Console()
    with tempfile.TemporaryDirectory() as place:
        corpus = make_corpus(data or Path(place), images, console)
        runs = []
        for storage, path in (("JPEG", corpus.jpg), ("raw", corpus.raw)):
            for name, views in _SETS.items():
                with console.status(f"{storage}-stored, {name}"):
                    run = {"name": name, "storage": storage, **_race(Path(path), views, rounds)}
                console.print(
                    f"{storage}-stored, {name}: {run['together_us']:.0f} of {run['apart_us']:.0f} µs for an image, "
                    f"× {run['ratio']:.2f} ({run['least_ratio']:.2f} to {run['largest_ratio']:.2f})"
                )
                runs.append(run)
        save_and_draw(
            "views", {"images": images, "rounds": rounds, "facts": corpus.facts, "runs": runs}, results, console
        )


def _race(path: Path, views: Sequence[_View], rounds: int) -> dict[str, Any]:
    """Run both ways in alternation; processor time per image in microseconds, and the ratios of each round."""
    together, apart = [_loader(path, views)], [_loader(path, [view]) for view in views]
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


def _loader(path: Path, views: Sequence[_View]) -> Loader:
    pipelines: dict[str, Any] = {"image": None, "label": None}
    for number, (side, scale) in enumerate(views):
        decoder = RandomResizedCropRGBImageDecoder((side, side), scale)
        finish = [NormalizeImage(MEAN, STD, "float16"), ToTensor(), ToTorchImage()]
        transforms = [decoder, RandomHorizontalFlip(), *finish]
        pipelines[f"view {number}"] = PipelineSpec("image", transforms=transforms)
    return Loader(path, 64, num_workers=1, seed=0, drop_last=False, pipelines=pipelines)


def _lap(loaders: Sequence[Loader]) -> float:
    """Return the processor time of an epoch of each, in microseconds per image."""
    torch.set_num_threads(1)
    samples, begin = 0, time.process_time()
    for loader in loaders:
        samples = sum(len(batch[0]) for batch in loader)
    return (time.process_time() - begin) / samples * 1e6


if __name__ == "__main__":
    typer.run(main)
