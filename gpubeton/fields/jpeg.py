"""JPEG files: their markers, read without decoding, and whole images, decoded strictly by libjpeg-turbo.

Strictly: an image that libjpeg-turbo would warn about and patch with gray is damaged. Metadata and stray bytes between
the header's segments change no pixel, so they are removed before a library gets the file.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import BadImageError
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.format.layout import HARMLESS_PIXELS, PIXELS_A_BYTE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

START = b"\xff\xd8"
_END = b"\xff\xd9"

_TEM, _RST0, _SOI, _EOI, _SOS = 0x01, 0xD0, 0xD8, 0xD9, 0xDA
_APP0, _APP1, _APP2, _APP14, _APP15, _COM = 0xE0, 0xE1, 0xE2, 0xEE, 0xEF, 0xFE
#: Markers without a length after them.
_ALONE = frozenset({_TEM, *range(_RST0, _SOI)})
_IN_PIXELS = frozenset({0, *range(_RST0, _SOI)})
#: Start-of-frame markers: 0xC0..0xCF without DHT, JPG and DAC.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BASELINE = 0xC0
_SEQUENTIAL = (0xC0, 0xC1)
_MARKER = re.compile(rb"\xff[^\x00\xff]", re.DOTALL)

#: Metadata that decoding needs, or the meaning of colors: JFIF, color profiles, Adobe's color transform.
_COLOR_METADATA = {_APP0: b"JFIF\0", _APP2: b"ICC_PROFILE\0", _APP14: b"Adobe"}
_JFIF_SEGMENT = b"\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
# First and last coefficient and bit positions of a scan. Sequential files have no others; some have zeros there.
_SEQUENTIAL_SCAN = b"\x00\x3f\x00"
# Luma sampling, across and down, that TurboJPEG has a name for, if chroma is sampled by 1 x 1.
_NAMED_SAMPLINGS = frozenset({(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4)})


@dataclass(frozen=True)
class JpegFrame:
    """The properties of a JPEG file that its markers hold."""

    marker: int  # low byte of the start-of-frame marker: 0xC0 baseline, 0xC2 progressive
    precision: int  # bits of a sample
    height: int  # size in pixels
    width: int  # size in pixels
    components: tuple[int, ...]  # identifier of each component
    sampling: tuple[tuple[int, int], ...]  # sampling factors of each component, across and down
    is_ycbcr: bool  # whether three components are YCbCr
    is_complete: bool  # whether an end-of-image marker follows the image data

    @property
    def is_baseline(self) -> bool:
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
    def has_named_sampling(self) -> bool:
        """Whether TurboJPEG has a name for the chroma sampling; without one it decodes nothing."""
        return len(self.sampling) != 3 or (
            self.sampling[0] in _NAMED_SAMPLINGS and self.sampling[1:] == ((1, 1), (1, 1))
        )

    def holds(self, kind: ImageKind) -> bool:
        """Whether the file may be stored, as it is, as an image of a kind."""
        return self.is_baseline and kind.has_jpeg and (kind.channels > 1 or len(self.components) == 1)


# --- markers ----------------------------------------------------------------------------------------------------------


def segments(content: bytes, *, skips_stray: bool = False) -> Iterator[tuple[int, int, int]]:
    """Divide a JPEG file up to its end marker; give the marker of each segment, and where it begins and ends."""
    # Encoded pixels are a segment too, whose marker is 0. Its end is looked for only after the scan's header was taken.
    # Stray bytes between segments end the walk, unless they are to be passed over, as libjpeg does.
    position = len(START)
    while position + 2 <= len(content):
        if skips_stray:
            match = _MARKER.search(content, position)
            if match is None:
                return
            position = match.start()
        elif content[position] != 0xFF:
            return
        marker, stop = content[position + 1], position + 2
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        if marker != _EOI and marker not in _ALONE:
            if stop + 2 > len(content):
                return
            stop += int.from_bytes(content[stop : stop + 2], "big")
            stop = max(stop, position + 4) if skips_stray else stop
        yield marker, position, stop
        if marker == _EOI:
            return
        position = stop
        if marker == _SOS:
            # In pixels a byte 0xFF comes before 0, or is that of a restart marker.
            while 0 <= (stop := content.find(b"\xff", stop)) < len(content) - 1 and content[stop + 1] in _IN_PIXELS:
                stop += 2
            stop = len(content) if stop < 0 else stop
            yield 0, position, stop
            position = stop


def read_frame(content: bytes) -> JpegFrame | None:
    """Read the markers of a JPEG file up to its image data; None if it is none, or they are damaged."""
    if not content.startswith(START):
        return None
    frame: tuple[int, bytes] | None = None
    is_jfif, adobe_transform = False, None
    for marker, start, stop in segments(content):
        body = content[start + 4 : stop]
        if marker in _ALONE:
            continue
        if stop < start + 4:  # damaged, or the end marker
            return None
        if marker == _SOS:
            is_complete = content.rfind(_END, stop) >= 0
            return frame and _describe(*frame, is_jfif, adobe_transform, is_complete)
        if marker in _FRAMES:
            frame = frame or (marker, body)
        elif marker == _APP0 and body[:5] == b"JFIF\0":
            is_jfif = True
        elif marker == _APP14 and body[:5] == b"Adobe" and len(body) >= 12:
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
        # The rule of libjpeg: JFIF knows no other colors, then Adobe's word counts, then the identifiers.
        is_ycbcr=is_jfif or (body[6::3] != b"RGB" if adobe_transform is None else adobe_transform == 1),
        is_complete=is_complete,
    )


def camera_metadata(content: bytes) -> Iterator[bytes]:
    """Give the EXIF and XMP segments of a JPEG file."""
    for marker, start, stop in segments(content):
        if marker == _SOS:
            return
        if marker == _APP1:
            yield content[start + 4 : stop]


def strip_jpeg(content: bytes) -> bytes:
    """Remove metadata, and bytes after the image; the encoded pixels stay, bit for bit."""
    pieces, marker = [START], 0
    for marker, start, stop in segments(content):
        color = _COLOR_METADATA.get(marker)
        if not _is_metadata(marker) or (color is not None and content.startswith(color, start + 4, stop)):
            pieces.append(content[start:stop])
    if marker != _EOI:
        raise ValueError("a JPEG file whose markers cannot be read to its end, so that its metadata cannot be removed")
    return b"".join(pieces)


def _is_metadata(marker: int) -> bool:
    return _APP0 <= marker <= _APP15 or marker == _COM


# --- whole images -----------------------------------------------------------------------------------------------------


def encode_jpeg(pixels: NDArray[np.uint8], quality: int) -> bytes:
    """Compress an image to a baseline JPEG file with 4:2:0 chroma."""
    # `pixels`: uint8 (H, W, 3) or (H, W, 1); the bytes equal those of OpenCV, which FFCV uses.
    from PIL import Image

    file = io.BytesIO()
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    image.save(file, "JPEG", quality=quality, subsampling="4:2:0")
    return file.getvalue()


def decode_jpeg(
    content: bytes, kind: ImageKind | None = None, size: tuple[int, int] | None = None
) -> NDArray[np.uint8]:  # (H, W, C), C-contiguous
    """Decode a JPEG file of any sort, as gray or as RGB; raise BadImageError, also for another kind or size."""
    kind = kind or RGB
    if not kind.has_jpeg:
        raise BadImageError(f"it is a JPEG file, which cannot hold images of kind {kind.name}")
    if size is not None and (actual := jpeg_size(content)) != size:
        raise BadImageError(
            f"it is {actual[0]} x {actual[1]} pixels, but the file's metadata have {size[0]} x {size[1]} pixels"
        )
    return decode_rgb(content) if kind == RGB else decode_gray(content)


def jpeg_size(content: bytes) -> tuple[int, int]:
    """Return the height and width of a JPEG from its header; refuse more pixels than its bytes can hold."""
    _, frame = _read_header(content)
    return frame.height, frame.width


def decode_rgb(content: bytes) -> NDArray[np.uint8]:  # (H, W, 3), C-contiguous
    """Decode a whole JPEG of any kind."""
    # Raises BadImageError if the data are damaged, of a kind that no library knows (12-bit, lossless), or too large.
    essentials, frame = _read_header(content)
    if len(frame.components) == 4:
        return _rgb_of_cmyk(_decode(essentials, frame, "CMYK"))
    return _decode(essentials, frame, "RGB")


def decode_gray(content: bytes) -> NDArray[np.uint8]:  # (H, W, 1), C-contiguous
    """Decode a whole gray JPEG, or the brightness of any other; raises as `decode_rgb`."""
    essentials, frame = _read_header(content)
    if len(frame.components) == 1 or (frame.is_ycbcr and frame.has_named_sampling):
        return _decode(essentials, frame, "GRAY")
    from PIL import Image

    return np.ascontiguousarray(Image.fromarray(decode_rgb(content)).convert("L"))[..., None]


def _read_header(content: bytes) -> tuple[bytes, JpegFrame]:
    """Return the file without the bytes that change no pixel, and its header."""
    essentials = _essentials(content)
    frame = read_frame(essentials)
    if frame is None:
        raise BadImageError("its headers are damaged or end before the compressed data")
    if frame.height * frame.width > max(HARMLESS_PIXELS, PIXELS_A_BYTE * len(content)):
        raise BadImageError(
            f"its header claims {frame.height} x {frame.width} pixels, but {len(content)} bytes hold at most "
            f"{PIXELS_A_BYTE} pixels each"
        )
    return essentials, frame


def _essentials(content: bytes) -> bytes:
    """Remove what changes no pixel: metadata (COM, and APPn except JFIF and Adobe) and bytes between segments."""
    # libjpeg-turbo warns of these, and a strict caller cannot distinguish such a warning from one about the image.
    if not content.startswith(START):
        raise BadImageError(f"no JPEG file: it begins with {content[:2]!r}, expected {START!r}")
    pieces, is_sequential = [START], False
    for marker, start, stop in segments(content, skips_stray=True):
        body = start + 4
        if marker == _SOS and is_sequential and stop >= body + 3:
            return b"".join([*pieces, content[start : stop - 3], _SEQUENTIAL_SCAN, content[stop:]])
        if marker in (_SOI, _EOI, _SOS):
            return b"".join([*pieces, content[start:]])
        is_sequential = is_sequential or marker in _SEQUENTIAL
        if marker == _APP0 and content.startswith(b"JFIF\0", body) and stop - body >= 14:
            pieces.append(_JFIF_SEGMENT)
        elif marker not in _ALONE and (
            not _is_metadata(marker) or (marker == _APP14 and content.startswith(b"Adobe", body))
        ):
            pieces.append(content[start:stop])
    raise BadImageError("its headers end before the compressed data")


def _decode(content: bytes, frame: JpegFrame, colorspace: str) -> NDArray[np.uint8]:
    """Decode by libjpeg-turbo, or by Pillow if simplejpeg has no name for the sampling."""
    import simplejpeg

    try:
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(content, colorspace=colorspace, strict=True)
    except Exception as error:  # any error concerns only this image, a MemoryError too
        if frame.has_named_sampling:
            raise BadImageError(f"libjpeg-turbo: {_text(error)}") from error
        return _decode_with_pillow(content, error)
    return pixels


def _decode_with_pillow(content: bytes, refusal: Exception) -> NDArray[np.uint8]:
    """Decode a baseline JPEG of unusual sampling; check its data first, since Pillow ignores libjpeg's warnings."""
    from PIL.JpegImagePlugin import JpegImageFile

    # The one import from a higher floor: only the crop decoder reads such data strictly. It compiles, for few files.
    from gpubeton._cpu.jpeg.codes import OK, REASONS
    from gpubeton._cpu.jpeg.picture import check_scan

    code = check_scan(content)
    if code != OK:
        raise BadImageError(f"libjpeg-turbo: {_text(refusal)}; a strict check of its data: {REASONS[code]}")
    try:
        # Not by `Image.open`, which warns about large images.
        return np.ascontiguousarray(JpegImageFile(io.BytesIO(content)).convert("RGB"))
    except Exception as error:
        raise BadImageError(f"libjpeg-turbo: {_text(refusal)}; Pillow: {_text(error)}") from error


def _text(error: Exception) -> str:
    """Return a library's message, with the class of the error unless it is about the data."""
    return str(error) if isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: {error}"


def _rgb_of_cmyk(inks: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert CMYK, which JPEGs store inverted, to RGB as Pillow does."""
    from PIL import Image

    image = Image.frombytes("CMYK", (inks.shape[1], inks.shape[0]), np.bitwise_not(inks).tobytes())
    return np.ascontiguousarray(image.convert("RGB"))
