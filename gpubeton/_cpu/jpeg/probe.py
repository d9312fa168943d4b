"""Probe JPEGs: read their markers to choose a decoder for each. Decodes nothing and builds no tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton._compile.compile import compiled, device_function
from gpubeton._cpu.intrinsics import load_u8
from gpubeton._cpu.jpeg.markers import word_at
from gpubeton._plan.routes import HEIGHT, KIND, SAMPLING, TABLES, WIDTH, JpegKind, Sampling
from gpubeton.fields.jpeg_markers import HARMLESS_PIXELS, PIXELS_A_BYTE

if TYPE_CHECKING:
    from gpubeton._cpu.intrinsics import Array

_BASELINE = int(JpegKind.BASELINE)
_ELABORATE = int(JpegKind.ELABORATE)
_FOREIGN = int(JpegKind.FOREIGN)
_GRAY = int(Sampling.GRAY)
_FULL = int(Sampling.FULL)
_HALF_ACROSS = int(Sampling.HALF_ACROSS)
_HALF_BOTH = int(Sampling.HALF_BOTH)
_HALF_DOWN = int(Sampling.HALF_DOWN)
_QUARTER_ACROSS = int(Sampling.QUARTER_ACROSS)
_EIGHTH = int(Sampling.EIGHTH)

_SOF0, _SOF1, _SOF2 = 0xC0, 0xC1, 0xC2
_DHT, _JPG, _DAC = 0xC4, 0xC8, 0xCC
_RST0, _EOI, _SOS, _DQT, _DRI = 0xD0, 0xD9, 0xDA, 0xDB, 0xDD
_APP0, _APP14 = 0xE0, 0xEE


@device_function
def _is_jfif(body: int, end: int) -> bool:
    return end - body >= 5 and load_u8(body) == 74 and load_u8(body + 1) == 70 and load_u8(body + 2) == 73


@device_function
def _adobe_transform(body: int, end: int) -> int:
    """Return Adobe's color transform plus 1; 0 for the segment of another program."""
    is_adobe = end - body >= 12 and load_u8(body) == 65 and load_u8(body + 1) == 100 and load_u8(body + 2) == 111
    return 1 + load_u8(body + 11) if is_adobe else 0


@device_function
def _sampling(body: int) -> int:
    """Return the chroma sampling of a frame of three components; -1 if it is unusual."""
    for i in (1, 2):
        if load_u8(body + 7 + 3 * i) != 0x11:
            return -1
    luma = load_u8(body + 7)
    if luma == 0x11:
        return _FULL
    if luma == 0x21:
        return _HALF_ACROSS
    if luma == 0x22:
        return _HALF_BOTH
    if luma == 0x12:
        return _HALF_DOWN
    if luma == 0x41:
        return _QUARTER_ACROSS
    if luma == 0x42:
        return _EIGHTH
    return -1


@device_function
def _kind(marker: int, frame: int, jfif: bool, adobe: int, sampling: int, scan: int) -> int:
    """Return the kind of an image from its frame and its first scan header."""
    components = load_u8(frame + 5)
    if load_u8(frame) != 8 or marker > _SOF2 or sampling < 0:
        return _FOREIGN
    if components == 3 and not jfif:
        # libjpeg's rule: Adobe's transform, else the components' names.
        names_rgb = load_u8(frame + 6) == 82 and load_u8(frame + 9) == 71 and load_u8(frame + 12) == 66
        if adobe not in (0, 2) or (adobe == 0 and names_rgb):
            return _FOREIGN
    if marker == _SOF2 or load_u8(scan) != components or sampling in (_QUARTER_ACROSS, _EIGHTH):
        return _ELABORATE
    return _BASELINE


@device_function
def _has_end(start: int, stop: int) -> bool:
    """Return True if an end marker follows the first scan's header; searched from the end, where most files have it."""
    position = stop - 2
    while position >= start:
        if load_u8(position) == 0xFF and load_u8(position + 1) == _EOI:
            return True
        position -= 1
    return False


@device_function
def _hashed(value: int, marker: int, start: int, end: int) -> int:
    """Continue a hash of 31 bits with a segment, if it has tables or tells how they are used."""
    if marker not in (_DHT, _SOS, _DQT, _DRI):
        return value
    for place in range(start, end):
        value = ((value ^ load_u8(place)) * 16777619) & 0x7FFFFFFF
    return value


@device_function
def _probe_one(address: int, size: int, row: Array) -> None:
    row[:] = 0
    stop = address + size
    if size < 4 or load_u8(address) != 0xFF or load_u8(address + 1) != 0xD8:
        return
    frame = 0
    frame_marker = 0
    jfif = False
    adobe = 0
    sampling = -1
    position = address + 2
    while position + 4 <= stop:
        if load_u8(position) != 0xFF:
            return
        marker = load_u8(position + 1)
        if marker == 0xFF:
            position += 1
            continue
        body = position + 4
        end = position + 2 + word_at(position + 2)
        if marker < _SOF0 or _RST0 <= marker <= _EOI or end < body or end > stop:
            return
        row[TABLES] = _hashed(int(row[TABLES]), marker, position, end)
        if marker == _SOS:
            # With a file that was cut short, nvJPEG refuses the whole batch, or decodes a part without an error.
            # With more pixels than the bytes can hold, the CPU refuses it before it allocates memory.
            fits = int(row[HEIGHT]) * int(row[WIDTH]) <= max(HARMLESS_PIXELS, PIXELS_A_BYTE * size)
            if frame != 0 and end > body and fits and _has_end(end, stop):
                row[KIND] = _kind(frame_marker, frame, jfif, adobe, sampling, body)
            return
        if marker < _RST0 and marker != _DHT and marker != _JPG and marker != _DAC:
            if frame != 0 or end - body < 6 or end - body != 6 + 3 * load_u8(body + 5):
                return
            frame, frame_marker = body, marker
            row[HEIGHT], row[WIDTH] = word_at(body + 1), word_at(body + 3)
            components = load_u8(body + 5)
            if components == 1:
                sampling = _GRAY
            elif components == 3:
                sampling = _sampling(body)
            row[SAMPLING] = sampling
        elif marker == _APP0 and _is_jfif(body, end):
            jfif = True
        elif marker == _APP14:
            found = _adobe_transform(body, end)
            adobe = found if found != 0 else adobe
        position = end


@compiled
def probe_jpegs(
    address: Array,  # (N,) uint64
    size: Array,  # (N,) uint64: bytes
    out: Array,  # (N, PROBE_COLUMNS) int32, written, see `gpubeton._plan.routes`
) -> None:
    """Read the markers of JPEGs up to their first scan, and look for their end marker."""
    # DAMAGED: no JPEG, no end marker, or more pixels than its bytes can hold.
    for i in range(out.shape[0]):
        _probe_one(int(address[i]), int(size[i]), out[i])
