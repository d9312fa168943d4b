"""Time gpubeton on a GPU beside nvJPEG alone and other loaders: in alternation, on the same bytes.

    python -m benchmarks.gpu.race
    python -m benchmarks.gpu.race --cores 1,2,4      # some of them, limited to these numbers of cores

Loaders that are not installed are left out; the result lists them. FFCV needs another environment, named by
GPUBETON_FFCV_PYTHON (see benchmarks/ffcv_environment.sh); DALI can have one: GPUBETON_DALI_PYTHON.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.contenders.process import Contender, ContenderError
from benchmarks.gpu.contenders.process import GpuContender
from benchmarks.gpu.contenders.work import GpuWork
from benchmarks.gpu.photos import IMAGENET_LIKE, QUALITIES, make_photos
from benchmarks.gpu.record import Record, exit_on_sigterm
from benchmarks.results import DATA

__all__ = ["ENTRIES", "Entry", "Race"]


@dataclass(frozen=True)
class Entry(Contender):
    """A contender of the race."""

    variant: str = ""
    on_few_cores: bool = False  # whether it also runs on few cores
    queues: int = 0  # hardware queues of its process; 0: CUDA's default


_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
_LOADER = "gpubeton_loader"
_GPUBETON = (
    *("engines", "own kernels", "own kernels, resident"),
    *("decoded by the CPU", "decoded by the CPU, indexed", "CPU", "CPU, indexed"),
)
_DALI = ("dali_mixed", "nvidia.dali", "GPUBETON_DALI_PYTHON")

ENTRIES = (
    *(Entry(f"nvJPEG alone, {name}", "bare_nvjpeg", variant=name) for name in ("engines", "processors", "both")),
    *(Entry(f"gpubeton, {name}", _LOADER, variant=name, on_few_cores=True) for name in _GPUBETON),
    # In one queue, work of a stream waits for that of other streams.
    *(Entry(f"gpubeton, engines, {number} queues", _LOADER, variant="engines", queues=number) for number in (8, 32)),
    Entry("torchvision on the GPU", "torchvision_decode", "torchvision", variant="torchvision", on_few_cores=True),
    Entry("pynvjpeg, then torchvision", "torchvision_decode", "nvjpeg, torchvision", variant="pynvjpeg"),
    Entry("DALI, mixed, whole images", *_DALI, variant="whole", on_few_cores=True),
    Entry("DALI, mixed, crops", *_DALI, variant="crop"),
    Entry("FFCV", "ffcv_loader", "ffcv", "GPUBETON_FFCV_PYTHON"),
)


def main(
    images: Annotated[int, typer.Option(help="Number of images.")] = 2000,
    seconds: Annotated[float, typer.Option(help="Length of a lap.")] = 3,
    rounds: Annotated[int, typer.Option(help="Laps of each contender.")] = 3,
    cores: Annotated[
        str, typer.Option(help="Limit contenders to these numbers of cores, as in 1,2,4. Default: all cores.")
    ] = "",
    only: Annotated[str, typer.Option(help="Only contenders with this in their name.")] = "",
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 256,
    corpus: Annotated[str, typer.Option(help=f"Which files: {', '.join(QUALITIES)}.")] = IMAGENET_LIKE,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    out: Annotated[Path | None, typer.Option(help="File or folder for the result.")] = None,
) -> None:
    """Time gpubeton on a GPU beside nvJPEG alone and other loaders."""
    exit_on_sigterm()
    console = Console()
    photos = make_photos(data, images, QUALITIES[corpus])
    facts = {"corpus": {"name": corpus, **photos.facts}, "batch_size": batch_size, "seconds": seconds}
    record = Record(out, **facts)
    numbers = [int(number) for number in cores.split(",") if number]
    entries = [entry for entry in ENTRIES if only in entry.name and (entry.on_few_cores or not numbers)]
    for number in numbers or [0]:
        work = GpuWork(photos.beton, photos.folder, images, number, batch_size, seconds=seconds)
        Race(console, f"{number} cores" if number else "all cores", work).run(entries, rounds, record)
    record.complete()


class Race:
    """Contenders that run in alternation."""

    def __init__(self, console: Console, title: str, work: GpuWork) -> None:
        self._console = console
        self._title = title
        self._work = work
        self._running: dict[str, GpuContender] = {}
        self.found: dict[str, Any] = {"cores": work.cores, "contenders": {}, "left_out": {}}

    def run(self, entries: list[Entry], rounds: int, record: Record) -> None:
        """Start the contenders and run all laps."""
        with ExitStack() as stack:
            with ThreadPoolExecutor(max_workers=4) as pool:  # they mostly import and compile
                for name, contender in pool.map(self._start, entries):
                    if contender is not None:
                        self._running[name] = stack.enter_context(contender)
            for name, contender in list(self._running.items()):
                self.found["contenders"][name] = {"versions": contender.versions, "laps": []}
                self._lap(name, "warm-up", min(self._work.seconds, 1.0))
            for number in range(rounds):
                names = list(self._running)
                first = number % len(names) if names else 0
                for name in names[first:] + names[:first]:
                    lap = self._lap(name, f"round {number + 1}", self._work.seconds)
                    self.found["contenders"][name]["laps"] += [lap] if lap else []
                    record.add(self._title, self.found)
        record.add(self._title, self.found)

    def _start(self, entry: Entry) -> tuple[str, GpuContender | None]:
        try:
            entry.check_installed()
            work = replace(self._work, variant=entry.variant)
            module = f"benchmarks.gpu.contenders.{entry.module}"
            queues = {_QUEUES: str(entry.queues)} if entry.queues else {}
            return entry.name, GpuContender(entry.name, entry.python, module, work, environment=queues)
        except ContenderError as error:
            self._leave_out(entry.name, error)
            return entry.name, None

    def _lap(self, name: str, when: str, seconds: float) -> dict[str, Any] | None:
        """Run a lap; a contender that fails does not run again."""
        try:
            lap = self._running[name].lap(seconds)
        except ContenderError as error:
            self._leave_out(name, error)
            self._running.pop(name).close()
            return None
        rate, cost = lap["images"] / lap["wall_seconds"], 1e6 * lap["cpu_seconds"] / lap["images"]
        self._print(f"{when}: {name}: {rate:,.0f} images/s, {cost:,.0f} µs of processor time each")
        return lap

    def _leave_out(self, name: str, error: ContenderError) -> None:
        self.found["left_out"][name] = str(error)
        self._print(f"{name}: left out: {error}")

    def _print(self, text: str) -> None:
        self._console.print(f"{self._title}: {text}", soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
