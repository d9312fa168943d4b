"""``gpubeton bench``: what this machine can do with a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from gpubeton.cli.options import File, Json, Workers
from gpubeton.cli.screen import result_console, show_json
from gpubeton.machine import count_cores

if TYPE_CHECKING:
    from gpubeton.diagnosis.bench import Rate

__all__ = ["bench"]


def bench(
    file: File,
    size: Annotated[int, typer.Option(min=1, help="Side of the crops in pixels.")] = 224,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in a batch.")] = 64,
    workers: Workers = -1,
    seconds: Annotated[float, typer.Option(min=0.01, help="How long each part is measured.")] = 3.0,
    field: Annotated[str | None, typer.Option(help="The field with images; by default the first.")] = None,
    gpu: Annotated[bool, typer.Option("--gpu/--no-gpu", help="Measure a GPU, lane by lane, if there is one.")] = True,
    json: Json = False,
) -> None:
    """Measure what this machine can do with a file: disk, decoding, augmenting, end to end; on the CPU and each lane.

    A part's images per second are what it could do if all others took no time. The first time, it compiles before.
    """
    from gpubeton.diagnosis.bench import BenchOptions
    from gpubeton.diagnosis.bench import bench as measured

    options = BenchOptions(size, batch_size, workers, seconds, field, gpu)
    rates = []
    with Console(stderr=True).status("Measuring") as status:
        for rate in measured(file, options):
            rates.append(rate)
            status.update(f"Measured: {rate.name}")
    if json:
        show_json({"file": file, "cores": count_cores(), "parts": [rate.to_dict() for rate in rates]})
    else:
        result_console().print(_table(file, rates))


def _table(file: Path, rates: list[Rate]) -> Table:
    table = Table(title=f"{file}; {count_cores()} cores", title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in ("images/s", "of one core", "MB/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", style="dim")
    for rate in rates:
        numbers = (rate.images_per_second, rate.images_per_cpu_second)
        texts = ["" if number is None else f"{number:,.0f}" for number in numbers]
        speed = "" if rate.bytes_per_second is None else f"{rate.bytes_per_second / 1e6:,.0f}"
        table.add_row(rate.name, *texts, speed, rate.note)
    return table
