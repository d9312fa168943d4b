"""Probe JPEGs: read their markers to choose a decoder for each. Decodes nothing and builds no tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton._compile.compile import compiled, device_function
from gpubeton._compile.intrinsics import load_u8
from gpubeton._cpu.jpeg.markers import (
    DAC,
    DHT,
    DQT,
    DRI,
    EOI,
    JPG,
    RST0,
    SOF2,
    SOS,
    adobe_transform,
    is_jfif,
    is_ycbcr,
    next_segment,
    word_at,
)
from gpubeton._plan.routes import HEIGHT, KIND, SAMPLING, TABLES, WIDTH, JpegKind, Sampling
from gpubeton.fields.jpeg import HARMLESS_PIXELS, PIXELS_A_BYTE

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array

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
    if load_u8(frame) != 8 or marker > SOF2 or sampling < 0:
        return _FOREIGN
    if components == 3 and not is_ycbcr(jfif, adobe, load_u8(frame + 6), load_u8(frame + 9), load_u8(frame + 12)):
        return _FOREIGN
    if marker == SOF2 or load_u8(scan) != components or sampling in (_QUARTER_ACROSS, _EIGHTH):
        return _ELABORATE
    return _BASELINE


@device_function
def _has_end(start: int, stop: int) -> bool:
    """Return True if an end marker follows the first scan's header; searched from the end, where most files have it."""
    position = stop - 2
    while position >= start:
        if load_u8(position) == 0xFF and load_u8(position + 1) == EOI:
            return True
        position -= 1
    return False


@device_function
def _hashed(value: int, marker: int, start: int, end: int) -> int:
    """Continue a hash of 31 bits with a segment, if it has tables or chooses among them."""
    if marker not in (DHT, SOS, DQT, DRI):
        return value
    for address in range(start, end):
        value = ((value ^ load_u8(address)) * 16777619) & 0x7FFFFFFF
    return value


@device_function
def _probe(address: int, size: int, row: Array) -> None:
    row[:] = 0
    stop = address + size
    if size < 4 or load_u8(address) != 0xFF or load_u8(address + 1) != 0xD8:
        return
    frame = 0
    frame_marker = 0
    jfif = False
    adobe = 0
    sampling = -1
    marker, body, end = next_segment(address + 2, stop)
    while marker != -1:
        row[TABLES] = _hashed(int(row[TABLES]), marker, body - 4, end)
        if marker == SOS:
            # With a file that was cut short, nvJPEG refuses the whole batch, or decodes a part without an error.
            # With more pixels than the bytes can hold, the CPU refuses it before it allocates memory.
            fits = int(row[HEIGHT]) * int(row[WIDTH]) <= max(HARMLESS_PIXELS, PIXELS_A_BYTE * size)
            if frame != 0 and end > body and fits and _has_end(end, stop):
                row[KIND] = _kind(frame_marker, frame, jfif, adobe, sampling, body)
            return
        if marker < RST0 and marker not in (DHT, JPG, DAC):
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
        elif is_jfif(marker, body, end):
            jfif = True
        else:
            adobe = adobe_transform(marker, body, end) or adobe
        marker, body, end = next_segment(end, stop)


@compiled
def probe_jpegs(
    address: Array,  # (N,) uint64
    size: Array,  # (N,) uint64: bytes
    out: Array,  # (N, PROBE_COLUMNS) int32, written, see `gpubeton._plan.routes`
) -> None:
    """Read the markers of JPEGs up to their first scan, and look for their end marker."""
    # DAMAGED: no JPEG, no end marker, or more pixels than its bytes can hold.
    for i in range(out.shape[0]):
        _probe(int(address[i]), int(size[i]), out[i])
