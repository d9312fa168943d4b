"""How commands end: their exit codes, and errors as one clear paragraph."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import Any

import typer
from typer.core import TyperGroup

from gpubeton.errors import FieldTypeError, GpubetonError, NoSuchFieldError, OptionError, PageSizeError, PipelineError

__all__ = ["FINDINGS", "INTERRUPTED", "USAGE", "Group"]

FINDINGS = 1
"""Exit code for bad data: something was found, or could not be read or written."""
USAGE = 2
"""Exit code for arguments that cannot be."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_USAGE_ERRORS = (OptionError, PageSizeError, PipelineError, NoSuchFieldError, FieldTypeError, FileNotFoundError)


class Group(TyperGroup):
    """The commands: an error ends them with one paragraph on stderr and its exit code; ``--debug`` shows where."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``--debug`` from wherever it stands."""
        own = args[: args.index("--")] if "--" in args else args
        ctx.ensure_object(dict)
        ctx.obj["debug"] = "--debug" in own
        ctx.obj["json"] = "--json" in own
        return super().parse_args(ctx, [word for word in own if word != "--debug"] + args[len(own) :])

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            is_kept = ctx.invoked_subcommand == "convert"
            _say("interrupted." + " Run the same command again: what is done so far is kept." * is_kept)
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.obj["debug"]:
                raise
            # Those of the parser say themselves what is wrong.
            own = getattr(error, "format_message", None)
            if ctx.obj["json"]:
                from gpubeton.cli.screen import show_json

                show_json({"error": {"type": type(error).__name__, "message": _told(error) if own is None else own()}})
            if own is not None:
                raise
            _say(_told(error))
            raise typer.Exit(USAGE if isinstance(error, _USAGE_ERRORS) else FINDINGS) from error


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        # As Python has it, a number that nobody knows comes first.
        said = error.strerror if isinstance(error, GpubetonError) else error.strerror.lower()
        return said if error.filename is None else f"{os.fspath(error.filename)}: {said}"
    if isinstance(error, GpubetonError | OSError):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}. --debug shows where it comes from."


def _say(message: str) -> None:
    from gpubeton.cli.screen import printable

    lines = textwrap.wrap(f"gpubeton: {message}", 100, break_long_words=False, break_on_hyphens=False)
    print("\n".join(map(printable, lines)), file=sys.stderr)
