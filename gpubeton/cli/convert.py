"""``gpubeton convert``: a file from a dataset of another kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubeton.cli.options import Json, Workers
from gpubeton.cli.screen import counted, progress, result_console, show_json, size_text
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from gpubeton.conversion import Conversion

__all__ = ["convert"]

_MOST_SHOWN = 50


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of images (one folder for each class), a .csv or .parquet table of paths and labels, tar "
            "files of webdataset's ('train-{000..146}.tar'), a folder that Hugging Face's save_to_disk has written, "
            "or torchvision:NAME.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(help="The .beton file to write.", show_default=False)],
    kind: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="KIND",
            autocompletion=lambda: ["folder", "table", "webdataset", "huggingface", "torchvision"],
            help="What the source is: folder, table, webdataset, huggingface or torchvision. By default, as it looks.",
        ),
    ] = None,
    write_mode: Annotated[
        str,
        typer.Option(
            help="How images are stored: jpg (JPEG files that fit are taken over as they are), raw (pixels), smart "
            "(JPEG above --smart-threshold), proportion (JPEG for a share of --compress-probability).",
            autocompletion=lambda: ["jpg", "raw", "smart", "proportion"],
        ),
    ] = "jpg",
    max_resolution: Annotated[int | None, typer.Option(help="Longest side in pixels; larger images shrink.")] = None,
    quality: Annotated[int, typer.Option(help="JPEG quality, 1 to 100, of images that are encoded.")] = 90,
    smart_threshold: Annotated[int | None, typer.Option(help="Bytes as raw pixels, for smart.")] = None,
    compress_probability: Annotated[float, typer.Option(help="Share, for proportion.")] = 0.5,
    page_size: Annotated[int, typer.Option(help="Bytes of a page: a power of two from 2 MiB.")] = 8 << 20,
    workers: Workers = -1,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Store the samples in random order, by --seed.")] = False,
    seed: Annotated[int, typer.Option(help="For --shuffle and proportion.")] = 0,
    limit: Annotated[int | None, typer.Option(help="At most so many samples, the first ones.")] = None,
    on_error: Annotated[
        str,
        typer.Option(
            help="A bad image: raise (stop; what is done is kept), or skip (leave it out, list it).",
            autocompletion=lambda: ["raise", "skip"],
        ),
    ] = "raise",
    check: Annotated[
        bool, typer.Option(help="Whether JPEG files that are taken over as they are, are decoded once to be sure.")
    ] = True,
    image: Annotated[str | None, typer.Option(help="Column, or ending in tar files, that holds images.")] = None,
    label: Annotated[str | None, typer.Option(help="The same for labels; json:KEY in tar files.")] = None,
    classes: Annotated[
        Path | None, typer.Option(help="Text file with the name of a class in each line, in the order of labels.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Which split, for huggingface and torchvision.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Where torchvision keeps its data, or what a table's paths are relative to.")
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Let torchvision download the dataset.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away what an interrupted run has done.")] = False,
    json: Json = False,
) -> None:
    """Make a .beton file from images of any usual kind, with all cores.

    Interrupted by anything, the same command goes on where it was; the file is the same, byte for byte. Names of
    classes, the settings and a checksum of each region are kept in the file. FFCV reads it as well.
    """
    from gpubeton import conversion

    names = None if classes is None else _lines(classes)
    opened = conversion.open_source(
        source, kind, image=image, label=label, class_names=names, split=split, root=root, download=download
    )
    settings = conversion.Settings(
        write_mode=write_mode,
        max_resolution=max_resolution,
        quality=quality,
        smart_threshold=smart_threshold,
        compress_probability=compress_probability,
        page_size=page_size,
        shuffle=shuffle,
        seed=seed,
        limit=limit,
        check=check,
    )
    with progress("Converting") as advance:
        done = conversion.convert(
            opened, out, settings, on_error=on_error, num_workers=workers, fresh=fresh, on_progress=advance
        )
    if json:
        show_json(_to_dict(done))
    else:
        _draw(done)


def _lines(path: Path) -> list[str]:
    names = path.read_text(encoding="utf-8").splitlines()
    if not names:
        raise OptionError(f"--classes {path}: no lines in it, expected the name of a class in each")
    return names


def _to_dict(done: Conversion) -> dict[str, object]:
    return {
        "path": str(done.path),
        "samples": done.samples,
        "bytes": done.bytes,
        "resumed": done.resumed,
        "class_names": done.class_names,
        "began_anew": done.began_anew,
        "passed_over": done.passed_over,
        "skipped": [{"name": bad.name, "reason": bad.reason} for bad in done.skipped],
    }


def _draw(done: Conversion) -> None:
    console = result_console()
    for bad in done.skipped[:_MOST_SHOWN]:
        console.print(f"left out: {bad.name}: {bad.reason}", markup=False)
    if len(done.skipped) > _MOST_SHOWN:
        console.print(f"... and {len(done.skipped) - _MOST_SHOWN:,} more; --json lists all, and so do the file's notes")
    if done.passed_over:
        endings = ", ".join(f"{count:,} {ending or 'without an ending'}" for ending, count in done.passed_over.items())
        console.print(f"passed over, no images by their names or in no class: {endings}", markup=False)
    if done.began_anew:
        console.print("An unfinished file by other settings, or of another source, was thrown away.")
    resumed = f", {done.resumed:,} of them done before" if done.resumed else ""
    left_out = f", {len(done.skipped):,} left out" if done.skipped else ""
    classes = (
        "" if done.class_names is None else f" of {len(done.class_names):,} class{'es' * (len(done.class_names) != 1)}"
    )
    console.print(
        f"{done.path}: {counted(done.samples, 'sample')}{classes}{resumed}{left_out}; {size_text(done.bytes)}",
        markup=False,
    )
