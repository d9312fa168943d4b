"""Compare the speed of two commits, epoch by epoch in alternation.

Both commits are checked out into a temporary folder, run in one process each, and read the same files. The result is
the processor time of the whole process with one worker, which other programs disturb little, and its ratio of each
round.

    python -m benchmarks.commits 9ad23db                 # that commit, and this one
    python -m benchmarks.commits 9ad23db HEAD --rounds 40
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.contenders.process import LineProcess
from benchmarks.corpus import Corpus, make_corpus
from benchmarks.harness.timing import compare_times, race
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw

_ROOT = Path(__file__).resolve().parent.parent

# The process of a commit; it may import only names that all compared commits have.
CHILD = """
import sys, time
import numpy as np
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import ColorJitter, NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

crop = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()]

def loader(beton, *first):
    steps = [*first]
    steps += [NormalizeImage(np.array([124.0, 116, 104]), np.array([58.0, 57, 57]), np.float16), ToTensor()]
    pipelines = {"image": [*steps, ToTorchImage()], "label": None}
    return Loader(beton, 128, num_workers=1, seed=0, drop_last=False, device="cpu", pipelines=pipelines)

jpg, raw = sys.argv[1:]
loaders = {"jpg": loader(jpg, *crop), "raw": loader(raw, *crop)}
loaders["jpg, jitter"] = loader(jpg, *crop, ColorJitter(0.4, 0.4, 0.4))
loaders["jpg, evaluation"] = loader(jpg, CenterCropRGBImageDecoder((224, 224)))
for line in sys.stdin:
    name, epoch = line.strip().rsplit(" ", 1)
    loaders[name].next_epoch = int(epoch)
    start = time.process_time()
    images = sum(len(batch[0]) for batch in loaders[name])
    print((time.process_time() - start) / images * 1000, flush=True)
"""
WORKLOADS = ("jpg", "raw", "jpg, jitter", "jpg, evaluation")


def main(
    before: Annotated[str, typer.Argument(help="A commit.")],
    after: Annotated[str, typer.Argument(help="The commit to compare with it.")] = "HEAD",
    rounds: Annotated[int, typer.Option(min=1, help="Timed epochs of each commit and workload.")] = 25,
    images: Annotated[int, typer.Option(min=1, help="Number of images.")] = 512,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="File or folder for the result.")] = RESULTS,
    child: Annotated[str, typer.Option(hidden=True, help="The Python code of the process of a commit.")] = CHILD,
) -> None:
    """Compare the processor time of two commits."""
    console = Console()
    corpus = make_corpus(data, images, console)
    names = [_short_name(before), _short_name(after)]
    runs: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack, console.status("") as status:
        pair = {
            which: stack.enter_context(_start(commit, Path(folder) / which, child, corpus))
            for which, commit in zip(("before", "after"), names, strict=True)
        }
        for workload in WORKLOADS:
            epochs = {which: partial(_time_epoch, process, workload, count()) for which, process in pair.items()}
            status.update(f"{workload}: compiling and warming up")
            race(epochs, 1)
            status.update(f"{workload}: {rounds} rounds")
            times = race(epochs, rounds)
            runs[workload] = {"cpu_ms_an_image": times, "ratio": compare_times(times["after"], times["before"])}
    console.print(_table(names, runs))
    measured = {"commits": names, "rounds": rounds, "images": images, "corpus": corpus.facts["jpg"], "runs": runs}
    save_and_draw("commits", measured, results, console)


def _short_name(commit: str) -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", commit], cwd=_ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def _start(commit: str, folder: Path, child: str, corpus: Corpus) -> LineProcess:
    """Check a commit out and start its process."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=_ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    # Each commit compiles its own code and must not find that of the other.
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "numba")}
    return LineProcess(commit, [sys.executable, "-c", child, corpus.jpg, corpus.raw], folder, environment)


def _time_epoch(process: LineProcess, workload: str, epochs: Iterator[int]) -> float:
    """Run the next epoch; return its processor milliseconds per image."""
    return float(process.ask(f"{workload} {next(epochs)}"))


def _table(names: list[str], runs: dict[str, dict[str, Any]]) -> Table:
    table = Table("workload", *(f"{name}, CPU ms per image" for name in names), "ratio, median", "least")
    for workload, run in runs.items():
        medians = [median(run["cpu_ms_an_image"][which]) for which in ("before", "after")]
        ratio = run["ratio"]
        table.add_row(workload, *(f"{value:.3f}" for value in medians), *(f"{ratio[how]:.4f}" for how in ratio))
    return table


if __name__ == "__main__":
    typer.run(main)
