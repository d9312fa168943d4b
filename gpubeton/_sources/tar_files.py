"""Tar files of samples, as webdataset writes them: which bytes of them are which file, found without reading these.

Python's tarfile needs several times as long for a header, and ends a damaged file without an error.
"""

from __future__ import annotations

import re
import warnings
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpubeton._sources.small_reads import SmallReads
from gpubeton.errors import FormatError, OptionError, TruncatedError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from gpubeton._bytes.byte_source import ByteSource

_BLOCK = 512
_END = bytes(_BLOCK)
#: Zeros at the end: tar fills its blocks, of 10 KiB as a rule; more than a megabyte belongs to no tar file.
_END_BYTES, _MOST_ZEROS = 20 * _BLOCK, 1 << 20
#: Most bytes of a long name, of the headers of a file, and of a label.
_MOST_BYTES = 16 << 20
# Kinds of members, by their letter.
_FILES = b"0\x007"
_WITHOUT_BYTES = b"123456"  # links, devices and folders
_HEADERS = b"LKxXg"  # for the next file: a long name, that of a link, records; records for all files
_SPARSE = b"S"
_HIDDEN = re.compile(r"(?:^|/)\.(?!\.?(?:/|$))")  # not "." and ".."
#: First bytes of compressed files, and what decompresses them.
_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"BZh": "bunzip2",
    b"\xfd7zXZ": "unxz",
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"\x04\x22\x4d\x18": "lz4 -d",
}


@dataclass(slots=True)
class TarSample:
    """Files of a tar file with one name before the first dot."""

    key: str
    members: dict[str, tuple[int, int]] = field(default_factory=dict)  # by the ending, in lower case: offset, size
    label: bytes | None = None  # the content of the file that was asked for


