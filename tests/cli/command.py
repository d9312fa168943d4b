"""The command, as it is typed."""

from __future__ import annotations

from functools import cache

import typer.testing
from typer.testing import CliRunner

from gpubeton.cli.app import app

# Typer makes all commands and options again for each call, which takes longer than most commands.
typer.testing._get_command = cache(typer.testing._get_command)


def run(*arguments, code=None):
    """Run ``gpubeton`` with these words; `code` is the expected status, if any."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert code in (None, done.exit_code), done.output
    return done
