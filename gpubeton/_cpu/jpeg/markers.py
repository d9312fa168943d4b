"""Walk over a JPEG's markers: read its headers into numbers that the next steps can trust, or probe it (T.81 Annex B).

A probe chooses a decoder: it reads the markers alone, decodes nothing and builds no tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton._compile.compile import compiled, device_function
from gpubeton._compile.intrinsics import load_u8
from gpubeton._cpu.jpeg.codes import (
    DAMAGED_HEADER,
    DAMAGED_TABLE,
    NOT_BASELINE,
    NOT_YCBCR,
    ODD_PRECISION,
    ODD_SAMPLING,
    OK,
    SEPARATE_SCANS,
)
from gpubeton._cpu.jpeg.huffman import LARGEST_CATEGORY, Tables, build_tables, is_prefix_code
from gpubeton._cpu.jpeg.idct import PLACES
from gpubeton._plan import routes
from gpubeton._plan.routes import JpegKind, Sampling
from gpubeton.format.layout import HARMLESS_PIXELS, PIXELS_A_BYTE

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array

# `frame`, the result of `read_headers`: int64.
WIDTH = 0
HEIGHT = 1
COMPONENTS = 2  # 1 or 3
LUMA_ACROSS = 3  # luma blocks of an MCU, side by side: 1 or 2
LUMA_DOWN = 4  # and one above the other: 1 or 2
QUANTIZATION = 5  # 5, 6, 7: table of each component
DC_TABLE = 8  # 8, 9, 10
AC_TABLE = 11  # 11, 12, 13: table number; its slot is 4 higher
RESTART_INTERVAL = 14  # in MCUs; 0: none
SCAN = 15  # offset of the compressed data
MCUS_ACROSS = 16
MCUS_DOWN = 17
IS_JFIF = 18  # 1 if there is a JFIF segment
ADOBE = 19  # Adobe's color transform plus 1; 0 without such a segment
SAMPLING = 20  # 20, 21, 22: 16 x horizontal + vertical sampling factor of each component
IS_ODD = 23  # 1 if the crop decoder does not know this sampling
FRAME_SIZE = 24

# The place of the scan's k-th coefficient in a row-major block (T.81 figure A.6).
# fmt: off
ZIGZAG = np.array([
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
], np.uint8)
# fmt: on
# And in a block as `inverse_dct` reads it. 64, after the block, takes values past its end.
SCAN_PLACES = np.full(256, 64, np.uint8)
SCAN_PLACES[:64] = PLACES[ZIGZAG]

SOF0, SOF1, SOF2 = 0xC0, 0xC1, 0xC2
DHT, JPG, DAC = 0xC4, 0xC8, 0xCC
RST0, EOI, SOS, DQT, DRI = 0xD0, 0xD9, 0xDA, 0xDB, 0xDD
APP0, APP14 = 0xE0, 0xEE


@device_function
def word_at(address: int) -> int:
    """Load 16 bits, high byte first."""
    return (load_u8(address) << 8) | load_u8(address + 1)


@device_function
def next_segment(position: int, stop: int) -> tuple[int, int, int]:
    """Return the next segment's marker, and where its content begins and ends; -1 if it is damaged, or missing."""
    while position + 4 <= stop and load_u8(position) == 0xFF:
        marker = load_u8(position + 1)
        if marker != 0xFF:
            end = position + 2 + word_at(position + 2)
            # Before the scan there are no markers without a length, and no reserved ones.
            is_sound = position + 4 <= end <= stop and marker >= SOF0 and not RST0 <= marker <= EOI
            return marker if is_sound else -1, position + 4, end
        position += 1  # a fill byte
    return -1, position, position


@device_function
def _is_text(address: int, first: int, second: int, third: int, fourth: int, fifth: int) -> bool:
    return (
        load_u8(address) == first
        and load_u8(address + 1) == second
        and load_u8(address + 2) == third
        and load_u8(address + 3) == fourth
        and load_u8(address + 4) == fifth
    )


@device_function
def is_jfif(marker: int, body: int, end: int) -> bool:
    """Return True for a JFIF segment, by libjpeg's rule."""
    return marker == APP0 and body + 14 <= end and _is_text(body, 74, 70, 73, 70, 0)


@device_function
def adobe_transform(marker: int, body: int, end: int) -> int:
    """Return the color transform of an Adobe segment plus 1; 0 for every other segment."""
    is_adobe = marker == APP14 and body + 12 <= end and _is_text(body, 65, 100, 111, 98, 101)
    return 1 + load_u8(body + 11) if is_adobe else 0


@device_function
def is_ycbcr(jfif: bool, adobe: int, first: int, second: int, third: int) -> bool:
    """Apply libjpeg's rule for three components: a JFIF segment, else Adobe's marker, else not the names R, G, B."""
    if jfif or adobe != 0:
        return jfif or adobe == 2
    return not (first == 82 and second == 71 and third == 66)


