"""Ways in which a JPEG may lie; each takes the bytes and a random generator and gives other bytes."""

from __future__ import annotations

from tests.cpu.making import joined, segments

_RESTARTS = [bytes([0xFF, 0xD0 + i]) for i in range(8)]


def cut(data, rng):
    """The end is missing."""
    return data[: int(rng.integers(len(data)))]


def cut_and_ended(data, rng):
    """Cut the end off and put an end marker there, so that the missing end is hard to notice."""
    return cut(data, rng) + b"\xff\xd9"


def flip_bits(data, rng):
    changed = bytearray(data)
    for i in rng.integers(len(data), size=rng.integers(1, 5)):
        changed[i] ^= 1 << rng.integers(8)
    return bytes(changed)


def flip_header_bits(data, rng):
    """As many bits, but before the scan."""
    stop = data.index(b"\xff\xda") + 14
    return flip_bits(data[:stop], rng) + data[stop:]


def flip_scan_bits(data, rng):
    stop = data.index(b"\xff\xda") + 14
    return data[:stop] + flip_bits(data[stop:], rng)


def overwrite(data, rng):
    """A few bytes in a row become others, often extreme ones."""
    start, count = int(rng.integers(len(data))), int(rng.integers(1, 9))
    extreme = rng.choice([b"\xff", b"\0", b"\x7f", b"\x80"]) * count
    new = bytes(rng.integers(0, 256, count, "u1")) if rng.random() < 0.5 else bytes(extreme)
    return data[:start] + new + data[start + count :]


def insert(data, rng):
    start = int(rng.integers(len(data)))
    return data[:start] + bytes(rng.integers(0, 256, rng.integers(1, 40), "u1")) + data[start:]


def leave_out(data, rng):
    start = int(rng.integers(len(data)))
    return data[:start] + data[start + int(rng.integers(1, 40)) :]


def repeat(data, rng):
    """A stretch comes twice."""
    start, stop = sorted(rng.integers(len(data), size=2).tolist())
    return data[:stop] + data[start:stop] + data[stop:]


def _segment(data, rng):
    parts = segments(data)
    return parts, int(rng.integers(1, len(parts) - 1))


def segment_gone(data, rng):
    parts, i = _segment(data, rng)
    return joined(parts[:i] + parts[i + 1 :])


def segment_twice(data, rng):
    parts, i = _segment(data, rng)
    return joined([*parts[:i], parts[i], *parts[i:]])


def segments_swapped(data, rng):
    parts, i = _segment(data, rng)
    k = int(rng.integers(1, len(parts) - 1))
    parts[i], parts[k] = parts[k], parts[i]
    return joined(parts)


def segment_renamed(data, rng):
    """A segment passes for one of another kind."""
    parts, i = _segment(data, rng)
    kinds = [0xC0, 0xC1, 0xC2, 0xC4, 0xC9, 0xDA, 0xDB, 0xDC, 0xDD, 0xE0, 0xEE, 0xFE, 0x01, 0xD0, 0xD9]
    parts[i] = int(rng.choice(kinds)), parts[i][1]
    return b"\xff\xd8" + b"".join(
        bytes([0xFF, marker]) + (2 + len(content)).to_bytes(2, "big") + content for marker, content in parts[1:]
    )


def segment_changed(data, rng):
    """One byte of a segment becomes another; mostly a small one, as counts and numbers are."""
    parts, i = _segment(data, rng)
    marker, content = parts[i]
    if content:
        k = int(rng.integers(min(len(content), 24)))
        value = int(rng.integers(256)) if rng.random() < 0.5 else int(rng.integers(6))
        parts[i] = marker, content[:k] + bytes([value]) + content[k + 1 :]
    return joined(parts)


def length_lies(data, rng):
    """Make the length of a segment smaller or larger than the segment."""
    starts = [data.index(bytes([0xFF, marker])) for marker, _ in segments(data)[1:-1]]
    start = int(rng.choice(starts)) + 2
    length = int.from_bytes(data[start : start + 2], "big") + int(rng.choice([-17, -2, -1, 1, 2, 17, 500, 60_000]))
    return data[:start] + (length % 65536).to_bytes(2, "big") + data[start + 2 :]


def huffman_counts(data, rng):
    """The numbers of codes of each length become others, and the symbols stay."""
    parts = segments(data)
    tables = [i for i, (marker, _) in enumerate(parts) if marker == 0xC4]
    i = int(rng.choice(tables))
    content = bytearray(parts[i][1])
    for k in rng.integers(1, 17, size=rng.integers(1, 4)):
        content[k] = int(rng.integers(0, 4))
    parts[i] = 0xC4, bytes(content)
    return joined(parts)


def restart_interval(data, rng):
    """A restart interval that the scan does not keep."""
    parts = [part for part in segments(data) if part[0] != 0xDD]
    return joined([parts[0], (0xDD, int(rng.integers(0, 9)).to_bytes(2, "big")), *parts[1:]])


def restart_marker(data, rng):
    """A restart marker of another number, one too many or one too few."""
    places = [i for i in range(len(data) - 1) if data[i : i + 2] in _RESTARTS] or [len(data) - 2]
    i = int(rng.choice(places))
    new = [b"", b"\xff\0", bytes([0xFF, 0xD0 + int(rng.integers(8))])][int(rng.integers(3))]
    return data[:i] + new + data[i + 2 * int(rng.integers(2)) :]


def frame(data, rng):
    """Other dimensions, other sampling, other tables."""
    parts = segments(data)
    i = next(i for i, (marker, _) in enumerate(parts) if 0xC0 <= marker <= 0xC2)
    content = bytearray(parts[i][1])
    k = int(rng.integers(len(content)))
    content[k] = int(rng.choice([0, 1, 2, 3, 4, 8, 0x11, 0x12, 0x21, 0x22, 0x41, 0xFF, content[k] + 1 & 255]))
    parts[i] = parts[i][0], bytes(content)
    return joined(parts)


WAYS = (
    cut,
    cut_and_ended,
    flip_bits,
    flip_header_bits,
    flip_scan_bits,
    overwrite,
    insert,
    leave_out,
    repeat,
    segment_gone,
    segment_twice,
    segments_swapped,
    segment_renamed,
    segment_changed,
    length_lies,
    huffman_counts,
    restart_interval,
    restart_marker,
    frame,
)
