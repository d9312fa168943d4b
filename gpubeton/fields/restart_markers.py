"""Restart markers: put into a baseline JPEG without decoding it further than to its codes (T.81 E.1.4).

The quantized coefficients stay the same, so every decoder makes the same pixels. Only the DC values after a marker are
written again: they are differences from the value before, which a marker sets to zero.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.fields.jpeg_markers import ALONE, JPEG_END, SOS, pieces, read_frame
from gpubeton.format.layout import MAX_INTERVALS
from gpubeton.pipeline.compiler import Compiler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_DHT, _DRI = 0xC4, 0xDD

# Numbers of codes of each length and the symbols: a DC table with all categories, T.81 table K.3.
_ALL_CATEGORIES = bytes([0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, *range(12)])

# What `recode` returns in place of a number of codes.
DAMAGED = -1
NO_CODE = -2


def with_restart_markers(content: bytes, interval: int) -> bytes:
    """Put a restart marker after each `interval` MCUs of a baseline JPEG; leave one that cannot be read unchanged."""
    # For a large image, `interval` becomes longer, so that there are at most `MAX_INTERVALS` intervals.
    frame = read_frame(content)
    if frame is None or not frame.is_plain:
        return content
    count = len(frame.components)
    factors = frame.sampling if count > 1 else ((1, 1),)
    across, down = (max(1, *(each[i] for each in factors)) for i in (0, 1))
    mcus = -(-frame.width // (8 * across)) * -(-frame.height // (8 * down))
    interval = max(interval, -(-mcus // MAX_INTERVALS))
    segments, position = _segments(content)
    tables = {number: table for marker, body in segments if marker == _DHT for number, table in _tables(body)}
    selectors = segments[-1][1][2 : 2 + 2 * count : 2]
    slots = [slot for each in selectors for slot in (each >> 4, 16 + (each & 15))]
    has_all = segments[-1][1][:1] == bytes([count]) and len(segments[-1][1]) == 4 + 2 * count
    if interval >= mcus or not has_all or not set(slots) <= set(tables):
        return content
    old = next((int.from_bytes(body[:2], "big") for marker, body in segments if marker == _DRI), 0)
    scan = np.frombuffer(content, np.uint8), position, np.stack([_lookup(tables[slot]) for slot in slots])
    blocks = np.repeat(np.arange(count), [a * d for a, d in factors])
    numbers = np.array([mcus, interval, old], np.int64)
    # A code has at least one bit. Memory that is not written costs nothing.
    room = 8 * len(content) + min(mcus // interval, 8 * len(content)) + 2
    made, lengths = np.empty(room, np.int32), np.empty(room, np.uint8)
    run = Compiler.compile(recode)
    number, end = run(*scan, np.stack([_codes(tables[slot]) for slot in slots[::2]]), blocks, numbers, made, lengths)
    kept = [(marker, body) for marker, body in segments[:-1] if marker != _DRI]
    if number == NO_CODE:
        number, end = run(*scan, np.stack([_codes(_ALL_CATEGORIES)] * count), blocks, numbers, made, lengths)
        kept = [(marker, body) for marker, body in kept if marker != _DHT]
        kept += [(_DHT, bytes([slot]) + _ALL_CATEGORIES) for slot in sorted(set(slots[::2]))]
        kept += [(_DHT, bytes([slot]) + tables[slot]) for slot in sorted(set(slots[1::2]))]
    if number < 0 or content[end : end + 2] != JPEG_END:
        return content
    target = np.empty(int(lengths[:number].sum(dtype=np.int64)) // 4 + 4 * number + 8, np.uint8)
    size = Compiler.compile(pack)(made, lengths, number, target)
    kept += [(_DRI, interval.to_bytes(2, "big")), segments[-1]]
    headers = b"".join(bytes([0xFF, m]) + (len(body) + 2).to_bytes(2, "big") + body for m, body in kept)
    return content[:2] + headers + target[:size].tobytes() + content[end:]


def _segments(content: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """Read marker and body of each segment up to the scan's, which is the last; and where its data begin."""
    segments, position = [], 0
    for marker, start, position in pieces(content):
        if marker not in ALONE:
            segments.append((marker, content[start + 4 : position]))
        if marker == SOS:
            break
    return segments, position


