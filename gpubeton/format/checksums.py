"""The checksums of the regions of a file, with their places, to compare the values read with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.errors import OptionError
from gpubeton.files.store_client import shown
from gpubeton.files.verified_file import Checksums, VerifiedFile
from gpubeton.format.file_notes import notes_of
from gpubeton.format.header import read_fields
from gpubeton.format.layout import ALLOCATION_DTYPE
from gpubeton.format.regions import sort_rows

if TYPE_CHECKING:
    from gpubeton.files.byte_source import ByteSource, SourceIdentity


def with_checksums(source: ByteSource, known: dict[str, Checksums]) -> ByteSource:
    """Compare the regions of a remote file with their checksums whenever they are read; `OptionError` without them."""
    # `known` keeps the checksums of each file, for the next time that it is opened.
    identity = source.identity()
    if identity.remote is None or identity.remote.verify is None:
        return source
    if source.name not in known:
        known[source.name] = _read_checksums(source, identity)
    return VerifiedFile(source, known[source.name])


def _read_checksums(source: ByteSource, identity: SourceIdentity) -> Checksums:
    """Read the checksums of a file and where their regions are."""
    assert identity.remote is not None, "the caller has looked"
    notes = notes_of(source)  # by the same object: closing the loader ends its requests
    if notes is None or notes.checksums is None:
        raise OptionError(
            f"{shown(source.name)}: RemoteOptions(verify={identity.remote.verify!r}), but the file has no checksums. "
            "Write it with gpubeton convert, which stores them, or load it without verify."
        )
    header, _ = read_fields(source)
    rows = source.read_array(header.alloc_table_ptr, source.size).view(ALLOCATION_DTYPE)
    sort_rows(rows)
    is_solid = rows["size"] > 0
    start = rows["ptr"][is_solid]
    return Checksums(start, start + rows["size"][is_solid], rows["sample_id"][is_solid], notes.checksums[is_solid])
