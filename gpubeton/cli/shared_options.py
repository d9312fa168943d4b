"""Arguments, options and exit codes that several commands share."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gpubeton.errors import OptionError

FINDINGS = 1  # exit code: bad data was found, or a file could not be read or written
USAGE = 2  # exit code: wrong arguments, a missing file and a folder in place of a file included
INTERRUPTED = 130  # exit code after Ctrl-C, as in shells

# No Path, which would make one slash of two in `scheme://...`, the names of `gpubeton._bytes.open_files`.
File = Annotated[str, typer.Argument(help="A .beton file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
Workers = Annotated[int, typer.Option(min=-1, help="Parallel workers; default or 0: one per core.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")]
SOURCES = "Tables, tar files and datasets of other libraries"
ImageColumn = Annotated[
    str | None, typer.Option(help="Column (table) or extension (tar) of images.", rich_help_panel=SOURCES)
]
LabelColumn = Annotated[
    str | None, typer.Option(help="The same of labels; json:KEY in tar files.", rich_help_panel=SOURCES)
]
ClassNames = Annotated[
    Path | None, typer.Option(help="Text file of class names, one per line.", rich_help_panel=SOURCES)
]
Split = Annotated[str | None, typer.Option(help="Split of huggingface or torchvision.", rich_help_panel=SOURCES)]
Root = Annotated[
    str | None, typer.Option(help="Base folder or URL of a table, or torchvision's folder.", rich_help_panel=SOURCES)
]
Indices = Annotated[
    str | None,
    typer.Option(help="Samples in this order, such as 0:1000,4000,7 (Python slices), or @FILE with one per line."),
]
Label = Annotated[str, typer.Option(help="The field with the labels.")]
FieldClasses = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="NAME=MODULE:CLASS",
        help="Class of a custom field. Can be repeated.",
        show_default=False,
    ),
]


def choice(values: Sequence[str], *names: str, help: str, group: str | None = None) -> Any:
    """Declare an option that takes one of the values, which its help names; the library checks it."""
    return typer.Option(*names, metavar="KIND", autocompletion=lambda: list(values), help=help, rich_help_panel=group)


SourceKind = Annotated[
    str | None,
    choice(
        ("folder", "table", "webdataset", "zip", "huggingface", "torchvision"),
        "--from",
        help="Kind of the source: folder, table, webdataset, zip, huggingface or torchvision. Default: detected.",
    ),
]


def field_classes(options: list[str] | None) -> dict[str, Any]:
    """Import the classes of custom fields, each an option ``NAME=MODULE:CLASS``."""
    classes = {}
    for option in options or []:
        name, separator, path = option.partition("=")
        if not separator:
            raise OptionError(f"--field is {option!r}, expected NAME=MODULE:CLASS, e.g. caption=my_fields:CaptionField")
        classes[name] = import_object(path, "--field")
    return classes


def import_object(path: str, option: str) -> Any:
    """Import ``MODULE:NAME``, also from the current folder; `option` is named in errors."""
    module, separator, name = path.partition(":")
    if not separator or not module or not name:
        raise OptionError(f"{option} is {path!r}, expected MODULE:NAME, e.g. my_fields:CaptionField")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        value: Any = importlib.import_module(module)
    except ImportError as error:
        raise OptionError(f"{option} {path}: {module} could not be imported: {error}") from error
    for part in name.split("."):
        if not hasattr(value, part):
            raise OptionError(f"{option} {path}: {module} has no {name!r}")
        value = getattr(value, part)
    return value


def sample_ids(text: str, num_samples: int) -> list[int]:
    """Parse sample ids and slices separated by commas, or ``@FILE`` with one on each line.

    Examples
    --------
    >>> sample_ids("0:3,-1:,7", 10)
    [0, 1, 2, 9, 7]
    """
    words = read_text(Path(text[1:]), "--indices").split() if text.startswith("@") else text.split(",")
    samples: list[int] = []
    word = ""
    try:
        for word in words:
            if ":" in word:
                bounds = [int(part) if part else None for part in word.split(":")]
                chosen = range(num_samples)[slice(*bounds)]
                if not chosen:
                    raise OptionError(f"--indices {text!r}: {word} has no samples; there are {num_samples}")
                samples += chosen
            else:
                samples.append(int(word))
    except OptionError:
        raise
    except (TypeError, ValueError) as error:
        raise OptionError(f"--indices {text!r}: {word!r} is neither a number nor a slice such as 0:1000") from error
    return samples


def read_class_names(path: Path | None) -> list[str] | None:
    """Read the file that ``--classes`` names, with a class on each line."""
    if path is None:
        return None
    names = read_text(path, "--classes").splitlines()
    if not names:
        raise OptionError(f"--classes {path}: the file is empty, expected one class name per line")
    return names


def read_text(path: Path, option: str) -> str:
    """Read a UTF-8 text file; `option` is named in errors."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise OptionError(f"{option} {path}: not a text file: {error}; expected UTF-8, one entry per line") from error
