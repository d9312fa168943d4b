"""PNG files (ISO/IEC 15948): of 8 and 16 bits, gray, RGB and RGBA, written and read without losing a bit.

Pillow does not read colors of 16 bits, and leaves checksums of image data alone; both matter here. This module
writes ordinary files, and reads files like these: not interlaced, without a palette.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import BadImageError
from gpubeton.format.field_arguments import IMAGE_KINDS, ImageKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

START = b"\x89PNG\r\n\x1a\n"

_COLOR_TYPES = {1: 0, 3: 2, 4: 6}
"""How PNG numbers images of so many channels."""

_MOST_OF_A_BYTE = 1040
"""Deflate makes no more than 1032 bytes of one; what claims more is refused before memory is asked for."""

#: Chunks that hold no pixels, and do not change the meaning of colors.
_METADATA = (b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME")


@dataclass(frozen=True)
class PngHeader:
    """The header of a PNG file."""

    height: int  # size in pixels
    width: int  # size in pixels
    bits: int  # bits of a channel
    color_type: int  # 0 gray, 2 RGB, 3 palette, 4 gray with alpha, 6 RGB with alpha
    is_simple: bool  # whether it is neither interlaced nor has a color that means transparent

    def holds(self, kind: ImageKind) -> bool:
        """Whether the file may be stored, as it is, as an image of a kind."""
        return self.is_simple and (self.color_type, self.bits) == (_COLOR_TYPES[kind.channels], kind.bits)

    @property
    def kind(self) -> ImageKind | None:
        """The kind as which the file may be stored as it is; None if there is none."""
        return next((kind for kind in IMAGE_KINDS.values() if self.holds(kind)), None)


def read_png_header(content: bytes) -> PngHeader | None:
    """Read the header of a PNG file."""
    try:
        return _read(content)[0]
    except BadImageError:
        return None


def encode_png(pixels: NDArray[Any], level: int = 6) -> bytes:
    """Compress an image without loss."""
    # `pixels`: uint8 or uint16 (H, W, C)
    height, width, channels = pixels.shape
    bits = 8 * pixels.dtype.itemsize
    rows = np.ascontiguousarray(pixels, ">u2" if bits == 16 else "u1").view(np.uint8).reshape(height, -1)
    unfiltered = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    packed = min(
        (zlib.compress(lines.tobytes(), level) for lines in (unfiltered, _filtered(rows, channels * bits // 8))),
        key=len,
    )
    header = struct.pack(">IIBBBBB", width, height, bits, _COLOR_TYPES[channels], 0, 0, 0)
    return START + _chunk(b"IHDR", header) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def decode_png(
    content: bytes, kind: ImageKind | None = None, size: tuple[int, int] | None = None
) -> NDArray[Any]:  # (H, W, C) uint8 or uint16, C-contiguous
    """Decode a PNG file, and check every checksum in it; raise BadImageError, also for another kind or size."""
    header, packed = _read(content)
    kind = kind or header.kind
    if kind is None:
        raise BadImageError("no PNG file of a kind that is stored: gray, RGB or RGBA, of 8 or 16 bits, not interlaced")
    if not header.holds(kind):
        if header.kind is not None:
            raise BadImageError(f"it is a PNG file of kind {header.kind.name}, expected {kind.name}")
        raise BadImageError(
            f"it is a PNG file of {header.bits} bits and color type {header.color_type}, interlaced or with "
            f"transparency: {not header.is_simple}; expected {kind.name}"
        )
    height, width = header.height, header.width
    if size is not None and (height, width) != size:
        raise BadImageError(f"it is {height} x {width} pixels, but the metadata has {size[0]} x {size[1]}")
    row_size = width * kind.pixel_size
    expected = height * (1 + row_size)
    if expected > _MOST_OF_A_BYTE * (len(packed) + 1):
        raise BadImageError(f"its {len(packed)} bytes of data cannot hold {expected}")
    lines = np.frombuffer(_inflate(packed, expected), np.uint8).reshape(height, 1 + row_size)
    rows = np.empty((height, row_size), np.uint8)
    if _compiled_unfilter()(lines, rows, kind.pixel_size) != 0:
        raise BadImageError("a row has a filter that PNG does not know")
    if kind.bits == 8:
        return rows.reshape(height, width, kind.channels)
    return rows.view(">u2").astype(np.uint16).reshape(height, width, kind.channels)


def png_size(content: bytes) -> tuple[int, int]:
    """Return the height and width of a PNG file; raise BadImageError if its chunks are damaged."""
    header, _ = _read(content)
    return header.height, header.width


def strip_png(content: bytes) -> bytes:
    """Remove metadata, and bytes after the image; the encoded pixels stay, bit for bit."""
    return START + b"".join(_chunk(name, bytes(body)) for name, body in _chunks(content) if name not in _METADATA)


@cache
def _compiled_unfilter() -> Callable[..., int]:
    # Numba takes long to import, and most files have no PNG images.
    from gpubeton._compile.compile import compiled

    return compiled(unfilter)


def unfilter(lines: Any, rows: Any, step: Any) -> Any:
    """Undo the filters of a PNG file's rows; to be compiled."""
    # `lines`: uint8 (H, 1 + S); `rows`: uint8 (H, S)
    height, size = rows.shape
    for y in range(height):
        kind = lines[y, 0]
        if kind > 4:
            return 1
        for x in range(size):
            left: Any = np.int64(rows[y, x - step]) if x >= step else 0
            above: Any = np.int64(rows[y - 1, x]) if y > 0 else 0
            corner: Any = np.int64(rows[y - 1, x - step]) if x >= step and y > 0 else 0
            guess: Any = 0
            if kind == 1:
                guess = left
            elif kind == 2:
                guess = above
            elif kind == 3:
                guess = (left + above) >> 1
            elif kind == 4:
                # Paeth's: the one that is nearest to left + above - corner.
                to_left, to_above = abs(above - corner), abs(left - corner)
                to_corner = abs(left + above - 2 * corner)
                if to_left <= to_above and to_left <= to_corner:
                    guess = left
                elif to_above <= to_corner:
                    guess = above
                else:
                    guess = corner
            rows[y, x] = (np.int64(lines[y, x + 1]) + guess) & 255
    return 0