def _list_members(tar: SmallReads, hidden: Counter[str]) -> Iterator[tuple[str, int, int]]:
    """List the files in a tar file, name, offset and size, by their headers; hidden ones are counted only."""
    at, long_name, long_size = 0, "", -1  # those of headers for the next file
    while at < tar.size or not at:
        header = tar.at(at, _BLOCK)
        if header == _END:
            rest = tar.at(at, min(tar.size - at, _END_BYTES + _BLOCK))
            if tar.size - at > _MOST_ZEROS or any(rest):
                what = f"{tar.size - at} bytes follow its end mark, at {at}, and are not read. They may be files"
                _warn(tar, f"{what}: of a tar file that was attached (use tar --concatenate), or after a hole of zeros")
            break
        kind, size = _read_header(tar, at, header)
        is_header, start = kind in _HEADERS, at + _BLOCK
        name = (not is_header and long_name) or _name(header)
        has_bytes = kind not in _WITHOUT_BYTES and not (kind == b"\0" and name.endswith("/"))
        if long_size >= 0 and not is_header:
            size = long_size
        if has_bytes and not 0 <= size <= tar.size - start:
            raise TruncatedError(
                f"{tar.name}: {name!r} has {size} bytes from {start} on, but the tar file has {tar.size}. It is cut "
                "or damaged: compare it with the original."
            )
        at = start + (-(-size // _BLOCK) * _BLOCK if has_bytes else 0)
        if is_header:
            path, length = _read_extension(tar, kind, start, size)
            long_name, long_size = long_name or path, length if long_size < 0 else long_size
            continue
        long_name, long_size = "", -1
        if kind == _SPARSE:
            raise _sparse(tar, start)
        if not (has_bytes and kind in _FILES):
            continue
        # macOS puts `._0001.jpg` between `0001.jpg` and `0001.cls`.
        if (name[:1] == "." or "/." in name) and _HIDDEN.search(name):
            hidden["hidden"] += 1
        else:
            yield name, start, size
    else:
        if at == tar.size and not long_name and long_size < 0:
            _warn(tar, f"ends after {tar.size} bytes without the zeros that mark the end: it may be cut")
    if at > tar.size or long_name or long_size >= 0:
        raise TruncatedError(f"{tar.name}: ends after {tar.size} bytes, within a file. Compare it with the original.")


def list_samples(source: ByteSource, hidden: Counter[str], label: str | None = None) -> Iterator[TarSample]:
    """List the samples of a tar file: consecutive files with one name before the first dot; count hidden files."""
    tar, sample = SmallReads(source), TarSample("")
    for path, start, size in _list_members(tar, hidden):
        # webdataset's rule: the key reaches to the first dot of the file's name without its folder.
        folder, slash, name = path.rpartition("/")
        stem, dot, ending = name.partition(".")
        if not dot:
            continue
        key = f"{folder}{slash}{stem}"
        if key != sample.key:
            if sample.members:
                yield sample
            sample = TarSample(key)
        ending = ending.lower()
        if ending in sample.members:
            raise FormatError(
                f"{tar.name}: the sample {key!r} has two files that end in .{ending}, one from byte "
                f"{sample.members[ending][0]} and one from {start} on; expected one. Give each sample another name "
                "before the first dot"
            )
        sample.members[ending] = start, size
        if ending == label:  # at once: later, another block would have to be read
            sample.label = _content(tar, start, size)
    if sample.members:
        yield sample


def _warn(tar: SmallReads, what: str) -> None:
    warnings.warn(f"{tar.name}: {what}. Compare it with the original", stacklevel=2)


def _read_header(tar: SmallReads, at: int, header: bytes) -> tuple[bytes, int]:
    """Read the kind and the size of a member, after a comparison of the header with its checksum."""
    if len(header) == _BLOCK:
        try:
            # The low half of Adler-32 is the sum of the bytes, modulo 65521. Those of the checksum count as spaces.
            total, checksum = zlib.adler32(header, 0) & 0xFFFF, header[148:156]
            if (total - sum(checksum) + 8 * 32 - _number(checksum)) % 65521 == 0:
                return header[156:157], _number(header[124:136])
        except ValueError:
            pass
    if at:
        raise (FormatError if len(header) == _BLOCK else TruncatedError)(
            f"{tar.name}: the {len(header)} bytes from {at} on are no header of a file with a valid checksum; expected "
            "one, or zeros at the end. The tar file is damaged or cut: compare it with the original."
        )
    for magic, command in _COMPRESSED.items():
        if header.startswith(magic):
            raise OptionError(
                f"{tar.name}: compressed, so that its files cannot be read one by one. Decompress it before: {command}"
            )
    raise OptionError(f"{tar.name}: not a tar file: its first {len(header)} bytes are no header with a valid checksum")


def _number(digits: bytes) -> int:
    """Read a number: octal digits, or from its second byte on base 256."""
    if digits[0] >= 0x80:
        if digits[0] not in (0x80, 0xFF):
            raise ValueError("a number that begins with another byte")
        return int.from_bytes(digits[1:], "big") - (256 ** (len(digits) - 1) if digits[0] == 0xFF else 0)
    return int(digits.partition(b"\0")[0].strip() or b"0", 8)


def _name(header: bytes) -> str:
    name = header[:100].partition(b"\0")[0]
    if header[345] and header[257:263] == b"ustar\0":
        name = header[345:500].partition(b"\0")[0] + b"/" + name
    return _text(name)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _content(tar: SmallReads, start: int, size: int) -> bytes:
    if size > _MOST_BYTES:
        raise FormatError(f"{tar.name}: a name, header or label of {size} bytes at {start}; expected {_MOST_BYTES}")
    return tar.at(start, size)


def _read_extension(tar: SmallReads, kind: bytes, start: int, size: int) -> tuple[str, int]:
    """Read what a header says of the next file: its name, or "", and its size, or -1."""
    content = _content(tar, start, size)
    if kind in b"LK":
        return _text(content.partition(b"\0")[0]) if kind == b"L" else "", -1
    try:
        records = _parse_records(content)
        length = int(records.get(b"size", b"-1"))
    except ValueError as error:
        raise FormatError(f"{tar.name}: the records from byte {start} on are damaged ({error})") from error
    if any(key.startswith(b"GNU.sparse.") for key in records):
        raise _sparse(tar, start)
    path = _text(records.get(b"path", b"")).rstrip("/")
    if kind == b"g" and (path or b"size" in records):
        raise FormatError(f"{tar.name}: the records from byte {start} on give all files the same name or size")
    if b"size" in records and length < 0:
        raise FormatError(f"{tar.name}: the records at byte {start} give a size of {length}; expected at least 0")
    return path, length


def _parse_records(content: bytes) -> dict[bytes, bytes]:
    """Parse the records of a header of the pax format, "LENGTH KEY=VALUE"; `ValueError` if one is damaged."""
    records, at = dict[bytes, bytes](), 0
    while at < len(content) and content[at]:
        space = content.index(b" ", at, at + 21)
        stop = at + int(content[at:space])
        key, equals, value = content[space + 1 : stop].partition(b"=")
        if not (content[at:space].isdigit() and equals and value.endswith(b"\n") and stop <= len(content)):
            raise ValueError(f"no record at {at}")
        records[key], at = value[:-1], stop
    return records


def _sparse(tar: SmallReads, at: int) -> OptionError:
    return OptionError(
        f"{tar.name}: the file at byte {at} is stored without its zeros (sparse), and so not in one piece. Make the "
        "tar file again without --sparse"
    )