def _tables(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Read class and number, and lengths and symbols, of each table of a DHT segment."""
    while len(body) > 16:
        size = 17 + sum(body[1:17])
        yield body[0], body[1:size]
        body = body[size:]


def _each_code(table: bytes) -> Iterator[tuple[int, int, int]]:
    """List symbol, code and length of each code (T.81 C.2)."""
    code, k = 0, 16
    for length in range(1, 17):
        for symbol in table[k : k + table[length - 1]]:
            yield symbol, code, length
            code += 1
        k += table[length - 1]
        code <<= 1


@lru_cache(64)
def _lookup(table: bytes) -> NDArray[np.int32]:
    """Give the code length and the symbol, as 256 * length + symbol, for each 16 bits; 0 where no code begins so."""
    lookup = np.zeros(1 << 16, np.int32)
    for symbol, code, length in _each_code(table):
        lookup[code << (16 - length) : (code + 1) << (16 - length)] = 256 * length + symbol
    return lookup


@lru_cache(64)
def _codes(table: bytes) -> NDArray[np.int64]:
    """Give code and length of each DC category (16, 2); length 0 where there is none."""
    codes = np.zeros((16, 2), np.int64)
    for symbol, code, length in _each_code(table):
        if symbol < 16 and codes[symbol, 1] == 0:
            codes[symbol] = code, length
    return codes


def recode(
    source: NDArray[Any],  # uint8: the JPEG
    position: int,  # where its compressed data begin
    lookups: NDArray[Any],  # int32 (2 C, 65536): of the DC and AC table of each component
    codes: NDArray[Any],  # int64 (C, 16, 2): code and length of each DC category that is written
    components: NDArray[Any],  # int64 (B,): of each block of an MCU
    numbers: NDArray[Any],  # int64 (3,): MCUs of the image, of a new interval, and of an old one, 0 without
    made: NDArray[Any],  # int32, written: the bits of each symbol with its value; -1 for a marker
    lengths: NDArray[Any],  # uint8, written: how many bits
) -> tuple[int, int]:
    """Read the codes of a scan, and make those of one with other restart intervals."""
    # Returns their number and where the end marker is. The number is `DAMAGED`, or `NO_CODE` if a DC value needs a
    # category without a code. Plain loops: compiled by Numba.
    mcus, interval, old, count = int(numbers[0]), int(numbers[1]), int(numbers[2]), 0
    window, filled, padded = 0, 0, 0  # the next `filled` bits; the last `padded` of them are not in the source
    values, written = np.zeros(4, np.int64), np.zeros(4, np.int64)
    for step in range(mcus * components.size):
        mcu, component = step // components.size, components[step % components.size]
        begins = step % components.size == 0 and mcu > 0
        if begins and old > 0 and mcu % old == 0:
            if filled - padded > 7 or position + 1 >= source.size:
                return DAMAGED, 0
            if source[position] != 0xFF or source[position + 1] != 0xD0 + (mcu // old - 1) % 8:
                return DAMAGED, 0
            position += 2
            window, filled, padded = 0, 0, 0
            values[:] = 0
        if begins and mcu % interval == 0:
            made[count], lengths[count] = -1, 0
            count += 1
            written[:] = 0
        k = 0
        while k < 64:
            while filled <= 40:
                byte = 0
                if position + 1 < source.size and (source[position] != 0xFF or source[position + 1] == 0):
                    byte = int(source[position])
                    position += 2 if byte == 0xFF else 1
                else:
                    padded += 8
                window = ((window & 0xFFFFFFFFFF) << 8) | byte
                filled += 8
            entry = int(lookups[2 * component + (1 if k > 0 else 0), (window >> (filled - 16)) & 0xFFFF])
            length, run, size = entry >> 8, (entry >> 4) & 15, entry & 15
            filled -= length + size
            if entry == 0 or (k == 0 and run > 0) or padded > filled or count + 2 > made.size:
                return DAMAGED, 0
            length += size
            bits = (window >> filled) & ((1 << length) - 1)
            if k == 0:
                value = bits & ((1 << size) - 1)
                values[component] += value if size == 0 or value >> (size - 1) else value - (1 << size) + 1
                value = int(values[component] - written[component])
                written[component] = values[component]
                size = 0
                while abs(value) >> size > 0:
                    size += 1
                if size > 15 or codes[component, size, 1] == 0:
                    return NO_CODE, 0
                bits = (int(codes[component, size, 0]) << size) | (value if value >= 0 else value + (1 << size) - 1)
                length = int(codes[component, size, 1]) + size
            k += 64 if k > 0 and size == 0 and run < 15 else run + 1
            made[count], lengths[count] = bits, length
            count += 1
    return (DAMAGED if filled - padded > 7 else count), position


def pack(made: NDArray[Any], lengths: NDArray[Any], count: int, target: NDArray[Any]) -> int:
    """Write the codes and markers of `recode` as bytes with stuffing; return their number. Compiled by Numba, too."""
    out, pending, done, markers = 0, 0, 0, 0
    for i in range(count + 1):
        is_end = i == count or lengths[i] == 0
        length = -pending % 8 if is_end else int(lengths[i])
        out = ((out & 0xFF) << length) | ((1 << length) - 1 if is_end else int(made[i]))
        pending += length
        while pending >= 8:
            pending -= 8
            target[done] = (out >> pending) & 0xFF
            target[done + 1] = 0
            done += 2 if target[done] == 0xFF else 1
        if is_end and i < count:
            target[done], target[done + 1] = 0xFF, 0xD0 + markers % 8
            done += 2
            markers += 1
    return done
