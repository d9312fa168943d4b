"""Measure the work of the host for each image that a GPU decodes; needs no GPU.

    python -m benchmarks.gpu.host_cost
    python -m benchmarks.gpu.host_cost --case "own kernels, mapped"

An idle GPU replaces CUDA, and the simulated nvJPEG the real one. Their calls return at once without any work, so the
processor time of all threads is gpubeton's own: reading, planning, copying compressed bytes to page-locked memory,
filling in descriptors, launching, passing batches on. The time of CUDA and nvJPEG inside their calls comes on top; only
a real GPU shows it.
Headers of JPEGs with entry points were read before, as in the epochs after the first.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console

from benchmarks.contenders.work import MEAN, STD
from benchmarks.gpu.photos import QUALITIES, Photos, make_photos
from benchmarks.gpu.simulation import simulated_gpu
from benchmarks.results import DATA, RESULTS, save
from gpubeton._gpu.options import GpuOptions
from gpubeton.fields.decoders import IntDecoder
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.format.dataset import open_dataset
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

__all__ = ["Case", "Spent", "measure"]


# Batches until a loader has all its memory and its pipeline is full.
_WARM_UP = 8


class Case(NamedTuple):
    """A way of loading."""

    name: str
    routes: tuple[str, ...]  # of `GpuOptions`
    os_cache: bool  # true: map the file and copy its bytes; false: read into page-locked memory
    is_resident: bool = False  # whether the images stay in the memory of the GPU

    @property
    def is_indexed(self) -> bool:
        """Whether the file has entry points."""
        return "entries" in self.routes


CASES = (
    Case("engines, mapped", ("hardware",), True),
    Case("engines, read", ("hardware",), False),
    Case("own kernels, mapped", ("entries",), True),
    Case("own kernels, read", ("entries",), False),
    Case("own kernels, resident", ("entries",), True, is_resident=True),
)


class Spent(NamedTuple):
    """Processor time of a number of batches."""

    images: int
    wall_seconds: float
    cpu_seconds: float  # user and system time of all threads
    by_thread: dict[str, float]  # of Python's threads, by name, and of "others"


def main(
    images: Annotated[int, typer.Option(help="Number of images.")] = 2000,
    batches: Annotated[int, typer.Option(help="Batches of a round.")] = 100,
    rounds: Annotated[int, typer.Option(help="Number of rounds.")] = 5,
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 256,
    case: Annotated[str | None, typer.Option(help="Only this case, as in a program with one loader.")] = None,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="File or folder for the result.")] = RESULTS,
) -> None:
    """Measure the work of the host for each image that a GPU decodes."""
    console = Console()
    corpora = []
    cases = [other for other in CASES if case in (None, other.name)]
    if not cases:
        raise typer.BadParameter(f"there is no case {case!r}; choose of: {', '.join(other.name for other in CASES)}")
    for name, quality in QUALITIES.items():
        photos = make_photos(data, images, quality)
        measured = measure(photos, cases, batch_size=batch_size, batches=batches, rounds=rounds)
        corpora.append({"name": name, **photos.facts, "cases": measured})
        for measured_case, laps in measured.items():
            costs = [1e6 * lap["cpu_seconds"] / lap["images"] for lap in laps]
            console.print(
                f"{name} {measured_case}: {statistics.median(costs):.1f} µs ({min(costs):.1f} to {max(costs):.1f})"
            )
    result: dict[str, Any] = {"simulated": True, "batch_size": batch_size, "corpora": corpora}
    console.print(f"Written: {save('host_cost', result, results)}", soft_wrap=True)


def measure(
    photos: Photos, cases: Sequence[Case] = CASES, *, batch_size: int, batches: int, rounds: int
) -> dict[str, list[dict[str, Any]]]:
    """Measure cases in alternation; return the times of each round."""
    spent: dict[str, list[dict[str, Any]]] = {case.name: [] for case in cases}
    with simulated_gpu(works=False, is_idle=True), ExitStack() as stack:
        loaders = {case: _loader(case, photos, batch_size, batches) for case in cases}
        for loader in loaders.values():
            stack.callback(loader.close)
        for _ in range(rounds):
            for case, loader in loaders.items():
                spent[case.name].append(spend(iter(loader), batches)._asdict())
    return spent


def spend(iterator: Iterator[Any], batches: int) -> Spent:
    """Measure batches, once the pipeline is full, and empty the iterator."""
    for _ in range(_WARM_UP):
        next(iterator)
    wall, cpu, threads = time.perf_counter(), time.process_time(), time_by_thread()
    images = sum(len(next(iterator)[0]) for _ in range(batches))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    own = {name: seconds - threads.get(name, 0.0) for name, seconds in time_by_thread().items()}
    own["others"] = max(cpu - sum(own.values()), 0.0)
    for _ in iterator:
        pass
    return Spent(images, wall, cpu, own)


def _loader(case: Case, photos: Photos, batch_size: int, batches: int) -> Loader:
    beton = photos.indexed if case.is_indexed else photos.beton
    image = [
        RandomResizedCropRGBImageDecoder((224, 224)),
        RandomHorizontalFlip(),
        NormalizeImage(MEAN, STD, np.float16),
        ToTensor(),
        ToTorchImage(),
    ]
    expected = (batches + _WARM_UP + 4) * batch_size
    return Loader(
        beton,
        batch_size,
        num_workers=1,
        os_cache=case.os_cache,
        order=OrderOption.RANDOM,
        seed=0,
        indices=np.arange(expected) % open_dataset(beton).num_samples,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
        drop_last=True,
        device="cuda:0",
        gpu_options=GpuOptions(routes=case.routes, resident=case.is_resident),
    )


def time_by_thread() -> dict[str, float]:
    """Return processor seconds of Python's threads, by name without its number."""
    seconds: dict[str, float] = {}
    for thread in threading.enumerate():
        if thread.ident is not None:
            try:
                own = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            except (OSError, ProcessLookupError):  # the thread has ended
                continue
            name = thread.name.rstrip("-0123456789")
            seconds[name] = seconds.get(name, 0.0) + own
    return seconds


if __name__ == "__main__":
    typer.run(main)
