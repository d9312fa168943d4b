"""Compare the speed of two commits: each in a process that stays alive, epoch by epoch in alternation.

Both commits are checked out into a temporary folder and read the same files. What counts is the processor time of the
whole process with one worker, which other programs disturb little, and its ratio round by round.

    python -m benchmarks.commits 9ad23db                 # that commit, and this one
    python -m benchmarks.commits 9ad23db HEAD --rounds 40
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.corpus import make_corpus
from benchmarks.results import RESULTS, save

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).resolve().parent.parent
_DATA = _ROOT / "benchmarks" / "data"

# What a commit runs: it may import only what every commit of the library has.
_CHILD = """
import sys, time
import numpy as np
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import ColorJitter, NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

def loader(beton, *own):
    steps = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip(), *own]
    steps += [NormalizeImage(np.array([124.0, 116, 104]), np.array([58.0, 57, 57]), np.float16), ToTensor()]
    pipelines = {"image": [*steps, ToTorchImage()], "label": None}
    return Loader(beton, 128, num_workers=1, seed=0, drop_last=False, device="cpu", pipelines=pipelines)

jpg, raw = sys.argv[1:]
loaders = {"jpg": loader(jpg), "raw": loader(raw), "jpg, jitter": loader(jpg, ColorJitter(0.4, 0.4, 0.4))}
for line in sys.stdin:
    name, epoch = line.strip().rsplit(" ", 1)
    loaders[name].next_epoch = int(epoch)
    start = time.process_time()
    images = sum(len(batch[0]) for batch in loaders[name])
    print((time.process_time() - start) / images * 1000, flush=True)
"""
WORKLOADS = ("jpg", "raw", "jpg, jitter")


class _Contender:
    """A process that runs epochs of one commit's loaders."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        self._requests: IO[str] = process.stdin
        self._answers: IO[str] = process.stdout
        self._process = process

    def run(self, workload: str, epoch: int) -> float:
        """Run an epoch; return its processor milliseconds an image."""
        print(workload, epoch, file=self._requests, flush=True)
        answer = self._answers.readline()
        if not answer:
            raise RuntimeError(f"the process of a commit ended with status {self._process.wait()}; its error is above")
        return float(answer)


def main(
    before: Annotated[str, typer.Argument(help="A commit.")],
    after: Annotated[str, typer.Argument(help="The commit to compare with it.")] = "HEAD",
    rounds: Annotated[int, typer.Option(min=1, help="Timed epochs of each commit and workload.")] = 25,
    images: Annotated[int, typer.Option(min=1, help="Number of images.")] = 512,
    data: Annotated[Path, typer.Option(help="Where the images go.")] = _DATA,
    results: Annotated[Path, typer.Option(help="Where the result goes.")] = RESULTS,
) -> None:
    """Compare the processor time of two commits."""
    console = Console()
    corpus = make_corpus(data, images, console)
    names = [_short_name(before), _short_name(after)]
    times: dict[str, list[list[float]]] = {workload: [[], []] for workload in WORKLOADS}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        pair = [
            stack.enter_context(_contender(commit, Path(folder) / str(place), corpus.jpg, corpus.raw))
            for place, commit in enumerate(names)
        ]
        with console.status("Compiling and warming up") as status:
            for number in range(-1, rounds):
                for workload, measured in times.items():
                    # The first of a pair finds a cold cache: it changes from round to round.
                    for place in (0, 1) if number % 2 else (1, 0):
                        milliseconds = pair[place].run(workload, number + 1)
                        if number >= 0:
                            measured[place].append(milliseconds)
                status.update(f"Round {number + 1} of {rounds}")
    runs = {workload: compared(*pair_of_times) for workload, pair_of_times in times.items()}
    console.print(_table(names, runs))
    measured_facts = {"commits": names, "rounds": rounds, "images": images, "corpus": corpus.facts["jpg"], "runs": runs}
    console.print(f"Written: {save('commits', measured_facts, results)}", soft_wrap=True)


def compared(before: list[float], after: list[float]) -> dict[str, Any]:
    """Compare the times of two commits.

    Parameters
    ----------
    before, after : list of float
        Processor milliseconds an image of each round.

    Returns
    -------
    dict
        The times, and as ``ratio`` how many times as much the second takes: ``median`` of the rounds, and ``least``, of
        the two shortest times.

    Examples
    --------
    >>> compared([1.0, 2.0, 4.0], [1.1, 2.0, 4.0])["ratio"]
    {'median': 1.0, 'least': 1.1}
    """
    ratios = [mine / other for mine, other in zip(after, before, strict=True)]
    return {
        "cpu_ms_an_image": {"before": before, "after": after},
        "ratio": {"median": round(median(ratios), 4), "least": round(min(after) / min(before), 4)},
    }


def _short_name(commit: str) -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", commit], cwd=_ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


@contextmanager
def _contender(commit: str, folder: Path, jpg: str, raw: str) -> Iterator[_Contender]:
    """Check a commit out and start its process."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=_ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    # Each compiles for itself, and finds nothing of the other's.
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "numba")}
    command = [sys.executable, "-c", _CHILD, jpg, raw]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield _Contender(process)
        finally:
            process.kill()


def _table(names: list[str], runs: dict[str, dict[str, Any]]) -> Table:
    table = Table("workload", *(f"{name}, CPU ms an image" for name in names), "ratio, median", "least")
    for workload, run in runs.items():
        medians = [median(run["cpu_ms_an_image"][which]) for which in ("before", "after")]
        ratio = run["ratio"]
        table.add_row(workload, *(f"{value:.3f}" for value in medians), *(f"{ratio[how]:.4f}" for how in ratio))
    return table


if __name__ == "__main__":
    typer.run(main)
