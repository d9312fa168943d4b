"""Measure what the host does for each image that a GPU decodes: no GPU is needed.

    python -m benchmarks.gpu.host_cost

A simulated GPU takes the place of CUDA and nvJPEG. Its calls return at once and nothing is decoded, copied or run; so
the processor time that is left, of all threads, is gpubeton's own: reading, planning, copying compressed bytes to
page-locked memory, filling in descriptors, launching, handing over. What CUDA and nvJPEG spend inside their calls comes
on top, and only a GPU shows it.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console

from benchmarks.contenders.work import MEAN, STD
from benchmarks.gpu.photos import QUALITIES, make_photos
from benchmarks.gpu.simulation import simulated_gpu
from benchmarks.results import RESULTS, save
from gpubeton.fields.decoders import IntDecoder
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.format.index import Index
from gpubeton.gpu.gpu_options import GpuOptions
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

__all__ = ["Case", "Spent", "measure"]

_DATA = Path(__file__).resolve().parent.parent / "data"

# Batches after which a loader's memory has grown to what it needs, and its line is full.
_WARM_UP = 8


class Case(NamedTuple):
    """A way to load that is measured.

    Parameters
    ----------
    name : str
        Its name in the results.
    lanes : tuple of str
        For `GpuOptions`.
    deterministic : bool
        For `GpuOptions`.
    os_cache : bool
        Whether the file is mapped, and its bytes copied; otherwise they are read into page-locked memory.
    """

    name: str
    lanes: tuple[str, ...]
    deterministic: bool
    os_cache: bool


CASES = (
    Case("engines, mapped", ("hardware", "hybrid"), True, True),
    Case("engines, read", ("hardware", "hybrid"), True, False),
    Case("engines and processors, mapped", ("hardware", "sm", "hybrid"), False, True),
    Case("processors, mapped", ("sm", "hybrid"), True, True),
)


class Spent(NamedTuple):
    """Processor time of a number of batches.

    Parameters
    ----------
    images : int
        How many images they held.
    wall_seconds, cpu_seconds : float
        Of the process: user and system time of all threads.
    by_thread : dict of str to float
        Seconds of each of Python's threads, by name; "others" for the rest.
    """

    images: int
    wall_seconds: float
    cpu_seconds: float
    by_thread: dict[str, float]


def main(
    images: Annotated[int, typer.Option(help="Number of images.")] = 2000,
    batches: Annotated[int, typer.Option(help="Batches of a round.")] = 100,
    rounds: Annotated[int, typer.Option(help="Rounds, the cases by turns.")] = 5,
    batch_size: Annotated[int, typer.Option(help="Images of a batch.")] = 256,
    data: Annotated[Path, typer.Option(help="Where the images go.")] = _DATA,
    results: Annotated[Path, typer.Option(help="Where the result goes.")] = RESULTS,
) -> None:
    """Measure what the host does for each image that a GPU decodes."""
    console = Console()
    corpora = []
    for name, quality in QUALITIES.items():
        photos = make_photos(data, images, quality)
        measured = measure(photos.beton, batch_size=batch_size, batches=batches, rounds=rounds)
        corpora.append({"name": name, **photos.facts, "cases": measured})
        for case, laps in measured.items():
            costs = [1e6 * lap["cpu_seconds"] / lap["images"] for lap in laps]
            console.print(f"{name} {case}: {statistics.median(costs):.1f} µs ({min(costs):.1f} to {max(costs):.1f})")
    found: dict[str, Any] = {"simulated": True, "batch_size": batch_size, "corpora": corpora}
    console.print(f"Written: {save('host_cost', found, results)}", soft_wrap=True)


def measure(beton: str, *, batch_size: int, batches: int, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Measure all cases, by turns.

    Parameters
    ----------
    beton : str
        A file with the fields ``image`` and ``label``.
    batch_size, batches, rounds : int
        Images of a batch, batches of a round, rounds of a case.

    Returns
    -------
    dict of str to list of dict
        For each case what each round spent, see `Spent`.
    """
    spent: dict[str, list[dict[str, Any]]] = {case.name: [] for case in CASES}
    with simulated_gpu(works=False), ExitStack() as stack:
        loaders = {case: _loader(case, beton, batch_size, batches) for case in CASES}
        for loader in loaders.values():
            stack.callback(loader.close)
        for _ in range(rounds):
            for case, loader in loaders.items():
                spent[case.name].append(spend(iter(loader), batches)._asdict())
    return spent


def spend(iterator: Iterator[Any], batches: int) -> Spent:
    """Take batches, and see what they cost, once the line is full.

    Parameters
    ----------
    iterator : iterator of batches
        A loader's; emptied.
    batches : int
        How many to measure.

    Returns
    -------
    Spent
        What they cost.
    """
    for _ in range(_WARM_UP):
        next(iterator)
    wall, cpu, threads = time.perf_counter(), time.process_time(), _by_thread()
    images = sum(len(next(iterator)[0]) for _ in range(batches))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    own = {name: seconds - threads.get(name, 0.0) for name, seconds in _by_thread().items()}
    own["others"] = max(cpu - sum(own.values()), 0.0)
    for _ in iterator:
        pass
    return Spent(images, wall, cpu, own)


def _loader(case: Case, beton: str, batch_size: int, batches: int) -> Loader:
    image = [
        RandomResizedCropRGBImageDecoder((224, 224)),
        RandomHorizontalFlip(),
        NormalizeImage(MEAN, STD, np.float16),
        ToTensor(),
        ToTorchImage(),
    ]
    wanted = (batches + _WARM_UP + 4) * batch_size
    return Loader(
        beton,
        batch_size,
        num_workers=1,
        os_cache=case.os_cache,
        order=OrderOption.RANDOM,
        seed=0,
        indices=np.arange(wanted) % Index.open(beton).num_samples,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
        drop_last=True,
        device="cuda:0",
        gpu_options=GpuOptions(lanes=case.lanes, deterministic=case.deterministic),
    )


def _by_thread() -> dict[str, float]:
    """Processor seconds of Python's threads, by name without its number."""
    seconds: dict[str, float] = {}
    for thread in threading.enumerate():
        if thread.ident is not None:
            try:
                own = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            except (OSError, ProcessLookupError):  # it ended meanwhile
                continue
            name = thread.name.rstrip("-0123456789")
            seconds[name] = seconds.get(name, 0.0) + own
    return seconds


if __name__ == "__main__":
    typer.run(main)
