"""Time the kernels of a batch, beside the memory traffic that cannot be avoided.

    python -m benchmarks.gpu.kernel_bandwidth

A loader makes a few batches, and its launches are recorded. Then each kernel is launched repeatedly with the arguments
of these batches in alternation, so that the GPU's cache does not contain them. The bound is the time to move the bytes
of the crops and of the result once, at the rate at which the GPU copies memory.

The kernels of our own decoder cannot be launched alone: all batches share the memory between them, so each kernel reads
what those before it wrote for the same batch. The time of a kernel is the time of a batch up to this kernel, less the
time up to the one before.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.gpu.photos import IMAGENET_LIKE, QUALITIES, make_photos, make_raw
from benchmarks.gpu.pipelines import image_pipelines, usual_pipeline
from benchmarks.gpu.record import Record, exit_on_sigterm
from benchmarks.gpu.target import Target, open_target
from benchmarks.results import DATA
from gpubeton._gpu.cuda import Stream
from gpubeton._gpu.kernels import SIGNED_KERNELS
from gpubeton._gpu.options import GpuOptions
from gpubeton._plan.draw_rows import HEIGHT, WIDTH
from gpubeton.format.dataset import open_dataset
from gpubeton.loader import Loader

__all__ = ["Launch", "copy_rate", "measure_decoder", "measure_pipeline", "noted_launches"]


# Kernels by the names of their files: bicubic's are variants.
_NAMES: dict[str, str] = {signed: name for name, signed in SIGNED_KERNELS.items()}
# Batches in alternation; together they are several times larger than the cache of any GPU.
_BATCHES = 3


@dataclass(frozen=True)
class Launch:
    """A recorded launch of a kernel."""

    kernel: str
    grid: tuple[int, int, int]  # blocks
    block: tuple[int, int, int]  # threads
    arguments: list[Any]


def main(
    images: Annotated[int, typer.Option(help="Number of images.")] = 2000,
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 256,
    side: Annotated[int, typer.Option(help="Height and width of the result.")] = 224,
    repeats: Annotated[int, typer.Option(help="Times that each measurement is made.")] = 15,
    only: Annotated[str, typer.Option(help="Only pipelines with this in their name.")] = "",
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    out: Annotated[Path | None, typer.Option(help="File or folder for the result.")] = None,
) -> None:
    """Time the kernels of a batch, beside the memory traffic that cannot be avoided."""
    exit_on_sigterm()
    console = Console()
    photos = make_photos(data, images, QUALITIES[IMAGENET_LIKE])
    record = Record(out, corpus=photos.facts, batch_size=batch_size, side=side)
    with open_target() as target:
        rate = copy_rate(target)
        record.add("copy_bytes_per_second", rate)
        for name, pipeline in image_pipelines(side).items():
            if only not in name:
                continue
            result = measure_pipeline(target, photos.beton, pipeline, batch_size, rate, repeats)
            record.add(name, result)
            kernels = ", ".join(
                f"{kernel} {own['median_microseconds']:.1f}" for kernel, own in result["kernels"].items()
            )
            share = f"{100 * result['share_of_bound']:.0f} % of the bound {result['bound_microseconds']:.1f}"
            console.print(f"{name}: µs for a batch: {kernels}; {share}", soft_wrap=True)
        if only in "own decoder":
            result = measure_decoder(target, photos.indexed, usual_pipeline(side), batch_size, repeats)
            record.add("own decoder", result)
            kernels = ", ".join(f"{kernel} {microseconds:.1f}" for kernel, microseconds in result["decoder"].items())
            console.print(f"own decoder: µs for a batch: {kernels}", soft_wrap=True)
        if only in "raw":
            raw = usual_pipeline(side)
            from_pinned_memory = {"gpu_options": GpuOptions(raw="bytes"), "os_cache": False}
            result = measure_pipeline(
                target, make_raw(data, photos), raw, batch_size, rate, repeats, **from_pinned_memory
            )
            result["gather_bytes_per_second"] = (
                1e6 * result["bytes_of_crops"] / result["kernels"]["gather"]["median_microseconds"]
            )
            record.add("raw", result)
            console.print(f"raw: gather moves {result['gather_bytes_per_second'] / 1e9:.1f} GB/s over the bus")
    record.complete()


def copy_rate(target: Target) -> float:
    """Measure how fast the GPU copies its memory."""
    device = target.device
    nbytes = (4 << 20) if target.is_simulated else (2 << 30)
    first, second = device.allocate(nbytes), device.allocate(nbytes)
    stream = device.make_stream()

    def copies(number: int) -> None:
        for _ in range(number):
            device.copy(second.address, first.address, nbytes, stream)

    copies(3)
    stream.synchronize()
    seconds = min(_time(target, stream, lambda: copies(10)) for _ in range(3))
    for memory in (first, second):
        memory.free()
    return 10 * 2 * nbytes / seconds


def measure_pipeline(
    target: Target,
    beton: str,
    pipeline: Sequence[Any],
    batch_size: int,
    rate: float,
    repeats: int,
    **more: Any,
) -> dict[str, Any]:
    """Time the kernels of one pipeline."""
    with closing(_loader_of(beton, pipeline, batch_size, **more)) as loader, noted_launches(target) as launches:
        iterator = iter(loader)
        with closing(iterator):
            (batch,) = next(iterator)
            written = batch.nbytes
            _wait_until_quiet(launches)
            result = sum(_NAMES.get(launch.kernel, launch.kernel) == "resample" for launch in launches)
            draws = [loader.plan(0)[number].images["image"].draws for number in range(result - _BATCHES, result)]
            crops = float(np.mean([_bytes_of_crops(draw) for draw in draws]))
            kernels = {}
            for name in dict.fromkeys(launch.kernel for launch in launches):
                own = [launch for launch in launches if launch.kernel == name]
                last = own[-(len(own) // result) * _BATCHES :]
                kernels[_NAMES.get(name, name)] = _time_kernel(target, last, _BATCHES, repeats)
    bound = (crops + written) / rate
    making = sum(kernel["median_microseconds"] for name, kernel in kernels.items() if name != "canary") / 1e6
    return {
        "images": batch_size,
        "bytes_of_crops": crops,
        "bytes_written": written,
        "bound_microseconds": 1e6 * bound,
        "kernels": kernels,
        "share_of_bound": bound / making,
        "share_of_bound_resample_alone": bound / (kernels["resample"]["median_microseconds"] / 1e6),
    }


def measure_decoder(
    target: Target, beton: str, pipeline: Sequence[Any], batch_size: int, repeats: int
) -> dict[str, Any]:
    """Time the kernels of our own decoder, in the order of the executor, for a file with entry points."""
    options = GpuOptions(routes=("entries",), resident=False)
    with closing(_loader_of(beton, pipeline, batch_size, gpu_options=options)) as loader:
        for _ in loader:  # afterwards its memory grows no more, so that addresses of earlier batches stay right
            pass
        loader.set_epoch(0)
        with noted_launches(target) as launches, closing(iter(loader)) as iterator:
            next(iterator)
            _wait_until_quiet(launches)
            times = _time_in_order(target, _decoded_batches(launches)[-_BATCHES:], repeats)
    return {"images": batch_size, "decoder": times}


def _decoded_batches(launches: Sequence[Launch]) -> list[list[Launch]]:
    """List the launches of our decoder for each batch: bands of images that are written into the same memory."""
    own = [launch for launch in launches if launch.kernel.startswith("jpeg_")]
    starts = [number for number, launch in enumerate(own) if launch.kernel == "jpeg_taps"]
    bands = [own[start:stop] for start, stop in pairwise([*starts, len(own)])]
    # The last kernel of a band, jpeg_down, has the address of the result before that of the status.
    return [[*chain(*batch)] for _, batch in groupby(bands, key=lambda band: int(band[-1].arguments[-2]))]


def _loader_of(beton: str, pipeline: Sequence[Any], batch_size: int, **more: Any) -> Loader:
    # The loader makes this many batches ahead and then waits: its memory keeps their contents.
    expected = (2 * _BATCHES + 2) * batch_size
    return Loader(
        beton,
        batch_size,
        num_workers=1,
        seed=0,
        indices=np.arange(expected) % open_dataset(beton).num_samples,
        pipelines={**dict.fromkeys(open_dataset(beton).names), "image": pipeline},
        batches_ahead=_BATCHES,
        device="cuda:0",
        **more,
    )


@contextmanager
def noted_launches(target: Target) -> Iterator[list[Launch]]:
    """Record launches on the device, and keep their tensors alive."""
    launches: list[Launch] = []
    tensors: list[Any] = []
    kind = type(target.device)
    launch: Any = kind.launch
    empty: Any = kind.empty

    def noting(device: Any, kernel: str, grid: Any, block: Any, arguments: Sequence[Any], stream: Stream) -> None:
        launches.append(Launch(kernel, tuple(grid), tuple(block), list(arguments)))
        launch(device, kernel, grid, block, arguments, stream)

    def keeping(*arguments: Any) -> Any:
        tensors.append(empty(*arguments))
        return tensors[-1]

    with mock.patch.object(kind, "launch", noting), mock.patch.object(kind, "empty", keeping):
        yield launches


def _wait_until_quiet(launches: list[Launch]) -> None:
    """Wait until there was no launch for a second."""
    before = -1
    while len(launches) != before:
        before = len(launches)
        time.sleep(1)


def _bytes_of_crops(draws: NDArray[np.int32]) -> int:
    return int((3 * draws[:, HEIGHT].astype(np.int64) * draws[:, WIDTH]).sum())


def _time_kernel(target: Target, launches: list[Launch], batches: int, repeats: int) -> dict[str, Any]:
    """Return the time of one kernel for one batch, from all its launches in alternation."""
    device = target.device
    stream = device.make_stream()
    rounds = 1 if target.is_simulated else max(60 // len(launches), 1)

    def run() -> None:
        for _ in range(rounds):
            for launch in launches:
                device.launch(launch.kernel, launch.grid, launch.block, launch.arguments, stream)

    run()
    stream.synchronize()
    times = [1e6 * _time(target, stream, run) / rounds / batches for _ in range(repeats)]
    return {
        "launches_of_a_batch": len(launches) / batches,
        "median_microseconds": statistics.median(times),
        "microseconds": [round(own, 3) for own in times],
    }


def _time_in_order(target: Target, batches: list[list[Launch]], repeats: int) -> dict[str, float]:
    """Return the microseconds of each kernel for one batch, where each reads what those before it wrote."""
    names = list(dict.fromkeys(launch.kernel for launch in batches[0]))
    times: dict[str, float] = {}
    for count, name in enumerate(names, 1):
        until = [launch for launch in chain(*batches) if launch.kernel in names[:count]]
        result = _time_kernel(target, until, len(batches), repeats)
        times[name] = round(result["median_microseconds"] - sum(times.values()), 3)
    return times


def _time(target: Target, stream: Stream, work: Any) -> float:
    """Return the seconds that the GPU needs for the work that `work` puts into the stream."""
    if target.is_simulated:
        start = time.perf_counter()
        work()
        stream.synchronize()
        return time.perf_counter() - start
    import torch

    cuda: Any = torch.cuda
    with target.device.using(stream):
        # Work that follows in the stream waits, and then runs without a gap.
        cuda._sleep(20_000_000)  # noqa: SLF001 - about 10 ms; there is no other way to keep a GPU busy
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


if __name__ == "__main__":
    typer.run(main)