@device_function
def _read_quantization(address: int, stop: int, multipliers: Array, defined: Array) -> int:
    while address < stop:
        precision = load_u8(address) >> 4
        slot = load_u8(address) & 15
        if precision != 0:
            return ODD_PRECISION
        if slot > 3 or address + 65 > stop:
            return DAMAGED_TABLE
        for k in range(64):
            multipliers[slot, SCAN_PLACES[k]] = load_u8(address + 1 + k)
        defined[8 + slot] = 1
        address += 65
    return OK


@device_function
def _read_huffman(address: int, stop: int, tables: Tables) -> int:
    while address < stop:
        is_ac = load_u8(address) >> 4
        number = load_u8(address) & 15
        if is_ac > 1 or number > 3 or address + 17 > stop:
            return DAMAGED_TABLE
        slot = 4 * is_ac + number
        count = 0
        for i in range(16):
            count += load_u8(address + 1 + i)
        if count > 256 or address + 17 + count > stop:
            return DAMAGED_TABLE
        # Most files of a data set have the same tables: build them only if they differ from the last ones.
        same = tables.built[slot] == 1
        for i in range(16 + count):
            value = load_u8(address + 1 + i)
            if tables.source[slot, i] != value:
                same = False
                tables.source[slot, i] = value
        if not same:
            tables.built[slot] = 0
            lengths = tables.source[slot, :16]
            symbols = tables.source[slot, 16:272]
            if not is_prefix_code(lengths, count):
                return DAMAGED_TABLE
            for i in range(count):
                size = symbols[i] & 15 if is_ac == 1 else symbols[i]
                if size > LARGEST_CATEGORY:
                    return DAMAGED_TABLE
            build_tables(
                lengths,
                symbols,
                is_ac == 1,
                tables.single[slot],
                tables.pair[number],
                tables.skip[number],
                tables.limits[slot],
                tables.offsets[slot],
            )
            tables.built[slot] = 1
        tables.defined[slot] = 1
        address += 17 + count
    return OK


@device_function
def _read_frame(address: int, length: int, frame: Array, identifiers: Array) -> int:
    if length < 8 or frame[COMPONENTS] != 0:
        return DAMAGED_HEADER
    if load_u8(address) != 8:
        return ODD_PRECISION
    frame[HEIGHT] = word_at(address + 1)
    frame[WIDTH] = word_at(address + 3)
    components = load_u8(address + 5)
    frame[COMPONENTS] = components
    if frame[WIDTH] == 0 or frame[HEIGHT] == 0 or length != 8 + 3 * components:
        return DAMAGED_HEADER
    if components != 1 and components != 3:
        return NOT_YCBCR
    for i in range(components):
        identifiers[i] = load_u8(address + 6 + 3 * i)
        across = load_u8(address + 7 + 3 * i) >> 4
        down = load_u8(address + 7 + 3 * i) & 15
        frame[QUANTIZATION + i] = load_u8(address + 8 + 3 * i)
        if frame[QUANTIZATION + i] > 3:
            return DAMAGED_TABLE
        frame[SAMPLING + i] = 16 * across + down
        if i == 0:
            # A scan of one component has one block per MCU, for any sampling (T.81 A.2.2).
            frame[LUMA_ACROSS] = across if components == 3 else 1
            frame[LUMA_DOWN] = down if components == 3 else 1
        elif across != 1 or down != 1:
            frame[IS_ODD] = 1
    if not (1 <= frame[LUMA_ACROSS] <= 2 and 1 <= frame[LUMA_DOWN] <= 2):
        frame[IS_ODD] = 1
    if frame[IS_ODD] == 1:
        return OK
    frame[MCUS_ACROSS] = (frame[WIDTH] + 8 * frame[LUMA_ACROSS] - 1) // (8 * frame[LUMA_ACROSS])
    frame[MCUS_DOWN] = (frame[HEIGHT] + 8 * frame[LUMA_DOWN] - 1) // (8 * frame[LUMA_DOWN])
    return OK


@device_function
def _read_scan(address: int, length: int, frame: Array, tables: Tables) -> int:
    components, identifiers, defined = frame[COMPONENTS], tables.identifiers, tables.defined
    if components == 0:
        return DAMAGED_HEADER
    first, second, third = identifiers[0], identifiers[1], identifiers[2]
    if components == 3 and not is_ycbcr(frame[IS_JFIF] == 1, frame[ADOBE], first, second, third):
        return NOT_YCBCR
    if length < 6 or length != 6 + 2 * load_u8(address):
        return DAMAGED_HEADER
    if load_u8(address) != components:
        return SEPARATE_SCANS
    for i in range(components):
        # Components come in the frame's order (T.81 B.2.3).
        if load_u8(address + 1 + 2 * i) != identifiers[i]:
            return DAMAGED_HEADER
        selectors = load_u8(address + 2 + 2 * i)
        frame[DC_TABLE + i] = selectors >> 4
        frame[AC_TABLE + i] = selectors & 15
        if frame[DC_TABLE + i] > 3 or frame[AC_TABLE + i] > 3:
            return DAMAGED_TABLE
        if defined[frame[DC_TABLE + i]] == 0 or defined[4 + frame[AC_TABLE + i]] == 0:
            return DAMAGED_TABLE
        if defined[8 + frame[QUANTIZATION + i]] == 0:
            return DAMAGED_TABLE
    return OK


