"""What this machine can do with a file: disk, decoding, augmenting, handing over, end to end, on the CPU and a GPU."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton.diagnosis.disk import measure_disk
from gpubeton.diagnosis.laps import Lap, long_indices, run_lap
from gpubeton.diagnosis.pipelines import image_field, pipelines_for
from gpubeton.errors import DeviceError
from gpubeton.loader import GpuOptions, Loader, OrderOption
from gpubeton.reader import Reader

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

__all__ = ["BenchOptions", "Rate", "bench"]


@dataclass(frozen=True)
class Rate:
    """How fast one part is.

    Parameters
    ----------
    name : str
        The part.
    images_per_second : float or None
        Samples per second of wall time; None if it could not be measured.
    images_per_cpu_second : float or None
        Samples that one core does in a second; None where that means nothing.
    bytes_per_second : float or None
        Bytes of the file, where those are what counts.
    note : str
        How it was measured, or why not.
    """

    name: str
    images_per_second: float | None = None
    images_per_cpu_second: float | None = None
    bytes_per_second: float | None = None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give it for JSON.

        Returns
        -------
        dict
            The parameters by name.
        """
        return asdict(self)


@dataclass(frozen=True)
class BenchOptions:
    """How a file is measured.

    Parameters
    ----------
    size : int
        Side of the crops in pixels.
    batch_size : int
        Samples in a batch.
    num_workers : int
        Threads that decode; -1 for one per core.
    seconds : float
        How long each part is measured.
    field : str, optional
        The field with images.
    use_gpu : bool
        Whether a GPU is measured, if there is one.
    """

    size: int = 224
    batch_size: int = 64
    num_workers: int = -1
    seconds: float = 3.0
    field: str | None = None
    use_gpu: bool = True


def bench(path: str | os.PathLike[str], options: BenchOptions) -> Iterator[Rate]:
    """Measure part after part.

    Parameters
    ----------
    path : str or path
        The file.
    options : BenchOptions
        How.

    Yields
    ------
    Rate
        Each part, as soon as it was measured.

    Raises
    ------
    FormatError
        If the file is damaged.
    OSError
        If it cannot be read.
    """
    reader = Reader(path)
    field = image_field(reader, options.field)
    yield from _disk(path, reader, options)
    plain = _lap(path, reader, field, options, is_augmented=False)
    full = _lap(path, reader, field, options, is_augmented=True)
    if field is not None:
        yield _rate("decode and resize", plain, f"random crops to {options.size} pixels")
        yield _augmenting(plain, full)
    yield _handing_over(full)
    yield _rate("end to end, CPU", full, "all fields, as a loop without a step gets them")
    if options.use_gpu and field is not None:
        yield from _gpu(path, reader, field, options)


def _disk(path: str | os.PathLike[str], reader: Reader, options: BenchOptions) -> Iterator[Rate]:
    speed = measure_disk(path, seconds=options.seconds / 2)
    # Not the size of the file, of which a page that is not full is a part.
    used = int(reader.index.allocations["size"].sum()) or Path(path).stat().st_size
    nbytes = max(1.0, used / reader.num_samples)
    cold = speed.cold_bytes_per_second
    if cold is None:
        yield Rate("read, disk", note="the file system does not allow to read past its memory")
    else:
        yield Rate("read, disk", cold / nbytes, None, cold, "1 MiB blocks in random order, four at once, O_DIRECT")
    warm = speed.warm_bytes_per_second
    yield Rate("read, memory", warm / nbytes, None, warm, "blocks that the operating system holds")


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


def _lap(path: str | os.PathLike[str], reader: Reader, field: str | None, options: BenchOptions, **changes: Any) -> Lap:
    loader = _loader(path, reader, field, options, **changes)
    try:
        run_lap(loader, seconds=min(0.5, options.seconds))  # compiles, and brings the file into memory
        return run_lap(loader, seconds=options.seconds)
    finally:
        loader.close()


def _rate(name: str, lap: Lap, note: str) -> Rate:
    return Rate(name, lap.images_per_second, lap.images_per_cpu_second, None, note)


def _augmenting(plain: Lap, full: Lap) -> Rate:
    """What augmenting adds to decoding, as the one pass does both."""
    note = "what a flip and normalising to float16 add to decoding, in the same pass"
    if not (plain.images_per_cpu_second and full.images_per_cpu_second):
        return Rate("augment", note=note)
    added = 1 / full.images_per_cpu_second - 1 / plain.images_per_cpu_second
    rate = 1 / added if added > 0.01 / full.images_per_cpu_second else math.inf
    if math.isinf(rate):
        return Rate("augment", note=f"{note}: less than can be measured")
    return Rate("augment", None, rate, None, note)


def _handing_over(lap: Lap) -> Rate:
    """The loader's thread: all that is done batch by batch, by one thread."""
    stats = lap.stats
    seconds = stats.plan_seconds + stats.submit_seconds + stats.tail_seconds + stats.handover_seconds
    note = "planning, labels, giving batches over: one thread"
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
        yield _rate(f"end to end, GPU, {lane}", _lap(path, reader, field, options, **changes), notes.get(lane, ""))
    changes = {"is_augmented": True, "device": "cuda:0"}
    try:
        yield _rate("end to end, GPU", _lap(path, reader, field, options, **changes), "all lanes")
    except DeviceError as error:
        yield Rate("end to end, GPU", note=str(error))
