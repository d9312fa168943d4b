"""The commands and their options."""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

import typer

import gpubeton
from gpubeton import __version__
from gpubeton.cli.bench import bench
from gpubeton.cli.cat import cat, extract
from gpubeton.cli.convert import convert
from gpubeton.cli.doctor import doctor
from gpubeton.cli.group import Group
from gpubeton.cli.info import info
from gpubeton.cli.options import Json
from gpubeton.cli.split import merge, split, subset
from gpubeton.cli.verify import verify
from gpubeton.cli.view import view
from gpubeton.cli.warm_up import warm_up
from gpubeton.errors import OptionError

__all__ = ["app"]

app = typer.Typer(
    cls=Group,
    help="Training batches from .beton files, and all that such files need.",
    epilog="Exit codes: 0 fine; 1 something is wrong with the data, or it could not be read or written; 2 arguments "
    "that cannot be; 130 interrupted. --debug, anywhere, shows where an error comes from.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _examples(*lines: str) -> str:
    """Write examples so that each stands on a line of its own."""
    return "\n\n".join(("Examples:", *lines))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpubeton {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    del version, debug  # the callback of the one has done what there is to do; `Group` looks for the other


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where photos, the .beton file and the contact sheet go.")] = Path(
        ".demo"
    ),
    images: Annotated[int, typer.Option(min=64, help="Number of photos.")] = 400,
    rounds: Annotated[int, typer.Option(min=1, help="Timed laps of each loader.")] = 3,
    json: Json = False,
) -> None:
    """Turn photos into a .beton file, load it, and time that beside a PyTorch DataLoader."""
    _demo_module().run_demo(folder, images, rounds, json=json)


def _demo_module() -> Any:
    """Import the demo from the checkout that contains this package; wheels do not contain it."""
    checkout = Path(gpubeton.__file__).resolve().parent.parent
    if not (checkout / "benchmarks" / "harness" / "demo.py").is_file():
        raise OptionError(
            "the demo is not part of the installed package. Get the source code of gpubeton and run `make demo` in it; "
            "`gpubeton convert` and `gpubeton bench` work without it"
        )
    sys.path.insert(0, str(checkout))
    return import_module("benchmarks.harness.demo")


app.command(
    epilog=_examples(
        "gpubeton convert photos photos.beton --max-resolution 512",
        "gpubeton convert 'train-{000..146}.tar' train.beton --on-error skip",
        "gpubeton convert labels.csv train.beton --image path --label class",
        "gpubeton convert torchvision:CIFAR10 cifar.beton --split train --download --write-mode raw",
    )
)(convert)
app.command(epilog=_examples("gpubeton info train.beton", "gpubeton info train.beton --json | jq .fields"))(info)
app.command(epilog=_examples("gpubeton verify train.beton && echo sound"))(verify)
app.command(
    epilog=_examples(
        "gpubeton view train.beton sheet.png",
        "gpubeton view train.beton crops.png --train-size 224 --count 64",
        "gpubeton view train.beton augmented.png --pipeline my_training:pipelines",
    )
)(view)
app.command(
    epilog=_examples(
        "gpubeton cat train.beton 17",
        "gpubeton cat train.beton 17 --only image > 17.jpg",
    )
)(cat)
app.command(
    epilog=_examples(
        "gpubeton extract train.beton photos",
        "gpubeton extract train.beton some --indices 0:100",
    )
)(extract)
app.command(
    epilog=_examples(
        "gpubeton split all.beton train.beton=0.9 val.beton=rest --stratify --seed 1",
        "gpubeton split all.beton train.beton=50000 test.beton=10000 --in-order",
    )
)(split)
app.command(
    epilog=_examples(
        "gpubeton subset train.beton small.beton --per-class 100 --shuffle",
        "gpubeton subset train.beton pets.beton --class cat --class dog",
        "gpubeton subset train.beton first.beton --indices 0:1000",
    )
)(subset)
app.command(epilog=_examples("gpubeton merge part-0.beton part-1.beton -o all.beton"))(merge)
app.command(epilog=_examples("gpubeton bench train.beton", "gpubeton bench train.beton --size 192 --json"))(bench)
app.command(
    epilog=_examples(
        "gpubeton doctor train.beton --step-ms 50",
        "gpubeton doctor --loader train:make_loader",
        "gpubeton doctor -- python train.py --epochs 1",
        "gpubeton doctor --stats stats.jsonl   (of loops started with GPUBETON_STATS=stats.jsonl)",
    )
)(doctor)
app.command("warm-up", epilog=_examples("gpubeton warm-up", "RUN gpubeton warm-up   (in a Dockerfile)"))(warm_up)

for _command in app.registered_commands:
    # The lines of a docstring would end where they end in the source, whatever the width of the terminal.
    _paragraphs = (getdoc(_command.callback) or "").split("\n\n")
    _command.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in _paragraphs)
