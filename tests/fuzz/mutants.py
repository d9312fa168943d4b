"""Ways in which a JPEG may be wrong, besides those of `tests.cpu.damage`, and images to start with."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np

from tests.cpu import damage
from tests.cpu.making import joined, segments
from tests.cpu.pictures import SIMPLEJPEG_NAMES, jpeg, noise, photo, pillow_jpeg, planes
from tests.cpu.plain_jpeg import components_of, write

_FRAMES = (0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC9, 0xCA)
_RESTARTS = [bytes([0xFF, 0xD0 + i]) for i in range(8)]


# --- images to start with ----------------------------------------------------------------------------------------


@cache
def bases():
    """Sound images as (data, height, width): all kinds that libjpeg-turbo knows, 1 to 70 pixels a side."""
    rng, results = np.random.default_rng(1), []
    for sampling in [*SIMPLEJPEG_NAMES, "gray"] * 6:
        picture = _picture(rng)
        results.append((jpeg(picture, int(rng.integers(20, 101)), sampling), *picture.shape[:2]))
    for sampling in ("4:2:0", "4:2:2", "4:4:4") * 6:
        picture, blocks = _picture(rng), int(rng.integers(0, 4))
        restarts = {"restart_marker_blocks": blocks} if blocks else {"restart_marker_rows": 1}
        options = {"quality": int(rng.integers(20, 101)), "optimize": bool(rng.integers(2)), **restarts}
        results.append((pillow_jpeg(picture, subsampling=sampling, **options), *picture.shape[:2]))
    for mode, options in [("RGB", {"progressive": True}), ("CMYK", {}), ("L", {"restart_marker_blocks": 2})] * 4:
        picture = _picture(rng)
        results.append((pillow_jpeg(picture, mode, quality=60, **options), *picture.shape[:2]))
    sizes = itertools.product(range(1, 5), repeat=2)
    return [*results, *(_sampled(across, down, int(rng.integers(3))) for across, down in sizes)]


def _picture(rng):
    height, width = rng.integers(1, 71, 2).tolist()
    return (noise if rng.random() < 0.3 else photo)(height, width, int(rng.integers(1000)))


def _sampled(across, down, restarts):
    """An image with that many luma blocks in an MCU, which not all libraries have a name for."""
    height, width = 9 * down, 7 * across
    ycc = planes(jpeg(photo(height, width), 90, "4:4:4"))
    components = components_of(ycc, ((across, down), (1, 1), (1, 1)))
    return write(components, height, width, restart_interval=restarts), height, width


# --- segments ----------------------------------------------------------------------------------------------------


def _places(parts, markers):
    return [i for i, (marker, _) in enumerate(parts) if marker in markers]


def _change(data, rng, markers, edit):
    """Edit the content of one segment of these kinds, if there is any."""
    parts = segments(data)
    places = _places(parts, markers)
    if not places:
        return data
    i = places[int(rng.integers(len(places)))]
    parts[i] = parts[i][0], bytes(edit(bytearray(parts[i][1])))
    return joined(parts)


def _one_of(rng, values):
    return values[int(rng.integers(len(values)))]


def sampling(data, rng):
    """Every component gets 1 to 4 x 1 to 4 blocks of an MCU; mostly the first alone."""

    def edit(content):
        for k in range(content[5] if rng.random() < 0.3 else 1):
            content[7 + 3 * k] = int(rng.integers(1, 5)) << 4 | int(rng.integers(1, 5))
        return content

    return _change(data, rng, _FRAMES, edit)


def dimensions(data, rng):
    """Other dimensions, mostly near those that are there."""

    def edit(content):
        k = _one_of(rng, (1, 3))
        side = int.from_bytes(content[k : k + 2], "big")
        other = _one_of(rng, (0, 1, side - 1, side + 1, side + 8, side + 16, 2 * side, side // 2, 255, 256, 65535))
        content[k : k + 2] = (other & 65535).to_bytes(2, "big")
        return content

    return _change(data, rng, _FRAMES, edit)


def frame_kind(data, rng):
    """Progressive, lossless, arithmetic: only in name."""
    parts = segments(data)
    i = _places(parts, _FRAMES)[0]
    parts[i] = _one_of(rng, _FRAMES), parts[i][1]
    return joined(parts)


def precision(data, rng):
    return _change(data, rng, _FRAMES, lambda content: bytes([_one_of(rng, (0, 1, 7, 9, 12, 16, 255))]) + content[1:])


def components(data, rng):
    """Number, names or tables of the frame's components."""

    def edit(content):
        k = int(rng.integers(5, len(content)))
        content[k] = _one_of(rng, (0, 1, 2, 3, 4, 5, 255, content[k] ^ 1))
        return content

    return _change(data, rng, _FRAMES, edit)