@device_function
def _read_segment(marker: int, body: int, end: int, frame: Array, tables: Tables) -> int:
    """Read any segment except the one that starts the scan."""
    if marker == DQT:
        return _read_quantization(body, end, tables.multipliers, tables.defined)
    if marker == DHT:
        return _read_huffman(body, end, tables)
    if marker in (SOF0, SOF1):
        return _read_frame(body, end - body + 2, frame, tables.identifiers)
    if marker < RST0:
        return NOT_BASELINE
    if marker == DRI:
        if end - body != 2:
            return DAMAGED_HEADER
        frame[RESTART_INTERVAL] = word_at(body)
    elif is_jfif(marker, body, end):
        frame[IS_JFIF] = 1
    else:
        frame[ADOBE] = adobe_transform(marker, body, end) or frame[ADOBE]
    return OK


@device_function
def read_headers(
    address: int,  # of the JPEG
    size: int,
    frame: Array,  # (FRAME_SIZE,) int64, written; with ODD_SAMPLING all but the luma blocks and the number of MCUs
    tables: Tables,  # written
) -> int:
    """Read everything up to the compressed data; return a code of `codes`."""
    stop = address + size
    if size < 4 or load_u8(address) != 0xFF or load_u8(address + 1) != 0xD8:
        return DAMAGED_HEADER
    frame[:] = 0
    tables.defined[:] = 0
    marker, body, end = next_segment(address + 2, stop)
    while marker != -1:
        if marker == SOS:
            frame[SCAN] = end - address
            code = _read_scan(body, end - body + 2, frame, tables)
            return ODD_SAMPLING if code == OK and frame[IS_ODD] == 1 else code
        code = _read_segment(marker, body, end, frame, tables)
        if code != OK:
            return code
        marker, body, end = next_segment(end, stop)
    return DAMAGED_HEADER


# --- probing ----------------------------------------------------------------------------------------------------------

_KIND, _TABLES = routes.KIND, routes.TABLES
_HEIGHT, _WIDTH, _SAMPLING = routes.HEIGHT, routes.WIDTH, routes.SAMPLING
_BASELINE, _ELABORATE, _FOREIGN = map(int, (JpegKind.BASELINE, JpegKind.ELABORATE, JpegKind.FOREIGN))
_QUARTER_ACROSS, _EIGHTH, _GRAY = map(int, (Sampling.QUARTER_ACROSS, Sampling.EIGHTH, Sampling.GRAY))

# By the sampling factors of luma, 16 x horizontal + vertical, where those of chroma are one; -1: unusual.
_SAMPLINGS = np.full(256, -1)
_SAMPLINGS[[0x11, 0x21, 0x22, 0x12, 0x41, 0x42]] = list(Sampling)[:_GRAY]


@device_function
def _sampling(body: int) -> int:
    """Return the chroma sampling of a frame of three components; -1 if it is unusual."""
    for i in (1, 2):
        if load_u8(body + 7 + 3 * i) != 0x11:
            return -1
    return int(_SAMPLINGS[load_u8(body + 7)])


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
        row[_TABLES] = _hashed(int(row[_TABLES]), marker, body - 4, end)
        if marker == SOS:
            # With a file that was cut short, nvJPEG refuses the whole batch, or decodes a part without an error.
            # With more pixels than the bytes can hold, the CPU refuses it before it allocates memory.
            fits = int(row[_HEIGHT]) * int(row[_WIDTH]) <= max(HARMLESS_PIXELS, PIXELS_A_BYTE * size)
            if frame != 0 and end > body and fits and _has_end(end, stop):
                row[_KIND] = _kind(frame_marker, frame, jfif, adobe, sampling, body)
            return
        if marker < RST0 and marker not in (DHT, JPG, DAC):
            if frame != 0 or end - body < 6 or end - body != 6 + 3 * load_u8(body + 5):
                return
            frame, frame_marker = body, marker
            row[_HEIGHT], row[_WIDTH] = word_at(body + 1), word_at(body + 3)
            components = load_u8(body + 5)
            if components == 1:
                sampling = _GRAY
            elif components == 3:
                sampling = _sampling(body)
            row[_SAMPLING] = sampling
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