def _read(content: bytes) -> tuple[PngHeader, bytes]:
    """The header, and the compressed rows."""
    chunks: dict[bytes, list[memoryview]] = {}
    for name, body in _chunks(content):
        chunks.setdefault(name, []).append(body)
    header = bytes(chunks.get(b"IHDR", [b""])[0])
    if len(header) != 13:
        raise BadImageError("it has no sound header")
    width, height, bits, color_type, compression, filtering, interlace = struct.unpack(">IIBBBBB", header)
    if 0 in (width, height):
        raise BadImageError(f"its header has {height} x {width} pixels")
    is_simple = (compression, filtering, interlace) == (0, 0, 0) and b"tRNS" not in chunks
    return PngHeader(height, width, bits, color_type, is_simple), b"".join(chunks.get(b"IDAT", []))


def _chunks(content: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Name and body of each chunk up to IEND, their checksums looked at."""
    if content[: len(START)] != START:
        raise BadImageError("it does not begin as PNG files do")
    view, position = memoryview(content), len(START)
    while position + 12 <= len(content):
        length = int.from_bytes(view[position : position + 4], "big")
        stop = position + 12 + length
        name = bytes(view[position + 4 : position + 8])
        if stop > len(content):
            break
        if zlib.crc32(view[position + 4 : stop - 4]) != int.from_bytes(view[stop - 4 : stop], "big"):
            raise BadImageError(f"the checksum of its chunk {name!r} is wrong")
        yield name, view[position + 8 : stop - 4]
        if name == b"IEND":
            return
        position = stop
    raise BadImageError("it ends before its last chunk")


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _inflate(packed: bytes, expected: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        # One byte more, so that longer data are noticed, and the checksum after them is read.
        lines = inflater.decompress(packed, expected + 1)
    except zlib.error as error:
        raise BadImageError(f"its data are damaged: {error}") from error
    if len(lines) != expected or not inflater.eof:
        raise BadImageError(f"its data are not the {expected} bytes of its rows")
    return lines


def _filtered(rows: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
    """Each row with the filter, of left, above and Paeth's, that leaves the smallest sum of differences."""
    height, size = rows.shape
    left, above, corner = (np.zeros((height, size), np.uint8) for _ in range(3))
    left[:, step:] = rows[:, :-step]
    above[1:] = rows[:-1]
    corner[1:, step:] = rows[:-1, :-step]
    a, b, c = left.astype(np.int16), above.astype(np.int16), corner.astype(np.int16)
    to_left, to_above, to_corner = np.abs(b - c), np.abs(a - c), np.abs(a + b - 2 * c)
    nearest = np.where(
        (to_left <= to_above) & (to_left <= to_corner), left, np.where(to_above <= to_corner, above, corner)
    )
    best = np.empty((height, 1 + size), np.uint8)
    tried = [(0, rows), (1, rows - left), (2, rows - above), (4, rows - nearest)]
    sums = np.stack(
        [np.abs(difference.view(np.int8).astype(np.int16)).sum(axis=1, dtype=np.int64) for _, difference in tried]
    )
    choice = sums.argmin(axis=0)
    for number, (kind, difference) in enumerate(tried):
        chosen = choice == number
        best[chosen, 0] = kind
        best[chosen, 1:] = difference[chosen]
    return best
