"""``gpubeton doctor``: why a loop waits, and what would help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpubeton.cli.group import FINDINGS
from gpubeton.cli.options import Json, Workers
from gpubeton.cli.screen import printable, result_console, show_json

if TYPE_CHECKING:
    from gpubeton.diagnosis import Finding, Reading

__all__ = ["doctor"]


def doctor(
    file: Annotated[Path | None, typer.Argument(help="A .beton file to loop over.", show_default=False)] = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="With -- before it: a command that trains, e.g. -- python train.py", show_default=False),
    ] = None,
    loader: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="A function of yours that makes the loader to loop over."),
    ] = None,
    stats: Annotated[
        Path | None,
        typer.Option(help="A file that running loops write: start them with the variable GPUBETON_STATS=FILE."),
    ] = None,
    step_ms: Annotated[float, typer.Option(min=0, help="How long a training step takes, in milliseconds.")] = 0.0,
    seconds: Annotated[float, typer.Option(min=0.01, help="How long the loop is watched.")] = 5.0,
    size: Annotated[int, typer.Option(min=1, help="Side of the crops in pixels.")] = 224,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in a batch.")] = 64,
    workers: Workers = -1,
    batches_ahead: Annotated[int, typer.Option(min=1, help="Batches made ahead of the loop.")] = 3,
    os_cache: Annotated[
        bool | None, typer.Option("--os-cache/--no-os-cache", help="As for Loader.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="Where images are made: cpu, or a GPU such as cuda:0.")] = "cpu",
    field: Annotated[str | None, typer.Option(help="The field with images; by default the first.")] = None,
    json: Json = False,
) -> None:
    """Find out why a training loop waits: where the time goes, what limits it, what to change and what that would gain.

    The loop is one over FILE with a step of --step-ms; or your loader's; or that of a command; or one that is running.
    Ctrl-C ends a command, and tells what was seen until then.
    Ends with exit code 1 if the loop waits for data and something can be done about it.
    """
    from gpubeton.diagnosis import advise
    from gpubeton.diagnosis.doctor import (
        LoopOptions,
        examine_command,
        examine_file,
        examine_loader,
        examine_log,
        made_loader,
    )

    file, words = _split(file, command)
    if sum(given is not None for given in (file, loader, stats)) + bool(words) != 1:
        raise typer.BadParameter("give one of FILE, --loader, --stats, or -- and a command")
    options = LoopOptions(step_ms / 1000, seconds, size, batch_size, workers, batches_ahead, os_cache, device, field)
    code, readings = 0, []
    with Console(stderr=True).status("Watching the loop"):
        if stats is not None:
            readings = examine_log(stats)
        elif loader is not None:
            readings = [examine_loader(made_loader(loader), made_loader(loader), options)]
        elif file is not None:
            readings = [examine_file(file, options)]
    if words:
        code, readings = examine_command(words)
    results = [(reading, advise(reading)) for reading in readings]
    if json:
        show_json({"command_exit_code": code, "loaders": [_plain(*each) for each in results]})
    else:
        _draw(result_console(), results)
    if code or any(finding.weight == "advice" for _, findings in results for finding in findings):
        raise typer.Exit(FINDINGS)


def _split(file: Path | None, command: list[str] | None) -> tuple[Path | None, list[str]]:
    """Tell a file from a command: a command has more words, or no name of a .beton file."""
    words = ([] if file is None else [str(file)]) + (command or [])
    if len(words) > 1 and words[0].endswith(".beton"):
        raise typer.BadParameter("give FILE or a command, not both")
    if len(words) == 1 and words[0].endswith(".py"):
        raise typer.BadParameter(
            f"{words[0]} is a program, not a .beton file; to watch its loaders: gpubeton doctor -- python {words[0]}"
        )
    if len(words) == 1 and (Path(words[0]).is_file() or words[0].endswith(".beton")):
        return Path(words[0]), []
    return None, words


def _plain(reading: Reading, findings: tuple[Finding, ...]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "stats": reading.stats.to_dict(),
        "loader": reading.facts.to_dict(),
        "machine": asdict(reading.machine),
        "files": [asdict(place) for place in reading.places],
        "gpu": asdict(reading.gpu),
        "disk_bytes_per_second": reading.disk_bytes_per_second,
        "findings": [asdict(finding) for finding in findings],
    }


def _draw(console: Console, results: list[tuple[Reading, tuple[Finding, ...]]]) -> None:
    if not results:
        console.print("No loader has written anything: was a gpubeton Loader used?")
    for reading, findings in results:
        facts = reading.facts
        loop = (
            f": batches of {facts.batch_size}, {facts.num_workers} workers, {facts.batches_ahead} batches ahead, "
            f"os_cache={facts.os_cache}, images made on {facts.device}"
        )
        console.print(Text.assemble((printable(", ".join(facts.files)), "bold"), printable(loop)))
        for line in str(reading.stats).splitlines():
            console.print(line)
        console.print()
        table = Table(show_header=False, box=None, padding=(0, 1, 1, 0))
        table.add_column(no_wrap=True)
        table.add_column()
        for finding in findings:
            table.add_row(_mark(finding), _words(finding))
        console.print(table)


def _mark(finding: Finding) -> Text:
    colours = {"bottleneck": "bold red" if (finding.gain or 0) > 1 else "bold green", "advice": "bold yellow"}
    return Text(printable(finding.weight), colours.get(finding.weight, "dim"))


def _words(finding: Finding) -> Text:
    gain = ""
    if finding.gain is not None and finding.gain > 1.005:
        gain = f" At most {finding.gain:.2f} x as many images/s."
    change = f"\n-> {printable(finding.change)}" if finding.change else ""
    return Text.assemble(printable(finding.says), change, (gain, "bold"))
