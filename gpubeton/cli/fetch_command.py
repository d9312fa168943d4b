"""``gpubeton fetch``: files of an object store on a disk of this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubeton.cli.screen import printable, progress, result_console, show_json, size_text
from gpubeton.cli.shared_options import Json
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from gpubeton.fetching import Fetched


def fetch(
    url: Annotated[
        str, typer.Argument(help="A .beton file, or a folder of shards, which ends in /.", show_default=False)
    ],
    folder: Annotated[Path, typer.Argument(help="The folder for the files.", show_default=False)],
    share: Annotated[
        str, typer.Option(metavar="K/N", help="Only every N-th shard from the K-th on, counted from 0.")
    ] = "0/1",
    json: Json = False,
) -> None:
    """Copy .beton files from an object store to a folder of this machine, and compare them with their checksums.

    A file appears under its name when it is complete. After an interruption of any kind, the same command continues, or
    begins again if the server names no versions of files (a strong ETag), as object stores do.
    Files that are there are compared with the store's versions and with their checksums, and not copied again.
    """
    from gpubeton.fetching import fetch as fetch_files

    with progress(f"Fetching {url}") as advance:
        found = fetch_files(url, folder, share=_parse_share(share), on_progress=advance)
    if json:
        show_json({"files": [vars(each) for each in found]})
        return
    for each in found:
        result_console().print(f"{printable(str(each.path))}: {_described(each)}")


def _described(file: Fetched) -> str:
    how = "was there" if file.was_there else "fetched"
    checked = f"{file.checksums:,} regions agree with their checksums" if file.checksums else "it has no checksums"
    return f"{size_text(file.bytes)}, {how}, {checked}"


def _parse_share(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None:
        raise OptionError(f"--share is {text!r}; expected K/N, e.g. 3/16 for the fourth of sixteen")
    return int(found[1]), int(found[2])
