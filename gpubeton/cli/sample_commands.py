"""``gpubeton cat`` and ``gpubeton extract``: print samples, or write them as the files they were made from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubeton.cli.screen import counted, progress, result_console, show_json, size_text
from gpubeton.cli.shared_options import (
    FINDINGS,
    FieldClasses,
    File,
    Json,
    Label,
    Overwrite,
    Workers,
    field_classes,
    sample_ids,
)
from gpubeton.errors import OptionError
from gpubeton.fields.codecs import CODECS

if TYPE_CHECKING:
    from gpubeton.dataset import Contents

_MAX_ELEMENTS = 1000
_MAX_FINDINGS = 50


def cat(
    file: File,
    sample: Annotated[int, typer.Argument(help="Number of the sample, from 0.", show_default=False)],
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="FIELD",
            help="Write only this field, as a file: JPEG unchanged, pixels as PNG, arrays as .npy.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write with --only. Default: stdout.")
    ] = None,
    overwrite: Overwrite = False,
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Print the values of a sample, or write one of them as a file."""
    from gpubeton._writing.atomic_file import check_target
    from gpubeton.dataset import Contents

    if only is not None and json:
        raise OptionError("--only writes a file and --json describes all values; choose one")
    if output is not None:
        check_target(output, [file], overwrite=overwrite)
    contents = Contents(file, field_classes(field))
    if only is not None:
        _write(contents.to_file(sample, only)[1], output)
        return
    if output is not None:
        raise OptionError("--output needs --only FIELD: the field to write")
    values = {name: contents.value(sample, name) for name in contents.index.names}
    labels = contents.labels()
    if json:
        named = labels is not None and contents.class_names is not None
        name = contents.class_name(int(labels[sample])) if named and labels is not None else None
        described = {each: _described(value) for each, value in values.items()}
        show_json({"sample": sample, "values": described, "class_name": name})
        return
    console = result_console()
    for name, value in values.items():
        console.print(f"{name}: {_text(contents, name, value)}")


def extract(
    file: File,
    folder: Annotated[Path, typer.Argument(help="A new folder.", show_default=False)],
    indices: Annotated[
        str | None, typer.Option(help="Samples, such as 0:1000,4000,7 (Python slices), or @FILE with one per line.")
    ] = None,
    label: Label = "label",
    workers: Workers = -1,
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Write samples as files, with a table that lists them.

    The files are FOLDER/image/CLASS/NUMBER.jpg, the table is FOLDER/samples.csv. JPEG files are written unchanged,
    pixels as PNG, arrays as .npy. `gpubeton convert FOLDER/samples.csv` makes the same samples again. Values of damaged
    samples that cannot be written are listed, and the exit code is 1.
    """
    from gpubeton import dataset
    from gpubeton.format import read_header

    chosen = None if indices is None else sample_ids(indices, read_header(file).num_samples)
    with progress("Extracting") as advance:
        done = dataset.extract(
            file, folder, chosen, field_classes(field), label=label, num_workers=workers, on_progress=advance
        )
    bad = [vars(each) for each in done.bad]
    if json:
        images = None if done.images is None else str(done.images)
        show_json(
            {"folder": str(folder), "table": str(done.table), "images": images, "samples": done.samples, "bad": bad}
        )
    else:
        console = result_console()
        for each in done.bad[:_MAX_FINDINGS]:
            console.print(f"sample {each.sample}, field {each.field!r}: {each.what}")
        console.print(f"{counted(done.samples, 'sample')} in {folder}; {done.table} lists them")
    if bad:
        raise typer.Exit(FINDINGS)


def _write(content: bytes, output: Path | None) -> None:
    if output is not None:
        output.write_bytes(content)
        return
    if sys.stdout.isatty():
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise OptionError(
                f"{len(content)} bytes of binary data cannot be printed on a terminal; use --output FILE, or a pipe"
            ) from error
        for line in text.splitlines():
            result_console().print(line.expandtabs())
        return
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _described(value: Any) -> Any:
    """Describe a value for JSON; the elements of large arrays are left out."""
    from gpubeton.dataset import StoredImage
    from gpubeton.format.file_notes import MOST_LEVELS, nesting

    if isinstance(value, StoredImage):
        return {"kind": value.kind, "height": value.height, "width": value.width, "bytes": len(value.content)}
    if isinstance(value, bytes):
        return {"bytes": len(value), "begins": value[:32].hex()}
    if hasattr(value, "dtype"):
        whole = value.tolist() if value.size <= _MAX_ELEMENTS and value.dtype.kind in "biuf" else None
        return {"dtype": str(value.dtype), "shape": list(value.shape), "elements": whole}
    levels = nesting(value)
    return {"levels": levels} if levels > MOST_LEVELS else value


def _text(contents: Contents, name: str, value: Any) -> str:
    """Describe a value for people."""
    from gpubeton.dataset import StoredImage

    shown = _described(value)
    if isinstance(value, StoredImage):
        kind = next((f"{codec.name} file" for codec in CODECS.values() if codec.suffix == value.kind), "raw pixels")
        return f"{kind}, {value.height} × {value.width} (height × width), {size_text(len(value.content))}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes, {shown['begins']}{'...' if len(value) > 32 else ''}"
    if hasattr(value, "dtype"):
        return f"{shown['dtype']} of shape {tuple(shown['shape'])} {shown['elements'] or ''}"
    if shown is not value:
        return f"JSON of {shown['levels']} levels; use --only {name} to write it"
    labels = contents.labels(name)
    if labels is not None and name == "label" and contents.class_names is not None:
        return f"{value} ({contents.class_name(int(value))})"
    return str(value)
