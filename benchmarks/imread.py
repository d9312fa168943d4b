"""Time decoders alone, by the protocol of imread_benchmark (arXiv 2605.08731): files in memory, one thread, RGB arrays.

The decoders are those that this environment has; `benchmarks/imread_plugin` is for the original. Unlike there, their
runs alternate, so that a disturbance affects all of them.

    python -m benchmarks.imread
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.corpus import IMAGENET_QUALITY, make_corpus
from benchmarks.harness.photos import list_photos
from benchmarks.harness.timing import race, time_lap
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton import decode_image

__all__ = ["DECODERS"]

_Decode = Callable[[bytes], Any]


def _pillow() -> _Decode:
    from PIL import Image

    return lambda content: np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def _simplejpeg() -> _Decode:
    import simplejpeg

    return partial(simplejpeg.decode_jpeg, colorspace="RGB")


def _opencv() -> _Decode:
    import cv2

    cv2.setNumThreads(1)
    return lambda content: cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR_RGB)


def _torchvision() -> _Decode:
    import torch
    from torchvision.io import decode_jpeg

    torch.set_num_threads(1)
    return lambda content: decode_jpeg(torch.frombuffer(bytearray(content), dtype=torch.uint8)).permute(1, 2, 0).numpy()


#: Package, module and function of each decoder.
DECODERS: dict[str, tuple[str, str, Callable[[], _Decode]]] = {
    "gpubeton": ("gpubeton", "gpubeton", lambda: decode_image),
    "Pillow": ("pillow", "PIL", _pillow),
    "simplejpeg": ("simplejpeg", "simplejpeg", _simplejpeg),
    "OpenCV": ("opencv-python-headless", "cv2", _opencv),
    "torchvision": ("torchvision", "torchvision", _torchvision),
}


def main(
    images: Annotated[int, typer.Option(min=1, help="Number of photos.")] = 2000,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each decoder.")] = 5,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Time each decoder that is installed with photos of ImageNet's bytes."""
    console = Console()
    corpus = make_corpus(data, images, console, IMAGENET_QUALITY)
    files = [path.read_bytes() for path, _ in list_photos(Path(corpus.folder))]
    installed = {name: entry for name, entry in DECODERS.items() if find_spec(entry[1])}
    versions = {name: version(package) for name, (package, _, _) in installed.items()}
    decoders = {name: make() for name, (_, _, make) in installed.items()}
    for decode in decoders.values():
        decode(files[0])

    def run(decode: _Decode) -> int:
        for content in files:
            decode(content)
        return images

    timed = {name: partial(time_lap, partial(run, decode)) for name, decode in decoders.items()}
    with console.status("") as status:
        laps = race(timed, runs, lambda name: status.update(f"{runs} runs of each decoder: {name}"))
    measured = {
        "corpus": corpus.facts["jpg"],
        "runs": runs,
        "decoders": {name: [asdict(lap) for lap in its_laps] for name, its_laps in laps.items()},
        "versions": versions,
    }
    save_and_draw("imread", measured, results, console)


if __name__ == "__main__":
    typer.run(main)
