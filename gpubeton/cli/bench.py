"""Measure how fast this machine loads a file: disk, decoding, augmenting, and all together, on the CPU and a GPU."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton.cli.environment import measure_disk
from gpubeton.cli.runs import LoaderRun, image_field, run_loader, training_loader
from gpubeton.errors import DeviceError
from gpubeton.loader import GpuOptions
from gpubeton.reader import Reader

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from gpubeton.loader import Loader


RATE_HEADINGS = ("images/s", "of one core", "MB/s")


@dataclass(frozen=True)
class Rate:
    """How fast one part is."""

    name: str
    images_per_second: float | None = None  # None: could not be measured
    images_per_cpu_second: float | None = None  # of one core
    bytes_per_second: float | None = None  # of the file
    note: str = ""  # how it was measured, or why not
    run: LoaderRun | None = None  # the run end to end, with its timeline

    @property
    def cells(self) -> tuple[str, ...]:
        """The numbers as text, by `RATE_HEADINGS`; empty where there is none."""
        rates = [
            "" if rate is None else f"{rate:,.0f}" for rate in (self.images_per_second, self.images_per_cpu_second)
        ]
        return *rates, "" if self.bytes_per_second is None else f"{self.bytes_per_second / 1e6:,.0f}"

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        return asdict(replace(self, run=None), dict_factory=lambda pairs: {k: v for k, v in pairs if k != "run"})


@dataclass(frozen=True)
class BenchOptions:
    """How to measure a file."""

    size: int = 224
    batch_size: int = 64
    num_workers: int = -1
    seconds: float = 3.0  # for each part
    field: str | None = None
    use_gpu: bool = True


def measure_rates(path: str | os.PathLike[str], options: BenchOptions) -> Iterator[Rate]:
    """Measure one part after the other, and yield the rate of each."""
    reader = Reader(path)
    field = image_field(reader, options.field)
    make = partial(
        training_loader, path, reader, field, options.size, options.batch_size, num_workers=options.num_workers
    )
    yield from _disk(path, reader, options.seconds / 2)
    plain = _measure(make(is_augmented=False, device="cpu"), options.seconds)
    full = _measure(make(device="cpu"), options.seconds)
    if field is not None:
        yield _rate("decode and resize", plain, f"random crops to {options.size} pixels")
        yield _augmenting(plain, full)
    yield _handing_over(full)
    yield replace(_rate("end to end, CPU", full, "all fields, in a loop without a training step"), run=full)
    if options.use_gpu and field is not None:
        yield from _gpu(make, options.seconds)


def slowest_part(rates: Sequence[Rate]) -> str:
    """Return the name of the slowest part of loading on the CPU; empty if nothing was measured."""
    found = {rate.name: rate.images_per_second or 0.0 for rate in rates}
    parts = [name for name in ("read, memory", "decode and resize", "hand over") if found.get(name)]
    return min(parts, key=lambda name: found[name], default="")


def limit_text(rates: Sequence[Rate]) -> str:
    """Name the slowest part as a sentence."""
    found, slowest = {rate.name: rate.images_per_second or 0.0 for rate in rates}, slowest_part(rates)
    if not slowest:
        return "Nothing could be measured."
    total = found.get("end to end, CPU", 0.0)
    return f"The slowest part is {slowest!r}: {found[slowest]:,.0f} images/s; end to end: {total:,.0f} images/s."


def _disk(path: str | os.PathLike[str], reader: Reader, seconds: float) -> Iterator[Rate]:
    speed = measure_disk(path, seconds=seconds)
    # The size of the file would also count the unused ends of pages.
    used = int(reader.index.allocations["size"].sum()) or Path(path).stat().st_size
    nbytes = max(1.0, used / reader.num_samples)
    cold = speed.cold_bytes_per_second
    if cold is None:
        yield Rate("read, disk", note="the file is too small, or its file system cannot bypass the page cache")
    else:
        yield Rate("read, disk", cold / nbytes, None, cold, "1 MiB blocks in random order, 4 threads, O_DIRECT")
    warm = speed.warm_bytes_per_second
    yield Rate("read, memory", warm / nbytes, None, warm, "the same blocks from the page cache")


def _measure(loader: Loader, seconds: float) -> LoaderRun:
    try:
        run_loader(loader, seconds=min(0.5, seconds))  # compile, and bring the file into the page cache
        return run_loader(loader, seconds=seconds, is_recorded=True)
    finally:
        loader.close()


def _rate(name: str, run: LoaderRun, note: str) -> Rate:
    return Rate(name, run.images_per_second, run.images_per_cpu_second, None, note)


def _augmenting(plain: LoaderRun, full: LoaderRun) -> Rate:
    """Return the rate of augmenting: one pass decodes and augments, so it is the difference of two runs."""
    note = "time that flip and normalization to float16 add to decoding"
    if not (plain.images_per_cpu_second and full.images_per_cpu_second):
        return Rate("augment", note=note)
    added = 1 / full.images_per_cpu_second - 1 / plain.images_per_cpu_second
    rate = 1 / added if added > 0.01 / full.images_per_cpu_second else math.inf
    if math.isinf(rate):
        return Rate("augment", note=f"{note}: less than can be measured")
    return Rate("augment", None, rate, None, note)


def _handing_over(run: LoaderRun) -> Rate:
    """Return the rate of the loader's own thread, which works batch by batch."""
    stats = run.stats
    seconds = stats.plan_seconds + stats.submit_seconds + stats.tail_seconds + stats.handover_seconds
    note = "planning, labels, passing batches on: one thread"
    return Rate("hand over", stats.images / seconds if seconds else None, None, None, note)


def _gpu(make: Callable[..., Loader], seconds: float) -> Iterator[Rate]:
    """Measure each way to decode on a GPU, then all together."""
    import torch

    if not torch.cuda.is_available():
        yield Rate("end to end, GPU", note="torch sees no GPU")
        return
    for name, routes in {"end to end, GPU": ("hardware",), "end to end, GPU, decoded by the CPU": ()}.items():
        yield _gpu_rate(name, make, seconds, routes)


def _gpu_rate(name: str, make: Callable[..., Loader], seconds: float, routes: tuple[str, ...]) -> Rate:
    try:
        loader = make(device="cuda:0", gpu_options=GpuOptions(routes=routes))
        notes = {} if loader.gpu is None else {own.name.lower(): note for own, note in loader.gpu.notes.items()}
        return _rate(name, _measure(loader, seconds), notes.get("hardware", ""))
    except DeviceError as error:
        return Rate(name, note=str(error))