def scan_header(data, rng):
    """Number, names or tables of the scan's components, or what of the spectrum it holds."""

    def edit(content):
        k = int(rng.integers(4 + 2 * content[0]))
        content[k] = _one_of(rng, (0, 1, 2, 3, 4, 0x10, 0x11, 0x22, 0x33, 63, 64, 255))
        return content

    return _change(data, rng, (0xDA,), edit)


def quantization(data, rng):
    """A table of another name or width, zeros, or the largest factors."""

    def edit(content):
        way = int(rng.integers(4))
        if way == 0:
            content[0] = _one_of(rng, (0, 1, 2, 3, 4, 0x10, 0x11, 0xF0, 255))
        elif way == 1:
            content[1:65] = bytes([_one_of(rng, (0, 1, 255))]) * 64
        elif way == 2:
            content[1 + int(rng.integers(64))] = _one_of(rng, (0, 255))
        else:
            content = bytes([content[0] | 0x10]) + b"".join(bytes([int(rng.integers(2)), c]) for c in content[1:65])
        return content

    return _change(data, rng, (0xDB,), edit)


def huffman(data, rng):
    """Too many codes or too few, of other lengths, or symbols that no coefficient has."""

    def edit(content):
        way, total = int(rng.integers(5)), sum(content[1:17])
        if way == 0:
            k, n = (1 + rng.integers(16, size=2)).tolist()
            moved = min(content[k], int(rng.integers(1, 4)))
            content[k], content[n] = content[k] - moved, min(255, content[n] + moved)
        elif way == 1:
            content[1:17] = bytes(15) + bytes([min(total, 255)])
        elif way == 2:
            content[17 + int(rng.integers(max(total, 1)))] = _one_of(rng, (0, 11, 12, 15, 16, 0xF0, 0xFF, 0x0B))
        elif way == 3:
            content[0] = _one_of(rng, (0, 1, 2, 3, 4, 0x10, 0x11, 0x12, 0x13, 0x20))
        else:
            content[17:] = rng.permutation(np.frombuffer(bytes(content[17:]), np.uint8)).tobytes()
        return content

    return _change(data, rng, (0xC4,), edit)


def other_tables(data, rng):
    """The Huffman or quantization tables of another image."""
    marker = _one_of(rng, (0xC4, 0xDB))
    parts, other = segments(data), segments(_one_of(rng, bases())[0])
    rest = [part for part in parts if part[0] != marker]
    return joined([rest[0], *(part for part in other if part[0] == marker), *rest[1:]])


def application(data, rng):
    """A segment of a program: Adobe's colors, JFIF, an ICC or Exif one, a thumbnail, a long comment."""
    thumbnail = _one_of(rng, bases())[0]
    new = _one_of(
        rng,
        [
            (0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([int(rng.integers(4))])),
            (0xE0, b"JFIF\0\1\1\0\0\1\0\1\2\2" + bytes(12)),
            (0xE0, b"JFXX\0\x10" + thumbnail),
            (0xE1, b"Exif\0\0II*\0\x08\0\0\0" + bytes(rng.integers(0, 256, 30, "u1")) + thumbnail),
            (0xE2, b"ICC_PROFILE\0" + bytes(rng.integers(0, 3, 2, "u1")) + bytes(20)),
            (0xFE, bytes(int(rng.integers(3000)))),
        ],
    )
    parts = segments(data)
    i = int(rng.integers(1, len(parts)))
    return joined([*parts[:i], new, *parts[i:]])


def between_segments(data, rng):
    """Junk, filling or a bare marker before a segment."""
    parts = segments(data)
    i = int(rng.integers(1, len(parts)))
    junk = _one_of(
        rng, [b"\0", b"\xff", b"\xff" * 9, b"\xff\0", b"\xff\x01", b"\xff\xd3", rng.bytes(5), b"\xff\xdc\0\4\0\x10"]
    )
    at = len(joined(parts[:i]))
    return data[:at] + junk + data[at:]


# --- scans -------------------------------------------------------------------------------------------------------


