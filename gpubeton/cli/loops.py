"""Timed loops over loaders: the rates of ``gpubeton bench``, and the measurements for ``gpubeton doctor``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpubeton import recipes
from gpubeton._machine import read_machine
from gpubeton.cli.advice import Measurements
from gpubeton.cli.environment import FilePlace, OtherPrograms, measure_disk, read_file_place
from gpubeton.cli.shared_options import import_object
from gpubeton.errors import DeviceError, FormatError, OptionError
from gpubeton.fields import RGBImageField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import GpuOptions, Loader, LoaderStats, OrderOption
from gpubeton.loader.describe import LoaderInfo
from gpubeton.loader.gpus import read_gpu
from gpubeton.loader.stats import DOCTOR_VARIABLE
from gpubeton.reader import Reader
from gpubeton.transforms import ToTensor, ToTorchImage

_BATCHES = 512


class LoaderRun(NamedTuple):
    """A timed loop over a loader; the first batch counts only in `stats`."""

    images_per_second: float
    images_per_cpu_second: float  # of one core; of the whole process
    stats: LoaderStats


def run_loader(loader: Loader, *, seconds: float, step_seconds: float = 0.0) -> LoaderRun:
    """Loop over a loader for some seconds after its first batch, in several epochs if needed; at least two batches."""
    # The loop sleeps after each batch, because a training step on a GPU leaves the CPU idle.
    images, start, cpu_start = 0, 0.0, 0.0
    while True:
        batches = iter(loader)
        for _ in batches:
            now = time.perf_counter()
            if start:
                images += len(batches.samples)
            else:
                start, cpu_start = now, time.process_time()
            if images and now - start >= seconds:
                batches.close()
                seconds, cpu = now - start, max(time.process_time() - cpu_start, 1e-9)
                return LoaderRun(images / seconds, images / cpu, loader.stats(total=True))
            if step_seconds:
                time.sleep(step_seconds)
        if not loader.stats().batches:
            return LoaderRun(0.0, 0.0, loader.stats(total=True))


def image_field(reader: Reader, name: str | None = None) -> str | None:
    """Return the field with images of this name, or the first one; None if the file has none."""
    names = [name for name, handler in reader.handlers.items() if isinstance(handler, RGBImageField)]
    if name is not None and name not in names:
        raise OptionError(f"{name!r} is no field with images; expected one of {names}")
    return name or next(iter(names), None)


def training_loader(
    path: str | os.PathLike[str],
    reader: Reader,
    field: str | None,
    size: int,
    batch_size: int,
    *,
    is_augmented: bool = True,
    **arguments: Any,
) -> Loader:
    """Make a loader of random crops of the images of a field, flipped and normalized if `is_augmented`."""
    # Other fields with images are left out; fields without images are decoded.
    pipelines: dict[str, Any] = dict.fromkeys(
        name for name, handler in reader.handlers.items() if isinstance(handler, RGBImageField)
    )
    if field is not None:
        decoded = [RandomResizedCropRGBImageDecoder((size, size)), ToTensor(), ToTorchImage()]
        pipelines[field] = recipes.imagenet("ffcv", size) if is_augmented else decoded
    batch_size = min(batch_size, reader.num_samples)
    repeats = max(1, -(-_BATCHES * batch_size // reader.num_samples))  # so that an epoch of a small file is long
    return Loader(
        path,
        batch_size,
        order=OrderOption.RANDOM,
        seed=0,
        indices=np.tile(np.arange(reader.num_samples), repeats),
        pipelines=pipelines,
        on_error="skip",
        **arguments,
    )


# --- bench: the rate of each part

RATE_HEADINGS = ("images/s", "of one core", "MB/s")


@dataclass(frozen=True)
class Rate:
    """How fast one part is."""

    name: str
    images_per_second: float | None = None  # None: could not be measured
    images_per_cpu_second: float | None = None  # of one core
    bytes_per_second: float | None = None  # of the file
    note: str = ""  # how it was measured, or why not
    run: LoaderRun | None = None  # the run end to end

    @property
    def cells(self) -> tuple[str, ...]:
        """The numbers as text, by `RATE_HEADINGS`; empty where there is none."""
        rates = [
            "" if rate is None else f"{rate:,.0f}" for rate in (self.images_per_second, self.images_per_cpu_second)
        ]
        return *rates, "" if self.bytes_per_second is None else f"{self.bytes_per_second / 1e6:,.0f}"

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        return {name: value for name, value in vars(self).items() if name != "run"}


def measure_rates(
    path: str | os.PathLike[str],
    *,
    size: int = 224,
    batch_size: int = 64,
    num_workers: int = -1,
    seconds: float = 3.0,  # for each part
    field: str | None = None,
    use_gpu: bool = True,
) -> Iterator[Rate]:
    """Measure one part after the other, and yield the rate of each."""
    reader = Reader(path)
    field = image_field(reader, field)
    make = partial(training_loader, path, reader, field, size, batch_size, num_workers=num_workers)
    yield _disk(path, reader, seconds / 2)
    plain = _measure(make(is_augmented=False, device="cpu"), seconds)
    full = _measure(make(device="cpu"), seconds)
    if field is not None:
        yield _rate("decode and resize", plain, f"random crops to {size} pixels")
        yield _augmenting(plain, full)
    # The loader's own thread works batch by batch.
    stats = full.stats
    handing_over = stats.plan_seconds + stats.submit_seconds + stats.tail_seconds + stats.handover_seconds
    note = "planning, labels, passing batches on: one thread"
    yield Rate("hand over", stats.images / handing_over if handing_over else None, note=note)
    yield replace(_rate("end to end, CPU", full, "all fields, in a loop without a training step"), run=full)
    if use_gpu and field is not None:
        yield from _gpu(make, seconds)


def slowest_part(rates: Sequence[Rate]) -> str:
    """Return the name of the slowest part of loading on the CPU; empty if nothing was measured."""
    speeds = {rate.name: rate.images_per_second or 0.0 for rate in rates}
    parts = [name for name in ("decode and resize", "hand over") if speeds.get(name)]
    return min(parts, key=lambda name: speeds[name], default="")


def limit_text(rates: Sequence[Rate]) -> str:
    """Name the slowest part as a sentence."""
    speeds, slowest = {rate.name: rate.images_per_second or 0.0 for rate in rates}, slowest_part(rates)
    if not slowest:
        return "Nothing could be measured."
    total = speeds.get("end to end, CPU", 0.0)
    return f"The slowest part is {slowest!r}: {speeds[slowest]:,.0f} images/s; end to end: {total:,.0f} images/s."


def _disk(path: str | os.PathLike[str], reader: Reader, seconds: float) -> Rate:
    speed = measure_disk(path, seconds=seconds)
    if speed is None:
        return Rate("read, disk", note="the file is too small, or its file system cannot bypass the page cache")
    # The size of the file would also count the unused ends of pages.
    used = int(reader.index.allocations["size"].sum()) or Path(path).stat().st_size
    nbytes = max(1.0, used / reader.num_samples)
    return Rate("read, disk", speed / nbytes, None, speed, "1 MiB blocks in random order, 4 threads, O_DIRECT")


def _measure(loader: Loader, seconds: float) -> LoaderRun:
    try:
        run_loader(loader, seconds=min(0.5, seconds))  # compile, and bring the file into the page cache
        return run_loader(loader, seconds=seconds)
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
    if added <= 0.01 / full.images_per_cpu_second:
        return Rate("augment", note=f"{note}: less than can be measured")
    return Rate("augment", images_per_cpu_second=1 / added, note=note)


def _gpu(make: Callable[..., Loader], seconds: float) -> Iterator[Rate]:
    """Measure each way to decode on a GPU."""
    import torch

    if not torch.cuda.is_available():
        yield Rate("end to end, GPU", note="torch sees no GPU")
        return
    for name, routes in {"end to end, GPU": ("hardware",), "end to end, GPU, decoded by the CPU": ()}.items():
        yield _gpu_rate(name, make, seconds, routes)


def _gpu_rate(name: str, make: Callable[..., Loader], seconds: float, routes: tuple[str, ...]) -> Rate:
    try:
        loader = make(device="cuda:0", gpu_options=GpuOptions(routes=routes))
        notes = {} if loader.gpu is None else {route.name.lower(): note for route, note in loader.gpu.notes.items()}
        return _rate(name, _measure(loader, seconds), notes.get("hardware", ""))
    except DeviceError as error:
        return Rate(name, note=str(error))


# --- doctor: one loop, and all that its speed depends on


def examine_file(
    path: str | os.PathLike[str],
    *,
    seconds: float = 5.0,  # how long the loop is watched
    step_seconds: float = 0.0,  # duration of a step, during which the CPU is idle
    size: int = 224,
    batch_size: int = 64,
    field: str | None = None,
    device: str = "cpu",
    **arguments: Any,  # of `Loader`
) -> Measurements:
    """Loop over a file with random crops, flips and normalization."""
    reader = Reader(path)
    field = image_field(reader, field)
    places = (read_file_place(path),)  # before the loop brings the file into the page cache
    make = partial(training_loader, path, reader, field, size, batch_size, device=device, **arguments)
    return examine_loader(make(), make(), seconds=seconds, step_seconds=step_seconds, places=places)


def examine_loader(
    rehearsal: Loader,
    loader: Loader,
    *,
    seconds: float = 5.0,
    step_seconds: float = 0.0,
    places: tuple[FilePlace, ...] | None = None,
) -> Measurements:
    """Loop over a loader; the rehearsal, an equal one, compiles first. Closes both."""
    # `places` were read before the rehearsal brought the files into memory.
    facts = loader._describe()  # noqa: SLF001  no method for users
    places = _places(facts) if places is None else places
    try:
        run_loader(rehearsal, seconds=0.0)
        others = OtherPrograms()
        run = run_loader(loader, seconds=seconds, step_seconds=step_seconds)
        other_cores = others.cores()
    finally:
        rehearsal.close()
        loader.close()
    speed = measure_disk(places[0].path, seconds=0.5) if places else None
    return Measurements(run.stats, facts, read_machine(), places, read_gpu(), speed, other_cores=other_cores)


def examine_command(command: Sequence[str], *, seconds_to_end: float = 10.0) -> tuple[int, list[Measurements]]:
    """Run a command and watch its loaders until it ends or Ctrl-C; returns its exit code and a result per loader."""
    with tempfile.TemporaryDirectory() as folder:
        # Its output goes to stderr: stdout is for the result of `gpubeton doctor`.
        running = subprocess.Popen(command, env={**os.environ, DOCTOR_VARIABLE: folder}, stdout=sys.stderr)
        try:
            code = running.wait()
        except KeyboardInterrupt:
            code = _ended(running, seconds_to_end)
            # Ctrl-C may end a long training early: its results so far count.
            if not (loops := _read_loops(Path(folder))):
                raise
            return code, loops
        return code, _read_loops(Path(folder))


def _read_loops(folder: Path) -> list[Measurements]:
    """Read what the loaders of a command wrote, the longest loop first."""
    loops = []
    for path in folder.glob("*.json"):
        numbers = json.loads(path.read_text(encoding="utf-8"))
        stats, facts = LoaderStats.from_dict(numbers["total"]), LoaderInfo.from_dict(numbers["info"])
        loops.append(Measurements(stats, facts, read_machine(), _places(facts), read_gpu()))
    return sorted(loops, key=lambda loop: -loop.stats.seconds)


def _ended(running: subprocess.Popen[bytes], seconds_to_end: float) -> int:
    """Wait for a command that also received Ctrl-C; terminate it if it does not end."""
    for end in (running.terminate, running.kill):
        with suppress(subprocess.TimeoutExpired):
            return running.wait(seconds_to_end)
        end()
    return running.wait()


def make_loader(path: str) -> Loader:
    """Import and call a user's ``module:function`` that makes a loader."""
    loader: Any = import_object(path, "--loader")()
    loader = getattr(loader, "loader", loader)  # unwrap a DataLoaderAdapter
    if not isinstance(loader, Loader):
        raise OptionError(f"--loader: {path} returned {type(loader).__name__}, expected a Loader")
    return loader


def _places(facts: LoaderInfo) -> tuple[FilePlace, ...]:
    """Find where those files of a loader are stored that are still there."""
    places = []
    for path in facts.files:
        with suppress(OSError, FormatError):
            places.append(read_file_place(path))
    return tuple(places)
