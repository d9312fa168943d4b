"""The markers of a JPEG file, read without decoding anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

JPEG_START = b"\xff\xd8"
"""How each JPEG file begins."""

_JPEG_END = b"\xff\xd9"

PIXELS_A_BYTE = 8 * 64
"""Most pixels of a byte: Huffman coding takes at least one bit for each block of 8 x 8, its mean's difference."""

HARMLESS_PIXELS = 1 << 24
"""Not held to that: they take 48 MB. Arithmetic coding, which nearly no program writes, needs less for plain areas."""

EOI, SOS, APP0, APP14 = 0xD9, 0xDA, 0xE0, 0xEE
#: Markers without a length after them: TEM and the restart markers.
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
_IN_PIXELS = frozenset({0, *range(0xD0, 0xD8)})
#: Start-of-frame markers: 0xC0..0xCF without DHT, JPG and DAC.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BASELINE = 0xC0


@dataclass(frozen=True)
class JpegFrame:
    """The properties of a JPEG file that its markers hold."""

    marker: int  # low byte of the start-of-frame marker: 0xC0 baseline, 0xC2 progressive
    precision: int  # bits of a sample
    height: int  # size in pixels
    width: int  # size in pixels
    components: tuple[int, ...]  # identifier of each component
    sampling: tuple[tuple[int, int], ...]  # sampling factors of each component, across and down
    is_jfif: bool  # whether there is a JFIF marker, which makes three components YCbCr
    adobe_transform: int | None  # color transform of an Adobe marker: 0 none, 1 YCbCr, 2 YCCK
    is_complete: bool  # whether an end-of-image marker follows the image data

    @property
    def is_plain(self) -> bool:
        """Whether every JPEG decoder can read it: complete, baseline, 8 bits, gray or YCbCr."""
        return (
            self.is_complete
            and self.marker == _BASELINE
            and self.precision == 8
            and self.height > 0
            and self.width > 0
            and (len(self.components) == 1 or (len(self.components) == 3 and self.is_ycbcr))
        )

    @property
    def is_ycbcr(self) -> bool:
        """Whether three components are YCbCr."""
        # The rule of libjpeg: JFIF knows no other colors, then Adobe's word counts, then the identifiers.
        if self.is_jfif:
            return True
        if self.adobe_transform is not None:
            return self.adobe_transform == 1
        return self.components != tuple(b"RGB")


def pieces(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Divide a JPEG file up to its end marker; give the marker of each piece, and where it begins and ends."""
    # Encoded pixels are a piece too, whose marker is 0. Its end is looked for only after the scan's header was taken.
    position = 2
    while position + 2 <= len(content) and content[position] == 0xFF:
        marker, stop = content[position + 1], position + 2
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        if marker != EOI and marker not in _ALONE:
            if stop + 2 > len(content):
                return
            stop += int.from_bytes(content[stop : stop + 2], "big")
        yield marker, position, stop
        if marker == EOI:
            return
        position = stop
        if marker == SOS:
            # In pixels a byte 0xFF comes before 0, or is that of a restart marker.
            while 0 <= (stop := content.find(b"\xff", stop)) < len(content) - 1 and content[stop + 1] in _IN_PIXELS:
                stop += 2
            stop = len(content) if stop < 0 else stop
            yield 0, position, stop
            position = stop


def read_frame(content: bytes) -> JpegFrame | None:
    """Read the markers of a JPEG file up to its image data."""
    if content[:2] != JPEG_START:
        return None
    frame: tuple[int, bytes] | None = None
    is_jfif, adobe_transform = False, None
    for marker, start, stop in pieces(content):
        body = content[start + 4 : stop]
        if marker in _ALONE:
            continue
        if stop < start + 4:  # damaged, or the end marker
            return None
        if marker == SOS:
            is_complete = content.rfind(_JPEG_END, stop) >= 0
            return frame and _describe(*frame, is_jfif, adobe_transform, is_complete)
        if marker in _FRAMES:
            frame = frame or (marker, body)
        elif marker == APP0 and body[:5] == b"JFIF\0":
            is_jfif = True
        elif marker == APP14 and body[:5] == b"Adobe" and len(body) >= 12:
            adobe_transform = body[11]
    return None


def _describe(
    marker: int, body: bytes, is_jfif: bool, adobe_transform: int | None, is_complete: bool
) -> JpegFrame | None:
    if len(body) < 6 or len(body) != 6 + 3 * body[5]:
        return None
    return JpegFrame(
        marker=marker,
        precision=body[0],
        height=int.from_bytes(body[1:3], "big"),
        width=int.from_bytes(body[3:5], "big"),
        components=tuple(body[6::3]),
        sampling=tuple((factors >> 4, factors & 15) for factors in body[7::3]),
        is_jfif=is_jfif,
        adobe_transform=adobe_transform,
        is_complete=is_complete,
    )
