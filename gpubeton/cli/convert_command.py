"""``gpubeton convert``: a .beton file from a dataset of another kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubeton.cli.screen import counted, progress, result_console, show_json, size_text
from gpubeton.cli.shared_options import (
    SOURCES,
    ClassNames,
    ImageColumn,
    Json,
    LabelColumn,
    Overwrite,
    Root,
    SourceKind,
    Split,
    Workers,
    choice,
    read_class_names,
)
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.dataset import Conversion, ShardedConversion, SkippedSample
    from gpubeton.dataset.shards import Shard

_MAX_LINES = 50
#: Part of the bytes of shards that are values, below which the page size is named.
_GOOD_PAGE_USE = 0.8
_MAX_SAME_REASON = 5
# Groups of options in the help.
_JPEG, _CLUSTERS = "JPEG files, and pages", "Clusters"
# The keys of `Conversion.changed`, in words.
_CHANGES = {
    "alpha": "had transparency, which was dropped; --mode rgba keeps it",
    "bits": "had 16 bits per channel, reduced to 8; --mode rgb16 (or rgba16) keeps 16 bits of PNG files",
    "colours": "had colors and became gray; --mode rgb keeps them",
    "jpeg": "became baseline JPEG, with a loss of quality; --write-mode raw keeps the exact pixels",
    "orientation": "had an EXIF orientation, ignored as in Pillow; --apply-orientation turns them, as torchcodec does",
    "position": "kept a GPS position in EXIF or XMP data; --strip-metadata removes it without changing a pixel",
    "turned": "had an EXIF orientation: turned by it, and encoded again",
    "levels": "had a maximum value other than 255 or 65535, rescaled to it; if the exact values matter, make PNG "
    "files of 8 or 16 bits first",
    "palette": "had a palette: its indices were kept, not its colors; --mode rgb keeps the colors",
}


def _option(group: str, help: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=group, **options)


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of images with a sub-folder for each class; a .csv or .parquet table of paths and labels; "
            "WebDataset tar files ('train-{000..146}.tar'); a .zip file; .arrow files or a folder written by Hugging "
            "Face's save_to_disk; all these also in an object store; or torchvision:NAME.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str,
        typer.Argument(
            help="The .beton file to write; with --shards a folder, or a prefix such as s3://bucket/train/.",
            show_default=False,
        ),
    ],
    kind: SourceKind = None,
    mode: Annotated[
        str,
        choice(
            ("rgb", "gray", "rgba", "gray16", "rgb16", "rgba16"),
            help="Kind of images: rgb for FFCV and GPUs; gray also for masks (keeps palette indices); gray16 such as "
            "depth maps; or rgba, rgb16, rgba16.",
        ),
    ] = "rgb",
    write_mode: Annotated[
        str | None,
        choice(
            ("jpg", "raw", "smart", "proportion", "png"),
            help="jpg copies JPEG files that fit unchanged; raw: pixels; smart: JPEG above --smart-threshold; "
            "proportion: JPEG for --compress-probability; png: lossless, not for rgb. Default: jpg for rgb, else png.",
        ),
    ] = None,
    max_resolution: Annotated[int | None, typer.Option(help="Longest side; larger images shrink.")] = None,
    interpolation: Annotated[
        str, choice(("area", "nearest"), help="How they shrink: area, or nearest for masks, not for rgb.")
    ] = "area",
    workers: Workers = -1,
    on_error: Annotated[
        str,
        choice(("raise", "skip"), help="At a bad image, raise: stop, and continue in another run; skip: list it."),
    ] = "raise",
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Store samples in random order.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="For --shuffle and proportion.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Only the first so many samples.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete an unfinished file and start again.")] = False,
    overwrite: Overwrite = False,
    image: ImageColumn = None,
    label: LabelColumn = None,
    classes: ClassNames = None,
    split: Split = None,
    root: Root = None,
    download: Annotated[bool, _option(SOURCES, "Let torchvision download.", "--download")] = False,
    quality: Annotated[int, _option(_JPEG, "JPEG quality, 1 to 100.")] = 90,
    smart_threshold: Annotated[int | None, _option(_JPEG, "Bytes of raw pixels, for smart.")] = None,
    compress_probability: Annotated[float, _option(_JPEG, "Share of JPEG, for proportion.")] = 0.5,
    check: Annotated[bool, _option(_JPEG, "Decode copied JPEG files once.")] = True,
    index: Annotated[
        bool, _option(_JPEG, "Store entry points of JPEG files: loaders decode only what crops need.")
    ] = True,
    apply_orientation: Annotated[
        bool, _option(_JPEG, "Turn images by their EXIF orientation; encodes them again.", "--apply-orientation")
    ] = False,
    strip_metadata: Annotated[
        bool,
        _option(_JPEG, "Remove EXIF (GPS), XMP and comments from copied files, without loss.", "--strip-metadata"),
    ] = False,
    page_size: Annotated[int, _option(_JPEG, "Bytes of a page; default: 8 MiB.", show_default=False)] = 8 << 20,
    shards: Annotated[int | None, _option(_CLUSTERS, "Make so many files of a dataset.", show_default=False)] = None,
    shard: Annotated[
        str | None,
        _option(
            _CLUSTERS,
            "Make only every M-th of the --shards from the N-th on, counted from 0; N is one of them.",
            metavar="N/M",
            show_default=False,
        ),
    ] = None,
    on: Annotated[str, choice(("here", "ray"), help="Where shards are made: here or ray.", group=_CLUSTERS)] = "here",
    json: Json = False,
) -> None:
    """Make a .beton file from a dataset of images, with all cores.

    After an interruption, the same command continues; the file becomes the same, byte for byte. It also stores class
    names, the settings, and a checksum of each region. FFCV can read files of mode rgb.
    """
    from gpubeton import dataset
    from gpubeton._writing import check_target
    from gpubeton.dataset.shards import split_source

    options: dict[str, Any] = {
        "image": image, "label": label, "class_names": read_class_names(classes), "split": split, "root": root,
        "download": download,
    }  # fmt: skip
    settings = dataset.Settings(
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
        index=index,
        apply_orientation=apply_orientation,
        strip_metadata=strip_metadata,
    )
    if shards is not None:
        if fresh or overwrite:
            raise OptionError("--fresh and --overwrite are for one file; delete the shards to make them again")
        if shard is not None and on != "here":
            raise OptionError("--shard makes shards here; leave it out to make all of them with --on ray")
        parts = split_source(source, out, shards, settings, kind, on_error, None, options)
        share = (0, 1) if shard is None else _parse_shard(shard, shards)
        _make_shards(parts, share, on=on, workers=workers, json=json)
        return
    if shard is not None or on != "here" or "://" in out:
        raise OptionError("--shard, --on ray, and targets in object stores need --shards; 1 is enough")
    check_target(out, overwrite=overwrite)
    if not out.endswith(".beton"):
        raise OptionError(f"{out}: expected a name that ends in .beton. For several files in a folder: --shards N")
    opened = dataset.open_source(source, kind, **options)
    with progress("Converting") as advance:
        done = dataset.convert(
            opened, out, settings, on_error=on_error, num_workers=workers, fresh=fresh, overwrite=overwrite,
            on_progress=advance,
        )  # fmt: skip
    if json:
        show_json(_to_dict(done))
        return
    _draw_left_out(done)
    if done.began_anew:
        result_console().print("Deleted an unfinished file: its settings were others, or the source has changed since.")
    _draw_samples(done, str(done.path), f", {done.resumed:,} of them done before" if done.resumed else "")


def _to_dict(done: Conversion | ShardedConversion) -> dict[str, object]:
    return {**vars(done), "skipped": [vars(bad) for bad in done.skipped]}


def _left_out(skipped: list[SkippedSample]) -> list[str]:
    """List the images that were left out; a reason that many of them have appears once."""
    names_of: dict[str, list[str]] = {}
    for bad in skipped:
        names_of.setdefault(bad.reason, []).append(bad.name)
    lines = []
    for reason, names in names_of.items():
        if len(names) > _MAX_SAME_REASON:
            others = f"{len(names) - 1:,} more (--json and the file's notes list them)"
            lines.append(f"left out: {names[0]} and {others}: {reason}")
        else:
            lines += [f"left out: {name}: {reason}" for name in names]
    return lines


def _draw_samples(done: Conversion | ShardedConversion, name: str, more: str) -> None:
    classes = "" if done.class_names is None else f" of {counted(len(done.class_names), 'class')}"
    left_out = f", {len(done.skipped):,} left out" if done.skipped else ""
    result_console().print(
        f"{name}: {counted(done.samples, 'sample')}{classes}{more}{left_out}; {size_text(done.bytes)}"
    )


def _draw_left_out(done: Conversion | ShardedConversion) -> None:
    """List what the file, or the shards, do not have of the source."""
    console = result_console()
    lines = _left_out(done.skipped)
    for line in lines[:_MAX_LINES]:
        console.print(line)
    if len(lines) > _MAX_LINES:
        console.print(f"... and {len(lines) - _MAX_LINES:,} more; --json and the file's notes list all")
    if done.passed_over:
        endings = ", ".join(
            f"{count:,} {ending or 'without an extension'}" for ending, count in done.passed_over.items()
        )
        console.print(f"ignored, because they are no images by their names, or in no class: {endings}")
    for name, count in done.changed.items():
        console.print(f"{counted(count, 'image')} {_CHANGES.get(name, name)}")
    names = ", ".join(map(repr, done.unused[:_MAX_LINES]))
    if names and done.has_labels:
        console.print(f"not stored: {names}")
    elif names:
        console.print(f"stored without labels: {names} are not used; --label NAME takes one of them as label")
    elif not done.has_labels:
        console.print("stored without labels: no class was found beside the images")


def _parse_shard(text: str, count: int) -> tuple[int, int]:
    """Read which of `count` shards to make: N, or N/M."""
    match = re.fullmatch(r"(\d+)(?:/(\d+))?", text)
    start, step = (int(match[1]), int(match[2] or count)) if match else (0, 0)
    if start >= step:
        raise OptionError(
            f"--shard is {text!r}; expected 0 to {count - 1}, or N/M with N less than M, e.g. 3/16 for every 16th "
            "shard from the fourth on"
        )
    return start, step


def _make_shards(shards: Sequence[Shard], share: tuple[int, int], *, on: str, workers: int, json: bool) -> None:
    """Make all shards, or some; the call that completes the dataset finishes it."""
    from gpubeton.dataset.shards import find_missing, finish, make_shards
    from gpubeton.format.data_files import DESCRIPTION

    with progress("Converting") as advance:
        new = make_shards(shards, share, on, workers, advance)
    missing = find_missing(shards)
    is_late = not new and share != (0, 1) and shards[0].folder.holds(DESCRIPTION)  # a task of a finished dataset
    if missing or is_late:
        _draw_share(shards, share, new, missing, json=json)
        return
    done = finish(shards)
    if json:
        show_json(_to_dict(done))
        return
    _draw_left_out(done)
    _draw_samples(done, done.target, f" in {counted(done.shards, 'file')}")
    if 0 < done.value_bytes < _GOOD_PAGE_USE * done.bytes:
        result_console().print(
            f"page use: {done.value_bytes / done.bytes:.0%} of the files are images and other values, most of the rest "
            f"is room in pages of {size_text(shards[0].settings.page_size)}. Fewer --shards, or a smaller --page-size, "
            "have less"
        )


def _draw_share(
    shards: Sequence[Shard], share: tuple[int, int], new: Sequence[int], missing: Sequence[int], *, json: bool
) -> None:
    start, step = share
    numbers, folder = range(len(shards))[start::step], shards[0].folder
    if json:
        state = {"shard": next(iter(numbers), None), "shards": list(numbers), "made": bool(new)}
        show_json({"target": folder.name, **state, "missing": list(missing)})
        return
    for number in numbers:
        done_by = "made" if number in new else "it was there"
        result_console().print(f"{folder.address(shards[number].name)}: {done_by}")
    result_console().print(f"{len(missing):,} of {len(shards):,} shards are missing")
