"""The ``gpubeton`` command."""

from __future__ import annotations

import sys

from gpubeton.installation import install

__all__ = ["main"]


def main() -> None:
    """Run the command with the arguments of the process; the entry point of ``gpubeton``."""
    try:
        from gpubeton.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"rich", "typer"}:
            raise
        sys.exit(f"gpubeton: the command needs {error.name}. Install it with: {install('cli')}")
    app()
