"""Measure what comparing values with their checksums costs: first epochs of JPEG-stored photos with it and without.

Both take turns, an epoch each, in one process. The time of the file's last change is set again before each epoch, so
that nothing counts as compared before. A later epoch compares nothing.

    python -m benchmarks.checksums
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.contenders.work import MEAN, STD
from benchmarks.corpus import make_corpus
from benchmarks.entry_points import indexed
from benchmarks.results import DATA
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
from gpubeton.writer import DatasetWriter


def main(
    images: Annotated[int, typer.Option(min=128, help="Number of images.")] = 1024,
    rounds: Annotated[int, typer.Option(min=1, help="Epochs of each.")] = 15,
    cores: Annotated[int, typer.Option(min=1, help="Number of workers.")] = 1,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
) -> None:
    """Measure the processor time of first epochs with and without checksums, with entry points and without."""
    console = Console()
    corpus = make_corpus(data, images, console)
    plain = data / f"noted-{Path(corpus.jpg).name}"
    if not plain.exists():
        fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
        DatasetWriter(plain, fields, progress=False, index=False).from_image_folder(corpus.folder)
    for title, path in (("with entry points", indexed(corpus, data)), ("without", plain)):
        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(rounds + 1):
            for compares in (True, False) if number % 2 else (False, True):
                os.utime(path)
                seconds, compared = _epoch(path, cores, compares)
                assert bool(compared) == compares
                if number:  # the first compiles
                    times[compares].append(1e3 * seconds / images)
        without, with_it = (statistics.median(times[compares]) for compares in (False, True))
        ratio = statistics.median(seconds / other for seconds, other in zip(times[True], times[False], strict=True))
        console.print(f"{title}: {without:.4f} CPU ms an image, {with_it:.4f} with checksums; median ratio {ratio:.3f}")


def _epoch(path: Path, cores: int, compares: bool) -> tuple[float, int]:
    """Load the first epoch of a new loader; return its processor time, and the bytes that were compared."""
    image = [
        RandomResizedCropRGBImageDecoder((224, 224)),
        RandomHorizontalFlip(),
        ToTensor(),
        ToTorchImage(),
        NormalizeImage(MEAN, STD, np.float16),
    ]
    loading: dict[str, Any] = {"num_workers": cores, "order": "random", "seed": 0, "device": "cpu"}
    with Loader(path, 128, pipelines={"image": image}, checksums=compares, **loading) as loader:
        start = time.process_time()
        for _ in loader:
            pass
        return time.process_time() - start, loader.stats().verified_bytes


if __name__ == "__main__":
    typer.run(main)
