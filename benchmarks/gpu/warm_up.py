"""Make what every step needs, before any is timed: images, and compiled code.

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
from gpubeton.loader import Loader

__all__ = ["compile_everything"]

_DATA = Path(__file__).resolve().parent.parent / "data"


def main(
    images: Annotated[int, typer.Option(help="Number of images.")] = 2000,
    side: Annotated[int, typer.Option(help="Height and width of the results.")] = 224,
    data: Annotated[Path, typer.Option(help="Where the images go.")] = _DATA,
) -> None:
    """Make what every step needs, before any is timed: images, and compiled code."""
    few = make_photos(data / "few", 8, 90)
    on_cpu = threading.Thread(target=compile_everything, args=(few.beton, "cpu", side))
    on_cpu.start()
    with open_target():
        compile_everything(few.beton, "cuda:0", side)
    make_raw(data, make_photos(data, images, QUALITIES[IMAGENET_LIKE]))
    on_cpu.join()


def compile_everything(beton: str, device: str, side: int) -> None:
    """Load a batch with every pipeline.

    Parameters
    ----------
    beton : str
        A file with the fields ``image`` and ``label``.
    device : str
        Where.
    side : int
        Height and width of the results.
    """
    for pipeline in image_pipelines(side).values():
        loader = Loader(beton, 8, num_workers=1, seed=0, pipelines={"image": pipeline}, device=device)
        with closing(loader):
            for _ in loader:
                pass


if __name__ == "__main__":
    typer.run(main)
