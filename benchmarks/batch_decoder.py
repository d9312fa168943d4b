"""Measure BatchDecoder beside the Loader, and beside torchvision in the same DataLoader.

The contenders take turns, lap by lap: the Loader of a file without entry points, BatchDecoder called in one process,
BatchDecoder as `collate_fn` of a DataLoader, and torchvision's decode_jpeg with v2 transforms in that DataLoader
(GPUBETON_TORCHVISION_PYTHON).

    python -m benchmarks.batch_decoder
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.contenders.process import Contender
from benchmarks.contenders.work import Work
from benchmarks.corpus import make_corpus
from benchmarks.read_in_place import race_works
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw

_LOADER = Contender("gpubeton", "gpubeton_loader", "gpubeton")
_DECODER = Contender("BatchDecoder", "gpubeton_decoder", "gpubeton")
_TORCHVISION = Contender("torchvision v2", "torchvision_images", "torchvision", "GPUBETON_TORCHVISION_PYTHON")


def main(
    images: Annotated[int, typer.Option(min=128, help="Number of photos.")] = 1024,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the photos in a lap.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Timed laps of each contender.")] = 7,
    cores: Annotated[int, typer.Option(min=1, help="Number of workers.")] = 1,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Measure BatchDecoder."""
    console = Console()
    corpus = make_corpus(data, images, console)
    work = Work(corpus.jpg, corpus.folder, images, passes, cores, recipe="plain")
    works = {
        "Loader": (_LOADER, work),
        "BatchDecoder": (_DECODER, replace(work, own_operation="instead")),
        "BatchDecoder in a DataLoader": (_DECODER, work),
        "torchvision v2 in a DataLoader": (_TORCHVISION, work),
    }
    laps = race_works(works, rounds, console)
    facts = {"images": images, "cores": cores, "rounds": rounds, "corpus": corpus.facts["jpg"]}
    save_and_draw("batch_decoder", {**facts, "laps": laps}, results, console)


if __name__ == "__main__":
    typer.run(main)
