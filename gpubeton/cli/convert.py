"""``gpubeton convert``: a file from a dataset of another kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpubeton.cli.options import Json, Workers, text_of
from gpubeton.cli.screen import counted, progress, result_console, show_json, size_text
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from gpubeton.conversion import BadSource, Conversion

__all__ = ["convert"]

_MOST_SHOWN = 50
_MOST_ALIKE = 5
_CHANGES = {
    "alpha": "had transparency, which was left out; --mode rgba keeps it",
    "bits": "had 16 bits a colour, cut to 8; --mode rgb16 (or rgba16) keeps those of PNG files",
    "colours": "had colours and became gray; --mode rgb keeps them",
    "levels": "had another largest number than 255 or 65535, and were scaled to it; where the numbers count, make "
    "PNG files of 8 or 16 bits of them before",
    "palette": "had a palette: its numbers were kept, not the colours they stand for; --mode rgb keeps those",
}
"""What `Conversion.changed` counts, in words."""


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
    mode: Annotated[
        str,
        typer.Option(
            help="The kind of images in the file: rgb, which FFCV and GPUs read, gray (also for masks: images with a "
            "palette keep their numbers), rgba, gray16 (depth, and other numbers of 16 bits), rgb16 or rgba16.",
            autocompletion=lambda: ["rgb", "gray", "rgba", "gray16", "rgb16", "rgba16"],
        ),
    ] = "rgb",
    write_mode: Annotated[
        str | None,
        typer.Option(
            help="How images are stored: jpg (JPEG files that fit are taken over as they are), raw (pixels), smart "
            "(files above --smart-threshold), proportion (files for a share of --compress-probability), png (without "
            "loss; not in mode rgb). By default jpg in mode rgb, else png.",
            autocompletion=lambda: ["jpg", "raw", "smart", "proportion", "png"],
        ),
    ] = None,
    max_resolution: Annotated[int | None, typer.Option(help="Longest side in pixels; larger images shrink.")] = None,
    interpolation: Annotated[
        str,
        typer.Option(
            help="How larger images shrink: area (means), or, not in mode rgb, nearest (pixels are picked: for masks).",
            autocompletion=lambda: ["area", "nearest"],
        ),
    ] = "area",
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
    classes, the settings and a checksum of each region are kept in the file. FFCV reads files of mode rgb as well.
    """
    from gpubeton import conversion

    names = None if classes is None else _lines(classes)
    opened = conversion.open_source(
        source, kind, image=image, label=label, class_names=names, split=split, root=root, download=download
    )
    settings = conversion.Settings(
        write_mode=write_mode or "",
        max_resolution=max_resolution,
        quality=quality,
        smart_threshold=smart_threshold,
        compress_probability=compress_probability,
        page_size=page_size,
        shuffle=shuffle,
        seed=seed,
        limit=limit,
        check=check,
        mode=mode,
        interpolation=interpolation,
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
    names = text_of(path, "--classes").splitlines()
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
        "changed": done.changed,
        "skipped": [{"name": bad.name, "reason": bad.reason} for bad in done.skipped],
    }


def _left_out(skipped: list[BadSource]) -> list[str]:
    """Say what was left out: a reason that many have, such as another kind of image, once."""
    names: dict[str, list[str]] = {}
    for bad in skipped:
        names.setdefault(bad.reason, []).append(bad.name)
    lines = []
    for reason, those in names.items():
        if len(those) > _MOST_ALIKE:
            lines.append(
                f"left out: {those[0]} and {len(those) - 1:,} more, which --json and the file's notes list: {reason}"
            )
        else:
            lines += [f"left out: {name}: {reason}" for name in those]
    return lines


def _draw(done: Conversion) -> None:
    console = result_console()
    lines = _left_out(done.skipped)
    for line in lines[:_MOST_SHOWN]:
        console.print(line)
    if len(lines) > _MOST_SHOWN:
        console.print(f"... and {len(lines) - _MOST_SHOWN:,} more; --json lists all, and so do the file's notes")
    if done.passed_over:
        endings = ", ".join(f"{count:,} {ending or 'without an ending'}" for ending, count in done.passed_over.items())
        console.print(f"passed over, no images by their names or in no class: {endings}")
    for name, count in done.changed.items():
        console.print(f"{counted(count, 'image')} {_CHANGES.get(name, name)}")
    if done.began_anew:
        console.print("An unfinished file by other settings, or of another source, was thrown away.")
    resumed = f", {done.resumed:,} of them done before" if done.resumed else ""
    left_out = f", {len(done.skipped):,} left out" if done.skipped else ""
    classes = (
        "" if done.class_names is None else f" of {len(done.class_names):,} class{'es' * (len(done.class_names) != 1)}"
    )
    console.print(
        f"{done.path}: {counted(done.samples, 'sample')}{classes}{resumed}{left_out}; {size_text(done.bytes)}",
    )
