"""``gpubeton info`` and ``gpubeton verify``: show the contents of a file, and check it for damage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpubeton.cli.screen import counted, histogram, printable, progress, result_console, show_json, size_text
from gpubeton.cli.shared_options import FINDINGS, FieldClasses, File, Json, Workers, field_classes
from gpubeton.format.layout import MCUS_PER_ENTRY

if TYPE_CHECKING:
    from gpubeton.dataset import FieldSummary, ImageSummary, Spread, Summary, Verification

_MAX_CLASSES = 20
_MAX_FINDINGS = 100


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
        show_json(summary.to_dict())
        return
    console = result_console()
    _draw_file(console, summary)
    for each in summary.fields:
        _draw_field(console, each, summary.class_names, histograms=histograms)


def verify(file: File, workers: Workers = -1, field: FieldClasses = None, json: Json = False) -> None:
    """Read and check a whole file: index, regions, checksums, images, JSON, entry points.

    Decodes every JPEG and PNG file. Lists each bad sample; the exit code is 1 if there are any. Files made by `gpubeton
    convert`, or by a DatasetWriter with notes, have checksums; without them, changed raw pixels cannot be detected.
    """
    from gpubeton import dataset

    with progress("Verifying") as advance:
        found = dataset.verify(file, field_classes(field), num_workers=workers, on_progress=advance)
    if json:
        show_json(found.to_dict())
    else:
        _draw_verification(result_console(), file, found)
    if not found.is_sound or not (json or found.samples):
        raise typer.Exit(FINDINGS)


def _draw_verification(console: Console, file: File, found: Verification) -> None:
    for finding in found.findings[:_MAX_FINDINGS]:
        where = "the file" if finding.sample is None else f"sample {finding.sample}"
        where += "" if finding.field is None else f", field {finding.field!r}"
        console.print(f"{where}: {finding.what}")
    if len(found.findings) > _MAX_FINDINGS:
        console.print(f"... and {len(found.findings) - _MAX_FINDINGS:,} more; --json lists all")
    if found.is_sound:
        verdict = "sound"
    elif found.bad_samples:
        verdict = counted(len(found.bad_samples), "bad sample")
    else:
        verdict = "damaged"
    if not found.samples:
        console.print(f"{file}: {verdict}; no sample could be checked.")
        return
    sums = f"{found.checksums:,} checksums compared" if found.checksums else "no checksums recorded"
    png = f" and {found.decoded_png:,} PNG files" if found.decoded_png else ""
    entries = f", {found.entry_points:,} entry points compared" if found.entry_points else ""
    console.print(
        f"{file}: {verdict}. {found.samples:,} samples, {found.regions:,} regions read, {found.decoded:,} JPEG "
        f"files{png} decoded, {sums}{entries}.",
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


def _draw_field(console: Console, field: FieldSummary, class_names: list[str] | None, *, histograms: bool) -> None:
    mode = f", mode {field.image.mode}" if field.image is not None and field.image.mode not in ("", "rgb") else ""
    console.print()
    console.print(Text.assemble((printable(field.name), "bold"), f"  {field.type}{mode}"))
    if field.image is not None:
        _draw_images(console, field.image, histograms=histograms)
    if field.bytes is not None:
        _draw_spread(console, "bytes", field.bytes, size_text, histograms=histograms)
    if field.counts and len(field.counts) <= _MAX_CLASSES:
        names, counts = [_class_name(number, class_names) for number in field.counts], field.counts.values()
        if histograms:
            _print_lines(console, histogram(names, list(counts)))
        else:
            console.print("  " + ", ".join(f"{name} ({count:,})" for name, count in zip(names, counts, strict=True)))
    elif field.values is not None:
        distinct = f", {len(field.counts):,} different values" if field.counts else ""
        console.print(f"  {field.values.minimum:g} to {field.values.maximum:g}{distinct}")
        if histograms:
            _print_lines(console, _bars(field.values, "{:g}".format))


def _draw_images(console: Console, image: ImageSummary, *, histograms: bool) -> None:
    png = f"{image.png:,} PNG files, " if image.png else ""
    console.print(f"  {image.jpg:,} JPEG files, {png}{image.raw:,} stored as raw pixels")
    if image.looked_at:
        seen = "" if image.looked_at == image.jpg else f" (in {image.looked_at:,} files; --all looks at all)"
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in image.kinds.items() if count)
        samplings = ", ".join(f"{count:,} {ratio}" for ratio, count in image.samplings.items())
        console.print(f"  JPEG kinds: {kinds}; chroma: {samplings}{seen}")
        routes = image.routes
        console.print(f"  JPEG engines of a GPU: can decode {routes['hardware']:,} of {image.looked_at:,}")
    if image.indexed:
        each = f"{image.entry_points:,} in {size_text(image.entry_bytes)}, one every {MCUS_PER_ENTRY} MCUs"
        console.print(f"  entry points: of {image.indexed:,} JPEG files, {each}")
    elif image.jpg and image.mode == "rgb":
        console.print("  entry points: none; gpubeton index makes them, and loaders decode less of each JPEG file")
    common = ", ".join(f"{height} × {width} ({count:,})" for height, width, count in image.most_common)
    console.print(f"  most common sizes, height × width: {common}")
    _draw_spread(console, "height", image.height, "{:.0f}".format, histograms=histograms)
    _draw_spread(console, "width", image.width, "{:.0f}".format, histograms=histograms)


def _draw_spread(
    console: Console, name: str, spread: Spread, text: Callable[[float], str], *, histograms: bool
) -> None:
    console.print(
        f"  {name}: {text(spread.minimum)} to {text(spread.maximum)}, median {text(spread.median)}, "
        f"mean {text(spread.mean)}"
    )
    if histograms and len(spread.counts) > 1:
        _print_lines(console, _bars(spread, text))


def _bars(spread: Spread, text: Callable[[float], str]) -> list[str]:
    counts: dict[str, int] = {}
    for edge, count in zip(spread.edges, spread.counts, strict=False):  # edges that print the same share a bar
        counts[text(edge)] = counts.get(text(edge), 0) + count
    return histogram([f"from {label}" for label in counts], list(counts.values()))


def _class_name(number: int, class_names: list[str] | None) -> str:
    if class_names is not None and 0 <= number < len(class_names):
        return class_names[number]
    return str(number)


def _print_lines(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(f"    {line}")
