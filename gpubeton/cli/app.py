"""The ``gpubeton`` command: its commands with their examples, exit codes, and errors as one paragraph."""

from __future__ import annotations

import errno
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Callable
from inspect import getdoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import gpubeton
from gpubeton.cli.convert_command import convert
from gpubeton.cli.copy_commands import merge, split, subset
from gpubeton.cli.measure_commands import bench, doctor
from gpubeton.cli.prepare_commands import fetch, index, warm_up
from gpubeton.cli.read_commands import cat, extract, info, verify, view
from gpubeton.cli.screen import printable, show_json
from gpubeton.cli.shared_options import FINDINGS, INTERRUPTED, USAGE
from gpubeton.errors import FieldTypeError, GpubetonError, NoSuchFieldError, OptionError, PageSizeError, PipelineError

_USAGE_ERRORS = (OptionError, PageSizeError, PipelineError, NoSuchFieldError, FieldTypeError, FileNotFoundError)
_NO_SUCH_PLACE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
# Arguments of the library whose options have other names.
_OTHER_NAMES = {"jpeg_quality": "quality", "num_workers": "workers", "class_names": "classes"}

_EXAMPLES: dict[Callable[..., None], tuple[str, ...]] = {
    convert: (
        "gpubeton convert photos photos.beton --max-resolution 512",
        "gpubeton convert 'train-{000..146}.tar' train.beton --on-error skip",
        "gpubeton convert labels.csv train.beton --image path --label class",
        "gpubeton convert torchvision:CIFAR10 cifar.beton --split train --download --write-mode raw",
        "gpubeton convert 'train-{000..146}.tar' s3://bucket/train/ --shards 73 --on ray",
    ),
    info: ("gpubeton info train.beton", "gpubeton info train.beton --json | jq .fields"),
    verify: ("gpubeton verify train.beton && echo sound",),
    view: (
        "gpubeton view train.beton sheet.png",
        "gpubeton view train.beton crops.png --train-size 224 --count 64",
    ),
    cat: ("gpubeton cat train.beton 17", "gpubeton cat train.beton 17 --only image > 17.jpg"),
    extract: ("gpubeton extract train.beton photos", "gpubeton extract train.beton some --indices 0:100"),
    split: (
        "gpubeton split all.beton train.beton=0.9 val.beton=rest --stratify --seed 1",
        "gpubeton split all.beton train.beton=50000 test.beton=10000 --in-order",
    ),
    subset: (
        "gpubeton subset train.beton small.beton --per-class 100 --shuffle",
        "gpubeton subset train.beton pets.beton --class cat --class dog",
        "gpubeton subset train.beton first.beton --indices 0:1000",
    ),
    merge: ("gpubeton merge part-0.beton part-1.beton -o all.beton",),
    index: ("gpubeton index train.beton val.beton",),
    fetch: (
        "gpubeton fetch s3://bucket/train.beton --cache-dir /nvme/cache",
        "gpubeton fetch s3://bucket/in21k/ --cache-dir /nvme/cache --cache-limit '800 GB'",
    ),
    bench: ("gpubeton bench train.beton", "gpubeton bench train.beton --size 192 --json"),
    doctor: (
        "gpubeton doctor train.beton --step-ms 50",
        "gpubeton doctor --loader train:make_loader",
        "gpubeton doctor -- python train.py --epochs 1",
    ),
    warm_up: ("gpubeton warm-up", "RUN gpubeton warm-up   (in a Dockerfile)"),
}


class Group(TyperGroup):
    """The commands; an error becomes one paragraph on stderr and an exit code, with ``--debug`` a traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept ``--debug`` anywhere before ``--``."""
        words = args[: args.index("--")] if "--" in args else args
        ctx.ensure_object(dict)
        ctx.obj["debug"] = "--debug" in words
        ctx.obj["json"] = "--json" in words
        return super().parse_args(ctx, [word for word in words if word != "--debug"] + args[len(words) :])

    def invoke(self, ctx: Any) -> Any:
        """Run the command and turn its errors into exit codes."""
        usual = warnings.formatwarning

        def format_warning(message: Any, category: Any, filename: str, *line: Any) -> str:
            if not filename.startswith(os.path.dirname(gpubeton.__file__)):  # noqa: PTH120  user's code, for `doctor`
                return usual(message, category, filename, *line)
            return _paragraph(f"warning: {self._with_options(ctx, str(message))}") + "\n"

        warnings.formatwarning = format_warning  # type: ignore[assignment]  # its last parameter has a default value
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            can_continue = ctx.invoked_subcommand in ("convert", "index", "fetch")
            _print_error("interrupted." + " Run the same command again to continue." * can_continue)
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.obj["debug"]:
                raise
            # Errors of the argument parser format and print themselves.
            parser_message = getattr(error, "format_message", None)
            is_usage = isinstance(error, _USAGE_ERRORS) or getattr(error, "errno", None) in _NO_SUCH_PLACE
            message = _error_text(error) if parser_message is None else parser_message()
            if isinstance(error, OptionError | PageSizeError):
                message = self._with_options(ctx, message)
            if ctx.obj["json"]:
                show_json({"error": {"type": type(error).__name__, "message": message}})
            if parser_message is not None:
                raise
            _print_error(message)
            raise typer.Exit(USAGE if is_usage else FINDINGS) from error
        finally:
            warnings.formatwarning = usual

    def _with_options(self, ctx: Any, message: str) -> str:
        """Name the command's options in place of the library's arguments."""
        options = {parameter.name: parameter.opts[0] for parameter in self.commands[ctx.invoked_subcommand].params}
        options |= {argument: options[name] for argument, name in _OTHER_NAMES.items() if name in options}
        # A word without "_" is an argument only where it is the subject.
        return re.sub(
            r"^\w+(?= is |: not for )|(?<!\S)[a-z]+_[a-z_]+(?=[ ,:;]|$)",
            lambda match: options.get(match[0], match[0]),
            message,
        )


class Command(TyperCommand):
    """A command whose help shows no type beside options that take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """List the arguments and options."""
        params = super().get_params(ctx)
        for option in params:
            if getattr(option, "is_flag", False):
                option.metavar = ""
        return params


app = typer.Typer(
    cls=Group,
    help="Convert, inspect and measure .beton files, and find out why a training loop waits.",
    epilog="Exit codes: 0 success; 1 bad data, or a file that could not be read or written; 2 wrong arguments, no such "
    "file, or a target that exists; 130 interrupted. With --debug, errors show their traceback.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"gpubeton {gpubeton.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    del version, debug  # handled by _show_version and Group.parse_args


for _command, _lines in _EXAMPLES.items():
    # In the docstring and the examples, only an empty line starts a new line of the help.
    _paragraphs = (getdoc(_command) or "").split("\n\n")
    app.command(
        "warm-up" if _command is warm_up else None,
        help="\n\n".join(paragraph.replace("\n", " ") for paragraph in _paragraphs),
        epilog="\n\n".join(("Examples:", *_lines)),
        cls=Command,
    )(_command)


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        # str(error) would begin with the error number.
        text = error.strerror if isinstance(error, GpubetonError) else error.strerror[:1].lower() + error.strerror[1:]
        return text if error.filename is None else f"{os.fspath(error.filename)}: {text}"
    if isinstance(error, GpubetonError | OSError):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}. --debug shows the traceback."


def _print_error(message: str) -> None:
    print(_paragraph(message), file=sys.stderr)


def _paragraph(message: str) -> str:
    lines = textwrap.wrap(f"gpubeton: {message}", 100, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(printable, lines))
