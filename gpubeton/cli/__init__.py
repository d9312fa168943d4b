"""The ``gpubeton`` command."""

from __future__ import annotations

import io
import sys

from gpubeton._machine import install

__all__ = ["main"]


def main() -> None:
    """Run the command with the arguments of the process; the entry point of ``gpubeton``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack "\N{MULTIPLICATION SIGN}" and bars
    try:
        from gpubeton.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"rich", "typer"}:
            raise
        sys.exit(f"gpubeton: the command needs {error.name}. Install it with: {install('cli')}")
    app()
