"""Options and arguments that several commands have."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gpubeton.errors import OptionError

__all__ = ["FieldClasses", "File", "Json", "Workers", "field_classes", "imported", "sample_ids", "text_of"]

File = Annotated[Path, typer.Argument(help="A .beton file.", show_default=False)]

Json = Annotated[bool, typer.Option("--json", help="Write the result as JSON to stdout, and nothing else there.")]

Workers = Annotated[int, typer.Option(help="How many work at once; -1 means one for each core.")]

FieldClasses = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="NAME=MODULE:CLASS",
        help="The class of a custom field. May be given several times.",
        show_default=False,
    ),
]


def field_classes(given: list[str] | None) -> dict[str, Any]:
    """Import the classes of custom fields.

    Parameters
    ----------
    given : list of str or None
        ``NAME=MODULE:CLASS``.

    Returns
    -------
    dict of str to type
        The class of each.

    Raises
    ------
    OptionError
        If one is not there.
    """
    classes = {}
    for each in given or []:
        name, separator, where = each.partition("=")
        if not separator:
            raise OptionError(f"--field is {each!r}, expected NAME=MODULE:CLASS, e.g. caption=my_fields:CaptionField")
        classes[name] = imported(where, "--field")
    return classes


def imported(where: str, option: str) -> Any:
    """Import something from a module of the user's.

    Parameters
    ----------
    where : str
        ``MODULE:NAME``; the module is looked for in the current folder as well.
    option : str
        Named in errors.

    Returns
    -------
    object
        What stands there.

    Raises
    ------
    OptionError
        If there is nothing.
    """
    module, separator, name = where.partition(":")
    if not separator or not module or not name:
        raise OptionError(f"{option} is {where!r}, expected MODULE:NAME, e.g. my_fields:CaptionField")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise OptionError(f"{option} {where}: {module} could not be imported: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise OptionError(f"{option} {where}: {module} has no {name!r}")
        found = getattr(found, part)
    return found


def sample_ids(text: str, num_samples: int) -> list[int]:
    """Read which samples are meant.

    Parameters
    ----------
    text : str
        Numbers and slices, with commas between them; or ``@`` and the name of a file with one in each line.
    num_samples : int
        How many there are, for slices.

    Returns
    -------
    list of int
        Their ids, in this order.

    Raises
    ------
    OptionError
        If one is neither a number nor a slice, or there is no such sample.

    Examples
    --------
    >>> sample_ids("0:3,-1:,7", 10)
    [0, 1, 2, 9, 7]
    """
    words = text_of(Path(text[1:]), "--indices").split() if text.startswith("@") else text.split(",")
    found: list[int] = []
    word = ""
    try:
        for word in words:
            if ":" in word:
                bounds = [int(part) if part else None for part in word.split(":")]
                found += range(num_samples)[slice(*bounds)]
            else:
                found.append(int(word))
    except (TypeError, ValueError) as error:
        raise OptionError(f"--indices {text!r}: {word!r} is neither a number nor a slice such as 0:1000") from error
    for each in found:
        if not 0 <= each < num_samples:
            raise OptionError(f"--indices {text!r}: no sample {each}; there are {num_samples}: 0 to {num_samples - 1}")
    return found


def text_of(path: Path, option: str) -> str:
    """Read a text file.

    Parameters
    ----------
    path : Path
        The file.
    option : str
        Named in errors.

    Returns
    -------
    str
        What it holds.

    Raises
    ------
    OptionError
        If it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise OptionError(f"{option} {path}: not a text file: {error}; expected UTF-8, one entry a line") from error
