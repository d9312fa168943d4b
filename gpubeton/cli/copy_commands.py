"""``gpubeton split``, ``subset`` and ``merge``: copy samples into new files without encoding them again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubeton.cli.screen import counted, printable, progress, result_console, show_json, size_text
from gpubeton.cli.shared_options import (
    FieldClasses,
    File,
    Indices,
    Json,
    Label,
    Overwrite,
    field_classes,
    read_class_names,
    sample_ids,
)
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.reader import Reader

Seed = Annotated[int, typer.Option(min=0, help="Seed of all random choices.")]
PageSize = Annotated[int | None, typer.Option(help="Bytes of a page. Default: as in the source.")]


def split(
    file: File,
    parts: Annotated[
        list[str],
        typer.Argument(
            metavar="OUT=SHARE...",
            help="Files to write with their share: 0.9 or 90%, a number of samples (5000), or rest.",
            show_default=False,
        ),
    ],
    stratify: Annotated[
        bool, typer.Option("--stratify", help="Split each class of --label in these proportions.")
    ] = False,
    label: Label = "label",
    in_order: Annotated[
        bool, typer.Option("--in-order", help="Put the first samples into the first file. Default: a random choice.")
    ] = False,
    seed: Seed = 0,
    page_size: PageSize = None,
    overwrite: Overwrite = False,
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Split the samples of a file into several new files.

    Bytes are copied; nothing is encoded again. In each new file, samples keep their order.
    """
    from gpubeton import dataset
    from gpubeton._writing import check_target
    from gpubeton.reader import Reader

    classes = field_classes(field)
    reader = Reader(file, classes)
    named = [_share(part) for part in parts]
    if len({path.resolve() for path, _ in named}) < len(named):
        raise OptionError(f"{', '.join(parts)}: expected different files")
    for path, _ in named:  # before the first of them is written
        check_target(path, [file], overwrite=overwrite)
    labels = _labels(reader, label) if stratify else None
    shares = [share for _, share in named]
    chosen = dataset.split(reader.num_samples, shares, labels=labels, shuffle=not in_order, seed=seed)
    written = []
    for (path, _), samples in zip(named, chosen, strict=True):
        written.append(_copy(file, path, samples, classes, page_size, overwrite=overwrite))
    _show(written, json)
    left = reader.num_samples - sum(len(samples) for samples in chosen)
    if left:
        rest = f"left out: {counted(left, 'sample')} of {file}; OUT=rest takes the remaining samples"
        typer.echo(printable(rest), err=True)


def subset(
    file: File,
    out: Annotated[Path, typer.Argument(help="The file to write.", show_default=False)],
    indices: Indices = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", help="Only samples of this class, a name or a number. Can be repeated."),
    ] = None,
    label: Label = "label",
    per_class: Annotated[int | None, typer.Option(min=1, help="At most this many samples of each class.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="At most this many samples.")] = None,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Choose and order samples at random.")] = False,
    seed: Seed = 0,
    page_size: PageSize = None,
    overwrite: Overwrite = False,
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Write a new file with some samples of a file.

    Bytes are copied; nothing is encoded again.
    """
    from gpubeton import dataset
    from gpubeton.reader import Reader

    custom_fields = field_classes(field)
    reader = Reader(file, custom_fields)
    labels = _labels(reader, label) if classes or per_class else None
    chosen = dataset.choose(
        reader.num_samples,
        indices=None if indices is None else sample_ids(indices, reader.num_samples),
        labels=labels,
        classes=None if not classes else [_class_number(name, reader) for name in classes],
        per_class=per_class,
        count=count,
        shuffle=shuffle,
        seed=seed,
    )
    _show([_copy(file, out, chosen, custom_fields, page_size, overwrite=overwrite)], json)


def merge(
    files: Annotated[list[str], typer.Argument(help="The .beton files, in order.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.", show_default=False)],
    classes: Annotated[
        Path | None,
        typer.Option(help="Text file of class names, one per line, if the files have different ones."),
    ] = None,
    page_size: PageSize = None,
    overwrite: Overwrite = False,
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Write a new file with all samples of several files.

    The files need the same fields. Bytes are copied; nothing is encoded again. A Loader can also read several files as
    one, without merging.
    """
    names = read_class_names(classes)
    _show([_copy(files, output, None, field_classes(field), page_size, names, overwrite=overwrite)], json)


def _copy(
    files: str | list[str],
    out: Path,
    samples: NDArray[np.int64] | None,
    classes: dict[str, Any],
    page_size: int | None,
    class_names: list[str] | None = None,
    *,
    overwrite: bool,
) -> dict[str, Any]:
    from gpubeton.dataset import copy_samples
    from gpubeton.format import read_header

    with progress(f"Writing {out.name}") as advance:
        copy_samples(
            files, out, samples, classes, page_size=page_size, class_names=class_names, overwrite=overwrite,
            on_progress=advance,
        )  # fmt: skip
    return {"path": str(out), "samples": read_header(out).num_samples, "bytes": out.stat().st_size}


def _show(written: list[dict[str, Any]], json: bool) -> None:
    if json:
        show_json({"files": written})
        return
    for file in written:
        result_console().print(f"{file['path']}: {counted(file['samples'], 'sample')}; {size_text(file['bytes'])}")


def _share(text: str) -> tuple[Path, float | int | None]:
    name, _, share = text.rpartition("=")
    try:
        if name and share == "rest":
            return Path(name), None
        if name and share.endswith("%"):
            return Path(name), float(share[:-1]) / 100
        if name:
            return Path(name), float(share) if "." in share else int(share)
    except ValueError:
        pass
    raise OptionError(f"{text!r} has no share; expected OUT=SHARE, e.g. train.beton=0.9, val.beton=5000, x.beton=rest")


def _labels(reader: Reader, field: str) -> NDArray[np.int64]:
    column: NDArray[np.int64] = reader.index.column(field)
    if column.dtype.kind != "i":
        raise OptionError(
            f"field {field!r} is a {type(reader.handlers[field]).__name__}, expected labels; name them with --label"
        )
    return column


def _class_number(text: str, reader: Reader) -> int:
    names = reader.class_names or ()
    if text in names:
        return names.index(text)
    if text.removeprefix("-").isdecimal():
        return int(text)
    choices = f"it has {', '.join(map(repr, names[:20]))}" if names else "it has no class names, use numbers"
    raise OptionError(f"--class {text}: the file has no such class; {choices}")
