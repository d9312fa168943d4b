"""``gpubeton bench`` and ``gpubeton doctor``: measure a file, and find out why a loop waits."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpubeton._machine import count_cores
from gpubeton.cli.screen import printable, result_console, show_json
from gpubeton.cli.shared_options import FINDINGS, File, Json, Workers

if TYPE_CHECKING:
    from gpubeton.cli.advice import LoopFinding, Measurements

Size = Annotated[int, typer.Option(min=1, help="Side of the crops.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples per batch.")]
ImageName = Annotated[str | None, typer.Option(help="Field of images; default: the first.")]


def _report_path(path: Path | None) -> Path | None:
    """Refuse a report that cannot be written, before anything is measured."""
    if path is not None and path.suffix not in (".html", ".htm"):
        raise typer.BadParameter(f"{path} is no name of a report; expected one that ends in .html")
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f"{path}: there is no folder {path.parent}")
    if path is not None and not os.access(path if path.exists() else path.parent, os.W_OK):
        raise typer.BadParameter(f"{path} cannot be written by this user. Name a file in another folder")
    return path


Html = Annotated[
    Path | None,
    typer.Option(help="Also write a report with figures to this file.", callback=_report_path, show_default=False),
]


def bench(
    file: File,
    size: Size = 224,
    batch_size: BatchSize = 64,
    workers: Workers = -1,
    seconds: Annotated[float, typer.Option(min=0.01, help="Time for each measurement.")] = 3.0,
    field: ImageName = None,
    gpu: Annotated[bool, typer.Option("--gpu/--no-gpu", help="Measure the GPU too, if there is one.")] = True,
    json: Json = False,
    html: Html = None,
) -> None:
    """Measure how fast this machine loads a file, part by part.

    Measures the disk, decoding, augmenting, and the whole loader on the CPU and on a GPU. The rate of a part is the one
    it could reach if the other parts took no time. The first run compiles before it measures.
    """
    from gpubeton.cli.loops import RATE_HEADINGS, limit_text, measure_rates

    rates, sizes = [], {"size": size, "batch_size": batch_size, "num_workers": workers}
    with Console(stderr=True).status("Measuring") as status:
        for rate in measure_rates(file, **sizes, seconds=seconds, field=field, use_gpu=gpu):
            rates.append(rate)
            status.update(f"Measured: {rate.name}")
    if json:
        show_json({"file": file, "cores": count_cores(), "parts": [rate.to_dict() for rate in rates]})
    else:
        console = result_console()
        table = Table(title=f"{file}; {count_cores()} cores", title_justify="left")
        table.add_column("", no_wrap=True)
        for heading in RATE_HEADINGS:
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("", style="dim")
        for rate in rates:
            table.add_row(rate.name, *rate.cells, rate.note)
        console.print(table)
        console.print(limit_text(rates))
    if html is not None:
        from gpubeton.cli.report import write_bench_report

        write_bench_report(html, file, rates)


def doctor(
    file: Annotated[str | None, typer.Argument(help="A .beton file to loop over.", show_default=False)] = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --: a command that trains, e.g. -- python train.py", show_default=False),
    ] = None,
    loader: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="Function that makes your loader.")
    ] = None,
    step_ms: Annotated[float, typer.Option(min=0, help="Training step in ms.")] = 0.0,
    seconds: Annotated[float, typer.Option(min=0.01, help="Time to watch the loop.")] = 5.0,
    size: Size = 224,
    batch_size: BatchSize = 64,
    workers: Workers = -1,
    batches_ahead: Annotated[int, typer.Option(min=1, help="As for Loader.")] = 3,
    os_cache: Annotated[
        bool | None, typer.Option("--os-cache/--no-os-cache", help="As for Loader.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or a GPU such as cuda:0.")] = "cpu",
    field: ImageName = None,
    json: Json = False,
    html: Html = None,
) -> None:
    """Find out why a training loop waits for data, and what would help.

    Shows where the time goes, what limits the loop, what to change, and the possible gain. It watches one loop: over
    FILE with steps of --step-ms, over the loader of --loader, or in a command. Ctrl-C ends a command and shows the
    results so far. The exit code is 1 if the loop waits for data and a change would help.
    """
    from gpubeton.cli.advice import advise
    from gpubeton.cli.loops import examine_command, examine_file, examine_loader, make_loader

    file, words = _file_or_command(file, command)
    if [file is not None, loader is not None, bool(words)].count(True) != 1:
        raise typer.BadParameter("give one of FILE, --loader, or -- and a command")
    times: dict[str, Any] = {"seconds": seconds, "step_seconds": step_ms / 1000}
    code, loops = 0, []
    with Console(stderr=True).status("Watching the loop"):
        if loader is not None:
            loops = [examine_loader(make_loader(loader), make_loader(loader), **times)]
        elif file is not None:
            loops = [
                examine_file(
                    file, **times, size=size, batch_size=batch_size, field=field, device=device, num_workers=workers,
                    batches_ahead=batches_ahead, os_cache=os_cache,
                )
            ]  # fmt: skip
    if words:
        code, loops = examine_command(words)
    results = [(measured, advise(measured)) for measured in loops]
    if json:
        show_json({"command_exit_code": code, "loaders": [_to_dict(*result) for result in results]})
    else:
        if code:
            result_console().print(f"The command ended with exit code {code}.")
        _draw_advice(result_console(), results)
    if html is not None:
        from gpubeton.cli.report import write_doctor_report

        write_doctor_report(html, results)
    if code or any(finding.weight == "advice" for _, findings in results for finding in findings):
        raise typer.Exit(FINDINGS)


def _file_or_command(file: str | None, command: list[str] | None) -> tuple[str | None, list[str]]:
    """Separate a file from a command: several words, or one that names nothing here, are a command."""
    words = ([] if file is None else [file]) + (command or [])
    is_file = bool(words) and words[0].endswith((".beton", ".index"))
    if len(words) > 1 and is_file:
        raise typer.BadParameter("give FILE or a command, not both")
    if len(words) == 1 and words[0].endswith(".py"):
        raise typer.BadParameter(
            f"{words[0]} is a program, not a .beton file; to watch its loaders: gpubeton doctor -- python {words[0]}"
        )
    if len(words) == 1 and (is_file or Path(words[0]).exists()):
        return words[0], []
    return None, words


def _to_dict(measured: Measurements, findings: tuple[LoopFinding, ...]) -> dict[str, Any]:
    return {
        "stats": measured.stats.to_dict(),
        "loader": measured.facts.to_dict(),
        "machine": asdict(measured.machine),
        "files": [asdict(place) for place in measured.places],
        "gpu": asdict(measured.gpu),
        "disk_bytes_per_second": measured.disk_bytes_per_second,
        "findings": [asdict(finding) for finding in findings],
    }


def _draw_advice(console: Console, results: list[tuple[Measurements, tuple[LoopFinding, ...]]]) -> None:
    if not results:
        console.print("No statistics of a loader were written. Does the program use a gpubeton Loader?")
    for measured, findings in results:
        files = printable(", ".join(measured.facts.files))
        console.print(Text.assemble((files, "bold"), printable(f": {measured.loop}")))
        for line in str(measured.stats).splitlines():
            console.print(line)
        console.print()
        table = Table(show_header=False, box=None, padding=(0, 1, 1, 0))
        table.add_column(no_wrap=True)
        table.add_column()
        for finding in findings:
            color = {"bottleneck": "bold red" if (finding.gain or 0) > 1 else "bold green", "advice": "bold yellow"}
            gain = finding.gain_text and f" {finding.gain_text}"
            change = f"\n-> {printable(finding.change)}" if finding.change else ""
            text = Text.assemble(printable(finding.text), change, (gain, "bold"))
            table.add_row(Text(printable(finding.weight), color.get(finding.weight, "dim")), text)
        console.print(table)
