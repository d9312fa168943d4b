"""``gpubeton index``: entry points of JPEG files, and one index of a folder of files, beside the .beton files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubeton.cli.screen import counted, printable, progress, result_console, show_json, size_text
from gpubeton.cli.shared_options import FieldClasses, Json, Workers, field_classes

if TYPE_CHECKING:
    from gpubeton.dataset import Indexed


def index(
    files: Annotated[
        list[str],
        typer.Argument(help=".beton files, or folders of them; a URL of a folder ends in /.", show_default=False),
    ],
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Also for files that have valid entry points, or a FILE.index of another kind."
        ),
    ] = False,
    workers: Workers = -1,
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Find places in JPEG files where decoding can begin, and store them beside each file, as FILE.index.

    Loaders then decode only the part of an image that a crop needs: the same images in less time. A file without
    checksums gets these, too, so that loaders find damaged values. Files made by `gpubeton convert` have both already.
    After an interruption, the same command continues.

    Of a folder: write one index of all its files, as index.json and index.bin, by which loaders open the folder.
    """
    from gpubeton._bytes.open_files import is_folder
    from gpubeton.dataset import index_images, index_shards

    classes = field_classes(field)
    found: list[dict[str, Any]] = []
    for file in files:
        if is_folder(file):
            written = index_shards(file, classes)
            found.append(vars(written))
            if not json:
                files_text, samples = counted(written.shards, "file"), counted(written.samples, "sample")
                size = size_text(written.bytes)
                result_console().print(
                    f"{printable(file)}: {files_text} with {samples} in index.json and index.bin, {size}"
                )
            continue
        with progress(f"Indexing {file}") as advance:
            done = index_images(file, classes, overwrite=overwrite, num_workers=workers, on_progress=advance)
        found.append({"file": file, **vars(done)})
        if not json:
            result_console().print(f"{printable(file)}: {_described(done)}")
    if json:
        show_json({"files": found})


def _described(done: Indexed) -> str:
    checksums = f"checksums of {counted(done.checksums, 'value')}"
    if not done.images:
        return f"{checksums} in {done.path.name}" if done.path else "it has no JPEG files to index"
    where = "in the file itself" if done.path is None else f"in {done.path.name}"
    before = "" if done.found else "; they were there before, --overwrite makes others"
    images = f"{done.indexed:,} of {counted(done.images, 'JPEG file')}"
    more = f" and {checksums}" if done.checksums else ""
    return f"entry points of {images}{more} {where}, {size_text(done.bytes)}{before}"
