"""The commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpubeton import __version__

__all__ = ["app"]

app = typer.Typer(help="Training batches from .beton files.", no_args_is_help=True, add_completion=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpubeton {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    del version  # its callback has done what there is to do


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where photos, the .beton file and the contact sheet go.")] = Path(
        ".demo"
    ),
    images: Annotated[int, typer.Option(min=64, help="Number of photos.")] = 400,
    rounds: Annotated[int, typer.Option(min=1, help="Timed laps of each loader.")] = 3,
) -> None:
    """Turn photos into a .beton file, load it, and time that beside a PyTorch DataLoader."""
    from gpubeton.cli.demo import run_demo

    run_demo(folder, images, rounds)
