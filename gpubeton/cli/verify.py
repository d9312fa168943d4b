"""``gpubeton verify``: whether a file is sound."""

from __future__ import annotations

import typer

from gpubeton.cli.group import FINDINGS
from gpubeton.cli.options import FieldClasses, File, Json, Workers, field_classes
from gpubeton.cli.screen import counted, progress, result_console, show_json

__all__ = ["verify"]

_MOST_SHOWN = 100


def verify(file: File, workers: Workers = -1, field: FieldClasses = None, json: Json = False) -> None:
    """Read all of a file: index, every region, its checksum, every JPEG and PNG decoded, every JSON parsed.

    Names each bad sample, and ends with exit code 1 if there is any. Checksums are in files that `gpubeton convert` or
    a DatasetWriter with notes has made; without them, changed raw pixels cannot be noticed.
    """
    from gpubeton import inspection

    with progress("Verifying") as advance:
        found = inspection.verify(file, field_classes(field), num_workers=workers, on_progress=advance)
    if json:
        show_json(found.to_dict())
    else:
        console = result_console()
        for finding in found.findings[:_MOST_SHOWN]:
            where = "the file" if finding.sample is None else f"sample {finding.sample}"
            place = where if finding.field is None else f"{where}, field {finding.field!r}"
            console.print(f"{place}: {finding.what}")
        if len(found.findings) > _MOST_SHOWN:
            console.print(f"... and {len(found.findings) - _MOST_SHOWN:,} more; --json lists all")
        sums = f"{found.checksums:,} checksums compared" if found.checksums else "no checksums recorded"
        png = f" and {found.decoded_png:,} PNG files" if found.decoded_png else ""
        if found.is_sound:
            verdict = "sound"
        elif found.bad_samples:
            verdict = counted(len(found.bad_samples), "bad sample")
        else:
            verdict = "damaged"
        if not found.samples:
            console.print(f"{file}: {verdict}; nothing of it could be checked.")
            raise typer.Exit(FINDINGS)
        console.print(
            f"{file}: {verdict}. {found.samples:,} samples, {found.regions:,} regions read, {found.decoded:,} JPEG "
            f"files{png} decoded, {sums}.",
        )
    if not found.is_sound:
        raise typer.Exit(FINDINGS)
