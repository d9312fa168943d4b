"""``gpubeton info``, ``verify``, ``view``, ``cat``, ``extract``: show what a file holds, check it, give its samples."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpubeton.cli.screen import counted, histogram, printable, progress, result_console, show_json, size_text
from gpubeton.cli.shared_options import (
    FINDINGS,
    FieldClasses,
    File,
    Indices,
    Json,
    Label,
    Overwrite,
    Workers,
    field_classes,
    sample_ids,
)
from gpubeton.errors import BadImageError, OptionError
from gpubeton.fields.codecs import CODECS, JPEG
from gpubeton.format.layout import MCUS_PER_ENTRY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.dataset import Contents, FieldSummary, ImageSummary, Spread, Summary, Verification

_MAX_CLASSES = 20
_MAX_FINDINGS = 100
_MAX_ELEMENTS = 1000
_CAPTION_LETTERS = 24
_CAPTION_HEIGHT = 16
_MARGIN = 6
_BACKGROUND = 235
# Gray images whose maximum is below this share of the possible maximum are shown brighter.
_DARK = 1 / 8


def info(
    file: File,
    every: Annotated[bool, typer.Option("--all", help="Look at all JPEG files, not at 20,000.")] = False,
    histograms: Annotated[bool, typer.Option("--histograms", help="Draw how sizes and numbers are spread.")] = False,
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Show the contents of a file: fields, sizes, classes, kinds of JPEG.

    Reads only the index and the headers of the JPEG files; decodes nothing.
    """
    from gpubeton.dataset import summarize

    summary = summarize(file, field_classes(field), look_at=None if every else 20_000)
    if json:
        show_json(asdict(summary))
        return
    console = result_console()
    _draw_file(console, summary)
    for column in summary.fields:
        mode = f", mode {column.image.mode}" if column.image and column.image.mode not in ("", "rgb") else ""
        console.print()
        console.print(Text.assemble((printable(column.name), "bold"), f"  {column.type}{mode}"))
        for line in _field_lines(column, summary.class_names, histograms=histograms):
            console.print(line)


def verify(file: File, workers: Workers = -1, field: FieldClasses = None, json: Json = False) -> None:
    """Read and check a whole file: index, regions, checksums, images, JSON, entry points.

    Decodes every image file. Lists each bad sample; the exit code is 1 if there are any. Files made by `gpubeton
    convert`, or by a DatasetWriter with notes, have checksums; without them, changed raw pixels cannot be detected.
    """
    from gpubeton import dataset

    with progress("Verifying") as advance:
        result = dataset.verify(file, field_classes(field), num_workers=workers, on_progress=advance)
    if json:
        show_json({"sound": result.is_sound, "bad_samples": result.bad_samples, **asdict(result)})
    else:
        _draw_verification(result_console(), file, result)
    if not result.is_sound or not (json or result.samples):
        raise typer.Exit(FINDINGS)