def restarts(data, rng):
    """One or all restart markers gone, doubled or with other numbers."""
    start = data.index(b"\xff\xda")
    places = [i for i in range(start, len(data) - 1) if data[i : i + 2] in _RESTARTS]
    if not places:
        return data
    first = data.index(b"\xff\xda")
    way = int(rng.integers(4))
    if way == 0:
        pieces, position = [data[:first]], first
        for i in places:
            pieces.append(data[position:i])
            position = i + 2
        return b"".join([*pieces, data[position:]])
    changed, i = bytearray(data), _one_of(rng, places)
    if way == 1:
        for k in places:
            changed[k + 1] = 0xD0 + (changed[k + 1] - 0xD0 + 1) % 8
    elif way == 2:
        changed[i:i] = changed[i : i + 2] * int(rng.integers(1, 9))
    else:
        changed[i : i + 2] = b""
    return bytes(changed)


def _scan(data):
    """Where the compressed data of the first scan begin."""
    start = data.index(b"\xff\xda")
    return min(len(data) - 1, start + 2 + int.from_bytes(data[start + 2 : start + 4], "big"))


def stuffing(data, rng):
    """Zeros after FF gone, FF doubled, or FF00 put in."""
    at = _scan(data)
    place = data.find(b"\xff\0", at + int(rng.integers(max(1, len(data) - at))))
    way = int(rng.integers(3))
    if place < 0 or way == 2:
        place = int(rng.integers(at, len(data)))
        return data[:place] + _one_of(rng, [b"\xff\0", b"\xff\xff", b"\xff", b"\xff\xff\0"]) + data[place:]
    return data[: place + 1] + (b"" if way == 0 else b"\xff\0") + data[place + 2 :]


def scan_run(data, rng):
    """A stretch of the scan becomes equal bits, which are short codes or those that no table has."""
    at = int(rng.integers(_scan(data), len(data)))
    count = int(rng.integers(1, 60))
    return data[:at] + _one_of(rng, [b"\0", b"\xff\0", b"\xaa", b"\x7f"]) * count + data[at + count :]


def scan_shifted(data, rng):
    """One bit of the scan gone or put in, so that all codes after it move."""
    at = int(rng.integers(_scan(data), len(data)))
    stop = at + int(rng.integers(1, 30))
    piece = data[at:stop]
    bits = format(int.from_bytes(piece, "big"), f"0{8 * len(piece)}b")
    bits = "01"[int(rng.integers(2))] + bits[:-1] if rng.random() < 0.5 else bits[1:] + "1"
    return data[:at] + int(bits, 2).to_bytes(len(piece), "big") + data[stop:]


def scan_twice(data, rng):
    """The whole scan comes twice, or its components in two."""
    parts = segments(data)
    i = _places(parts, (0xDA,))[0]
    return joined([*parts[:i], parts[i], *parts[i:]])


def end(data, rng):
    """The end gone, doubled, elsewhere, or followed by something."""
    other = _one_of(rng, bases())[0]
    at = int(rng.integers(_scan(data), len(data)))
    return _one_of(
        rng,
        [
            data[:-2],
            data + b"\xff\xd9",
            data + other,
            data[:-2] + other,
            data[:at] + b"\xff\xd9" + data[at:],
            data[:-2] + rng.bytes(int(rng.integers(1, 200))) + b"\xff\xd9",
            data + bytes(int(rng.integers(1, 200))),
        ],
    )


def cut_at_a_segment(data, rng):
    parts = segments(data)
    return joined(parts[: int(rng.integers(1, len(parts)))]) + (b"\xff\xd9" if rng.random() < 0.5 else b"")


WAYS = (
    *damage.WAYS,
    sampling,
    dimensions,
    frame_kind,
    precision,
    components,
    scan_header,
    quantization,
    huffman,
    other_tables,
    application,
    between_segments,
    restarts,
    stuffing,
    scan_run,
    scan_shifted,
    scan_twice,
    end,
    cut_at_a_segment,
)


def mutant(data, rng):
    """A JPEG damaged in one way, often in a second; and the names of the ways."""
    names = []
    for _ in range(1 + int(rng.random() < 0.3)):
        way = _one_of(rng, WAYS)
        try:
            data = way(data, rng)
            names.append(way.__name__)
        except (IndexError, ValueError, StopIteration):  # the first way left nothing for the second
            continue
    return data, " + ".join(names)
