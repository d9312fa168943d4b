"""Make the images and the compiled code that all steps need, before any is timed.

python -m benchmarks.gpu.warm_up --images 2000
"""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.gpu.photos import IMAGENET_LIKE, QUALITIES, make_photos, make_raw
from benchmarks.gpu.pipelines import image_pipelines
from benchmarks.gpu.target import open_target
from benchmarks.results import DATA
from gpubeton.loader import Loader

__all__ = ["compile_everything"]


def main(
    images: Annotated[int, typer.Option(help="Number of images.")] = 2000,
    side: Annotated[int, typer.Option(help="Height and width of the results.")] = 224,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
) -> None:
    """Make the images and the compiled code that all steps need, before any is timed."""
    few = make_photos(data / "few", 8, 90)
    on_cpu = threading.Thread(target=compile_everything, args=(few.beton, "cpu", side))
    on_cpu.start()
    with open_target():
        compile_everything(few.beton, "cuda:0", side)
    make_raw(data, make_photos(data, images, QUALITIES[IMAGENET_LIKE]))
    on_cpu.join()


def compile_everything(beton: str, device: str, side: int) -> None:
    """Load a batch with every pipeline."""
    for pipeline in image_pipelines(side).values():
        loader = Loader(beton, 8, num_workers=1, seed=0, pipelines={"image": pipeline}, device=device)
        with closing(loader):
            for _ in loader:
                pass


if __name__ == "__main__":
    typer.run(main)