def view(
    file: File,
    out: Annotated[Path, typer.Argument(help="The PNG file to write.", show_default=False)],
    indices: Indices = None,
    count: Annotated[int, typer.Option(min=1, help="Number of random samples, without --indices.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random choices.")] = 0,
    train_size: Annotated[
        int | None, typer.Option(min=1, help="Show random crops of this size, flipped at random.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="The field with the images. Default: the first.")] = None,
    label: Label = "label",
    columns: Annotated[int, typer.Option(min=1, help="Images per row.")] = 8,
    side: Annotated[int, typer.Option(min=16, help="Width of each image, in pixels.")] = 160,
    overwrite: Overwrite = False,
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Draw samples as one picture, as stored or cropped for training.

    Each has its number and class as a caption. Gray images with small values, such as masks and depth maps, are shown
    brighter: the maximum of each is white.
    """
    from PIL import Image

    from gpubeton._writing import check_target
    from gpubeton.dataset import choose
    from gpubeton.dataset.contents import Contents, class_name

    if Image.registered_extensions().get(out.suffix.lower()) not in Image.SAVE:
        raise OptionError(f"{out}: pictures cannot be written as {out.suffix or 'this'}; expected a name such as x.png")
    check_target(out, [file], overwrite=overwrite)
    classes = field_classes(field)
    contents = Contents(file, classes)
    total = contents.index.num_samples
    names = contents.image_fields
    if not names or (image is not None and image not in names):
        choices = f"it has {', '.join(map(repr, names))}" if names else "it has none"
        raise OptionError(f"{contents.index.path}: no field {image or ''} with images; {choices}")
    name = image or names[0]
    if indices is not None:
        chosen = choose(total, indices=sample_ids(indices, total))
    else:
        chosen = choose(total, count=count, shuffle=True, seed=seed)
        chosen.sort()
    if train_size is None:
        pictures = _stored(contents, name, chosen.tolist(), side)
    else:
        pictures = _cropped(contents, file, name, train_size, chosen, seed, classes)
    labels = contents.labels(label)
    captions = [str(sample) for sample in chosen.tolist()]
    if labels is not None:
        titles = [class_name(label, contents.class_names) for label in labels[chosen].tolist()]
        captions = [f"{sample} {title}"[:_CAPTION_LETTERS] for sample, title in zip(captions, titles, strict=True)]
    write_contact_sheet(out, pictures, captions, columns, side)
    if json:
        show_json({"path": str(out), "samples": chosen.tolist(), "captions": captions})
    else:
        result_console().print(f"{out} shows {counted(len(captions), 'sample')} of {file}")


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
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Print the values of a sample, or write one of them as a file to stdout."""
    from gpubeton.dataset.contents import Contents, class_name

    if only is not None and json:
        raise OptionError("--only writes a file and --json describes all values; choose one")
    contents = Contents(file, field_classes(field))
    if only is not None:
        _write(contents.to_file(sample, only)[1])
        return
    values = {name: contents.value(sample, name) for name in contents.index.names}
    labels = contents.labels()
    if json:
        names = contents.class_names
        title = None if labels is None or names is None else class_name(int(labels[sample]), names)
        described = {name: _described(value) for name, value in values.items()}
        show_json({"sample": sample, "values": described, "class_name": title})
        return
    console = result_console()
    for name, value in values.items():
        console.print(f"{name}: {_text(contents, name, value)}")


def extract(
    file: File,
    folder: Annotated[Path, typer.Argument(help="A new folder.", show_default=False)],
    indices: Indices = None,
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

    classes = field_classes(field)
    chosen = None if indices is None else sample_ids(indices, dataset.Contents(file, classes).index.num_samples)
    with progress("Extracting") as advance:
        done = dataset.extract(file, folder, chosen, classes, label=label, num_workers=workers, on_progress=advance)
    bad = [vars(finding) for finding in done.bad]
    if json:
        images = None if done.images is None else str(done.images)
        show_json(
            {"folder": str(folder), "table": str(done.table), "images": images, "samples": done.samples, "bad": bad}
        )
    else:
        console = result_console()
        for finding in done.bad[:_MAX_FINDINGS]:
            console.print(f"sample {finding.sample}, field {finding.field!r}: {finding.what}")
        console.print(f"{counted(done.samples, 'sample')} in {folder}; {done.table} lists them")
    if bad:
        raise typer.Exit(FINDINGS)


def _draw_verification(console: Console, file: File, result: Verification) -> None:
    for finding in result.findings[:_MAX_FINDINGS]:
        where = "the file" if finding.sample is None else f"sample {finding.sample}"
        where += "" if finding.field is None else f", field {finding.field!r}"
        console.print(f"{where}: {finding.what}")
    if len(result.findings) > _MAX_FINDINGS:
        console.print(f"... and {len(result.findings) - _MAX_FINDINGS:,} more; --json lists all")
    if result.bad_samples:
        verdict = counted(len(result.bad_samples), "bad sample")
    else:
        verdict = counted(len(result.findings), "fault") if result.findings else "sound"
    if not result.samples:
        console.print(f"{file}: {verdict}; no sample could be checked.")
        return
    sums = f"{result.checksums:,} checksums compared" if result.checksums else "no checksums recorded"
    names = {codec.suffix: codec.name for codec in CODECS.values()}
    counts = {name: count for name, count in result.decoded.items() if count or name == JPEG.suffix}
    files = " and ".join(f"{count:,} {names[name]} files" for name, count in counts.items())
    entries = f", {result.entry_points:,} entry points compared" if result.entry_points else ""
    console.print(
        f"{file}: {verdict}. {result.samples:,} samples, {result.regions:,} regions read, {files} decoded, "
        f"{sums}{entries}.",
    )


def _draw_file(console: Console, summary: Summary) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    use = f"{summary.pages:,} of {size_text(summary.page_size)}, {summary.page_use:.1%} of them used"
    rows = {
        "file": f"{summary.path}, {size_text(summary.bytes)}",
        "samples": f"{summary.samples:,}",
        "pages": use if summary.pages else "none",
        "metadata": size_text(summary.metadata_bytes),
        "checksums": "for each region" if summary.has_checksums else "none recorded",
        "classes": "without names" if summary.class_names is None else f"{len(summary.class_names):,}",
        "made by": str(summary.notes.get("made_by", "unknown")),
    }
    if "damaged" in summary.notes:
        rows["notes"] = str(summary.notes["damaged"])
    if summary.index_faults:
        rows["index"] = " ".join(summary.index_faults)
    for name, value in rows.items():
        grid.add_row(name, value)
    console.print(grid)


def _field_lines(field: FieldSummary, class_names: list[str] | None, *, histograms: bool) -> Iterator[str]:
    """Describe a field."""
    from gpubeton.dataset.contents import class_name

    if field.image is not None:
        yield from _image_lines(field.image, histograms=histograms)
    if field.bytes is not None:
        yield from _spread_lines("bytes", field.bytes, size_text, histograms=histograms)
    if field.counts and len(field.counts) <= _MAX_CLASSES:
        names, counts = [class_name(number, class_names) for number in field.counts], list(field.counts.values())
        if histograms:
            yield from _indented(histogram(names, counts))
        else:
            yield "  " + ", ".join(f"{name} ({count:,})" for name, count in zip(names, counts, strict=True))
    elif field.values is not None:
        distinct = f", {len(field.counts):,} different values" if field.counts else ""
        yield f"  {field.values.minimum:g} to {field.values.maximum:g}{distinct}"
        if histograms:
            yield from _bars(field.values, "{:g}".format)


def _image_lines(image: ImageSummary, *, histograms: bool) -> Iterator[str]:
    files = "".join(
        f"{image.stored[codec.suffix]:,} {codec.name} files, "
        for codec in CODECS.values()
        if image.stored[codec.suffix] or codec is JPEG
    )
    yield f"  {files}{image.stored['raw']:,} stored as raw pixels"
    if image.looked_at:
        is_all = image.looked_at == image.stored[JPEG.suffix]
        seen = "" if is_all else f" (in {image.looked_at:,} files; --all looks at all)"
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in image.kinds.items() if count)
        samplings = ", ".join(f"{count:,} {ratio}" for ratio, count in image.samplings.items())
        yield f"  JPEG kinds: {kinds}; chroma: {samplings}{seen}"
        yield f"  JPEG engines of a GPU: can decode {image.routes['hardware']:,} of {image.looked_at:,}"
    if image.indexed:
        spacing = f"{image.entry_points:,} in {size_text(image.entry_bytes)}, one every {MCUS_PER_ENTRY} MCUs"
        yield f"  entry points: of {image.indexed:,} JPEG files, {spacing}"
    elif image.stored[JPEG.suffix] and image.mode == "rgb":
        yield "  entry points: none; gpubeton index makes them, and loaders decode less of each JPEG file"
    common = ", ".join(f"{height} × {width} ({count:,})" for height, width, count in image.most_common)
    yield f"  most common sizes, height × width: {common}"
    yield from _spread_lines("height", image.height, "{:.0f}".format, histograms=histograms)
    yield from _spread_lines("width", image.width, "{:.0f}".format, histograms=histograms)


def _spread_lines(name: str, spread: Spread, text: Callable[[float], str], *, histograms: bool) -> Iterator[str]:
    extremes = f"{text(spread.minimum)} to {text(spread.maximum)}"
    yield f"  {name}: {extremes}, median {text(spread.median)}, mean {text(spread.mean)}"
    if histograms and len(spread.counts) > 1:
        yield from _bars(spread, text)


def _bars(spread: Spread, text: Callable[[float], str]) -> Iterator[str]:
    counts: dict[str, int] = {}
    for edge, count in zip(spread.edges, spread.counts, strict=False):  # edges that print the same share a bar
        counts[text(edge)] = counts.get(text(edge), 0) + count
    yield from _indented(histogram([f"from {label}" for label in counts], list(counts.values())))


def _indented(lines: list[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def _write(content: bytes) -> None:
    if sys.stdout.isatty():
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise OptionError(
                f"{len(content)} bytes of binary data cannot be printed on a terminal; write them to a file: > FILE"
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
    from gpubeton.dataset.contents import StoredImage, class_name

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
        return f"{value} ({class_name(int(value), contents.class_names)})"
    return str(value)


def _stored(contents: Contents, name: str, samples: list[int], side: int) -> NDArray[np.uint8]:
    """Fit stored images of any size into squares, (N, side, side, 3)."""
    import numpy as np
    from PIL import Image, ImageOps

    sheet = np.empty((len(samples), side, side, 3), np.uint8)
    for number, sample in enumerate(samples):
        try:
            pixels = _as_rgb(contents.value(sample, name).pixels())
        except BadImageError as error:
            raise BadImageError(
                f"{contents.index.path}: sample {sample}, field {name!r}: {error}. `gpubeton verify` lists all bad "
                "samples; choose others with --indices",
                [sample],
                [str(error)],
            ) from error
        method = Image.Resampling.NEAREST if max(pixels.shape[:2]) < side else Image.Resampling.BICUBIC
        sheet[number] = np.asarray(ImageOps.pad(Image.fromarray(pixels), (side, side), method, (_BACKGROUND,) * 3))
    return sheet


def _as_rgb(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert pixels of any kind, (..., H, W, C), to 8-bit RGB, without transparency."""
    import numpy as np

    if pixels.shape[-1] > 1:
        levels = (pixels >> 8 if pixels.dtype.itemsize > 1 else pixels).astype(np.uint8)
        return np.ascontiguousarray(levels[..., :3])
    # The maximum of a dark image becomes white. Otherwise labels of a mask and millimetres of a depth map look black.
    top = np.iinfo(pixels.dtype).max
    largest = pixels.max(axis=(-3, -2, -1), keepdims=True).astype(np.float32)
    white = np.where((largest > 0) & (largest < top * _DARK), largest, np.float32(top))
    return np.repeat(np.rint(pixels * (255 / white)).astype(np.uint8), 3, axis=-1)


def _cropped(
    contents: Contents, file: str, name: str, size: int, chosen: NDArray[np.int64], seed: int, classes: dict[str, Any]
) -> NDArray[np.uint8]:
    """Load random crops of the samples, some of them flipped, (N, size, size, 3)."""
    from gpubeton.fields.decoders import RandomResizedCropImageDecoder
    from gpubeton.loader import Loader, OrderOption
    from gpubeton.transforms import RandomHorizontalFlip

    crops = [RandomResizedCropImageDecoder((size, size)), RandomHorizontalFlip()]
    loader = Loader(
        file,
        batch_size=len(chosen),
        order=OrderOption.SEQUENTIAL,
        seed=seed,
        indices=chosen,
        pipelines={**dict.fromkeys(contents.index.names), name: crops},
        custom_fields=classes,
        drop_last=False,
    )
    ((pixels, *_),) = list(loader)
    return _as_rgb(pixels)


def write_contact_sheet(
    path: Path, images: NDArray[np.number[Any]], captions: Sequence[str], columns: int = 8, side: int = 160
) -> None:
    """Draw images, (N, H, W, 3) from 0 to 255, side by side in rows, each `side` pixels wide above its caption."""
    import numpy as np
    from PIL import Image, ImageDraw

    pixels = np.clip(np.rint(images), 0, 255).astype(np.uint8)
    height = round(side * images.shape[1] / images.shape[2])
    cell_width, cell_height = side + _MARGIN, height + _CAPTION_HEIGHT + _MARGIN
    rows = -(-len(pixels) // columns)
    sheet = Image.new("RGB", (columns * cell_width + _MARGIN, rows * cell_height + _MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (image, caption) in enumerate(zip(pixels, captions, strict=True)):
        x, y = _MARGIN + number % columns * cell_width, _MARGIN + number // columns * cell_height
        sheet.paste(Image.fromarray(image).resize((side, height), Image.Resampling.LANCZOS), (x, y))
        draw.text((x, y + height + 2), caption, fill="black")
    sheet.save(path)
