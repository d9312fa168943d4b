"""Measure how fast this machine loads a file: disk, decoding, augmenting, and all together, on the CPU and a GPU."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton.diagnosis.environment import measure_disk
from gpubeton.diagnosis.runs import LoaderRun, image_field, long_indices, pipelines_for, run_loader
from gpubeton.errors import DeviceError
from gpubeton.loader import GpuOptions, Loader, OrderOption
from gpubeton.reader import Reader

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

__all__ = ["BenchOptions", "Rate", "measure_rates"]


@dataclass(frozen=True)
class Rate:
    """How fast one part is."""

    name: str
    images_per_second: float | None = None  # None: could not be measured
    images_per_cpu_second: float | None = None  # of one core
    bytes_per_second: float | None = None  # of the file
    note: str = ""  # how it was measured, or why not

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes for JSON."""
        return asdict(self)


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
    yield from _disk(path, reader, options)
    plain = _run(path, reader, field, options, is_augmented=False)
    full = _run(path, reader, field, options, is_augmented=True)
    if field is not None:
        yield _rate("decode and resize", plain, f"random crops to {options.size} pixels")
        yield _augmenting(plain, full)
    yield _handing_over(full)
    yield _rate("end to end, CPU", full, "all fields, in a loop without a training step")
    if options.use_gpu and field is not None:
        yield from _gpu(path, reader, field, options)


def _disk(path: str | os.PathLike[str], reader: Reader, options: BenchOptions) -> Iterator[Rate]:
    speed = measure_disk(path, seconds=options.seconds / 2)
    # The size of the file would also count the unused ends of pages.
    used = int(reader.index.allocations["size"].sum()) or Path(path).stat().st_size
    nbytes = max(1.0, used / reader.num_samples)
    cold = speed.cold_bytes_per_second
    if cold is None:
        yield Rate("read, disk", note="the file system cannot bypass the page cache")
    else:
        yield Rate("read, disk", cold / nbytes, None, cold, "1 MiB blocks in random order, 4 threads, O_DIRECT")
    warm = speed.warm_bytes_per_second
    yield Rate("read, memory", warm / nbytes, None, warm, "the same blocks from the page cache")


def _loader(
    path: str | os.PathLike[str], reader: Reader, field: str | None, options: BenchOptions, **changes: Any
) -> Loader:
    is_augmented = changes.pop("is_augmented")
    batch_size = min(options.batch_size, reader.num_samples)
    return Loader(
        path,
        batch_size,
        options.num_workers,
        order=OrderOption.RANDOM,
        seed=0,
        indices=long_indices(reader.num_samples, batch_size),
        pipelines=pipelines_for(reader, field, options.size, is_augmented=is_augmented),
        on_error="skip",
        **{"device": "cpu", **changes},
    )


def _run(
    path: str | os.PathLike[str], reader: Reader, field: str | None, options: BenchOptions, **changes: Any
) -> LoaderRun:
    loader = _loader(path, reader, field, options, **changes)
    try:
        run_loader(loader, seconds=min(0.5, options.seconds))  # compile, and bring the file into the page cache
        return run_loader(loader, seconds=options.seconds)
    finally:
        loader.close()


def _rate(name: str, run: LoaderRun, note: str) -> Rate:
    return Rate(name, run.images_per_second, run.images_per_cpu_second, None, note)


def _augmenting(plain: LoaderRun, full: LoaderRun) -> Rate:
    """Return the rate of augmenting: one pass decodes and augments, so it is the difference of two runs."""
    note = "time that flip and normalisation to float16 add to decoding"
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


def _gpu(path: str | os.PathLike[str], reader: Reader, field: str, options: BenchOptions) -> Iterator[Rate]:
    import torch

    if not torch.cuda.is_available():
        yield Rate("end to end, GPU", note="torch sees no GPU")
        return
    for lane in ("hardware", "sm", "hybrid"):
        changes = {"is_augmented": True, "device": "cuda:0", "gpu_options": GpuOptions(lanes=(lane,))}
        try:
            loader = _loader(path, reader, field, options, **changes)
        except DeviceError as error:
            yield Rate(f"end to end, GPU, {lane}", note=str(error))
            continue
        notes = {} if loader.gpu is None else {own.name.lower(): note for own, note in loader.gpu.notes.items()}
        loader.close()
        yield _rate(f"end to end, GPU, {lane}", _run(path, reader, field, options, **changes), notes.get(lane, ""))
    changes = {"is_augmented": True, "device": "cuda:0"}
    try:
        yield _rate("end to end, GPU", _run(path, reader, field, options, **changes), "all lanes")
    except DeviceError as error:
        yield Rate("end to end, GPU", note=str(error))
