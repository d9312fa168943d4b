"""Tar files of samples, as webdataset writes them: which bytes of them are which file, found without reading these."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from gpubeton.errors import OptionError
from gpubeton.format.dataset import expand_braces

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator


class TarMember(NamedTuple):
    """A file in an uncompressed tar file."""

    name: str
    offset: int  # of its first byte in the tar file
    size: int  # bytes


@dataclass(frozen=True)
class TarSample:
    """Files of a tar file with one name before the first dot."""

    key: str
    members: dict[str, TarMember] = field(default_factory=dict)  # by the ending, in lower case


def find_tar_files(pattern: str) -> list[Path]:
    """Find the tar files that a pattern with braces, ``*`` or ``?`` names, or that lie in a folder."""
    names = [path for name in expand_braces(pattern) for path in sorted(glob(name)) or [name]]  # noqa: PTH207  absolute ones, too
    files = [file for path in map(Path, names) for file in (sorted(path.glob("*.tar")) if path.is_dir() else [path])]
    missing = [path for path in files if not path.is_file()]
    if missing or not files:
        which = missing[0] if missing else pattern
        raise OptionError(f"{which}: no such tar file ({len(missing)} of {len(files)} are missing)")
    return files


def list_members(path: Path, hidden: Counter[str]) -> Iterator[TarMember]:
    """List the files in a tar file by their headers; hidden ones are counted only."""
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                # Otherwise it remembers all of them.
                tar.members = []  # type: ignore[attr-defined]  # the stubs leave it out
                # macOS puts `._0001.jpg` between `0001.jpg` and `0001.cls`.
                if any(part.startswith(".") and part not in (".", "..") for part in member.name.split("/")):
                    hidden["hidden"] += member.isfile()
                elif member.isfile():
                    yield TarMember(member.name, member.offset_data, member.size)
    except tarfile.ReadError as error:
        raise OptionError(
            f"{path}: not a tar file that can be read at any place ({error}). Decompress .tar.gz and the like "
            "before, or use DatasetWriter.from_webdataset."
        ) from error


def list_samples(path: Path, hidden: Counter[str]) -> Iterator[TarSample]:
    """List the samples of a tar file: consecutive files with one name before the first dot; count hidden files."""
    sample = TarSample("")
    for member in list_members(path, hidden):
        # webdataset's rule: the key reaches to the first dot of the file's name without its folder.
        folder, _, name = member.name.rpartition("/")
        stem, dot, ending = name.partition(".")
        if not dot:
            continue
        key = f"{folder}/{stem}" if folder else stem
        if key != sample.key:
            if sample.members:
                yield sample
            sample = TarSample(key)
        sample.members[ending.lower()] = member
    if sample.members:
        yield sample


def read_range(file: BinaryIO, offset: int, size: int, name: str) -> bytes:
    """Read the bytes of a member; `name` is for the error."""
    file.seek(offset)
    content = file.read(size)
    if len(content) < size:
        raise EOFError(f"{name}: {len(content)} bytes, expected {size}")
    return content
