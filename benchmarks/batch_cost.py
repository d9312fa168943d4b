"""Measure the processor time of a batch whose images cost next to nothing: raw images of 8 x 8.

Each thread's time is split: code that Numba has compiled runs without the interpreter's lock (GIL), beside the training
loop; during the rest, which is Python, the loop has to wait. For a GPU, one whose calls do nothing replaces CUDA: the
time is gpubeton's own. With the simulated GPU of the tests, which does no work either, the difference is the
simulator's own Python. All cases of a path alternate, epoch by epoch, with one worker.

    python -m benchmarks.batch_cost --rounds 15
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from threading import current_thread
from typing import Annotated, Any
from unittest import mock

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.contenders.work import MEAN, STD
from benchmarks.gpu.host_cost import spend
from benchmarks.gpu.simulation import simulated_gpu
from benchmarks.harness.timing import race
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
from gpubeton.writer import DatasetWriter

__all__ = ["PATHS", "measure"]

SIDE = 8
#: Each way to make images: its device, and what replaces a GPU.
PATHS: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
    "CPU": ("cpu", nullcontext),
    "GPU, idle": ("cuda:0", partial(simulated_gpu, works=False, is_idle=True)),
    "GPU, simulated": ("cuda:0", partial(simulated_gpu, works=False)),
}
#: Threads by whose names their time is listed; a simulated GPU has more.
_OURS = ("MainThread", "gpubeton-prefetch", "gpubeton-worker", "gpubeton-feeder")
_IMAGES = 4096


def main(
    sizes: Annotated[str, typer.Option(help="Images per batch, one or more numbers.")] = "64 256 1024",
    batches: Annotated[int, typer.Option(min=1, help="Timed batches of a round.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Timed epochs of each case.")] = 9,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Measure the processor time of a batch whose images cost next to nothing."""
    console = Console()
    beton = data / f"tiny-{_IMAGES}.beton"
    if not beton.exists():
        data.mkdir(parents=True, exist_ok=True)
        fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
        DatasetWriter(beton, fields, num_workers=1).from_indexed_dataset(_Tiny())
    runs = []
    for path, (device, replace_gpu) in PATHS.items():
        with replace_gpu():
            runs += measure(str(beton), path, device, [*map(int, sizes.split())], batches, rounds)
    console.print(_table(runs))
    save_and_draw("batch_cost", {"side": SIDE, "workers": 1, "batches": batches, "runs": runs}, results, console)


def measure(beton: str, path: str, device: str, sizes: list[int], batches: int, rounds: int) -> list[dict[str, Any]]:
    """Time epochs of every batch size in alternation: the milliseconds of each round, by thread."""
    with ExitStack() as stack:
        loaders = {size: stack.enter_context(closing(_loader(beton, device, size, batches))) for size in sizes}
        epochs = {str(size): partial(_time_epoch, loader, batches) for size, loader in loaders.items()}
        race(epochs, 1)
        laps = race(epochs, rounds)
        with _compiled_code_timed() as seconds:
            compiled = race({size: partial(_time_compiled, epoch, seconds) for size, epoch in epochs.items()}, rounds)
    return [
        {
            "path": path,
            "batch_size": size,
            "milliseconds": laps[str(size)],
            "without_gil": {
                thread: min(1000 * lap.get(thread, 0.0) / (batches + 12) for lap in compiled[str(size)])
                for thread in laps[str(size)][0]
            },
        }
        for size in sizes
    ]


def _time_epoch(loader: Loader, batches: int) -> dict[str, float]:
    """Return the milliseconds of processor time of a batch, by thread."""
    loader.next_epoch = 0
    spent = spend(iter(loader), batches)
    return {thread: 1000 * spent.by_thread[thread] / batches for thread in _OURS if thread in spent.by_thread}


def _time_compiled(epoch: partial[dict[str, float]], seconds: dict[str, float]) -> dict[str, float]:
    """Run an epoch; return the seconds that its threads spent in compiled code."""
    seconds.clear()
    epoch()
    return dict(seconds)


@contextmanager
def _compiled_code_timed() -> Iterator[dict[str, float]]:
    """Time every call of a function that Numba has compiled, by the name of its thread."""
    from numba.core.dispatcher import Dispatcher

    seconds: dict[str, float] = defaultdict(float)

    def timed(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*arguments)
            finally:
                seconds[current_thread().name.rstrip("-0123456789")] += time.thread_time() - start

        return call

    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            for attribute, value in list(vars(module).items()) if name.startswith("gpubeton.") else ():
                if isinstance(value, Dispatcher) and value.targetoptions.get("nogil"):
                    stack.enter_context(mock.patch.object(module, attribute, timed(value)))
        yield seconds


def _loader(beton: str, device: str, batch_size: int, batches: int) -> Loader:
    image = [
        RandomResizedCropRGBImageDecoder((SIDE, SIDE)),
        RandomHorizontalFlip(),
        NormalizeImage(MEAN, STD, np.float16),
        ToTensor(),
        ToTorchImage(),
    ]
    return Loader(
        beton,
        batch_size,
        num_workers=1,
        order=OrderOption.RANDOM,
        seed=0,
        indices=np.arange((batches + 12) * batch_size) % _IMAGES,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
        drop_last=True,
        device=device,
    )


class _Tiny:
    """Images of noise, with their numbers as labels."""

    def __len__(self) -> int:
        return _IMAGES

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), np.uint8), number


def _table(runs: list[dict[str, Any]]) -> Table:
    table = Table("path", "batch", "CPU ms, median", "least", "with the GIL", "least, by thread (without the GIL)")
    for run in runs:
        least = min(run["milliseconds"], key=lambda lap: sum(lap.values()))
        sums = [sum(lap.values()) for lap in run["milliseconds"]]
        free = run["without_gil"]
        threads = ", ".join(f"{name} {seconds:.3f} ({free[name]:.3f})" for name, seconds in least.items())
        numbers = (median(sums), min(sums), min(sums) - sum(free.values()))
        table.add_row(run["path"], str(run["batch_size"]), *(f"{number:.3f}" for number in numbers), threads)
    return table


if __name__ == "__main__":
    typer.run(main)
