from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gpubeton.fields.png import PngError, decode_png, encode_png, read_png_header, unfilter
from gpubeton.format.field_arguments import IMAGE_KINDS
from gpubeton.pipeline.compiler import Compiler

KINDS = list(IMAGE_KINDS.values())
GRAY = IMAGE_KINDS["gray"]


def undo(lines, rows, step):
    return Compiler.compile(unfilter)(lines, rows, step)


def noise(kind, height, width, seed=0):
    """A picture that is smooth in places, so that each filter is the best one somewhere."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, kind.max_level + 1, (height, width, kind.channels))
    steps[: height // 2] //= 97
    return (steps.cumsum(axis=seed % 2) & kind.max_level).astype(kind.dtype)


def decoded(content, kind, size):
    return decode_png(content, kind, size, undo)


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def file_of(header, *chunks):
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IEND", b"")


def gray_file(lines, height=2, width=3, interlace=0):
    return file_of(struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, interlace), chunk(b"IDAT", zlib.compress(lines)))


@given(kind=st.sampled_from(KINDS), height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_written_pixels_are_read_back_exactly(kind, height, width, seed):
    pixels = noise(kind, height, width, seed)
    content = encode_png(pixels)
    header = read_png_header(content)
    assert (header.height, header.width, header.kind) == (height, width, kind)
    read = decoded(content, kind, (height, width))
    assert (read.dtype, read.flags.c_contiguous) == (kind.dtype, True)
    assert np.array_equal(read, pixels)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.bits == 8 or kind.channels == 1])
def test_pillow_reads_the_same(kind):
    pixels = noise(kind, 31, 17)
    image = Image.open(io.BytesIO(encode_png(pixels)))
    assert np.array_equal(np.asarray(image).reshape(pixels.shape), pixels)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.bits == 8])
@pytest.mark.parametrize("seed", range(4))
def test_files_of_pillow_are_read(kind, seed):
    """Its encoder chooses among all five filters."""
    pixels, file = noise(kind, 40, 23, seed), io.BytesIO()
    Image.fromarray(pixels.squeeze(axis=2) if kind is GRAY else pixels).save(file, "PNG")
    assert np.array_equal(decoded(file.getvalue(), kind, (40, 23)), pixels)


@pytest.mark.parametrize("filter_kind", range(5))
def test_each_filter_is_undone_by_the_rule_of_the_specification(filter_kind):
    lines = np.random.default_rng(filter_kind).integers(0, 256, (6, 1 + 8), np.uint8)
    lines[:, 0] = filter_kind
    image = Image.open(io.BytesIO(gray_file(lines.tobytes(), 6, 8)))
    assert np.array_equal(decoded(gray_file(lines.tobytes(), 6, 8), GRAY, (6, 8))[..., 0], np.asarray(image))


def test_a_mask_is_packed_better_than_by_filters():
    mask = np.zeros((64, 64, 1), np.uint8)
    mask[20:40, 10:50] = 7
    assert len(encode_png(mask)) < 150


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a PNG file", "does not begin"),
        (gray_file(bytes(8))[:-5], "ends before its last chunk"),
        (gray_file(bytes(8)).replace(b"IDAT", b"IDaT"), "checksum of its chunk b'IDaT'"),
        (file_of(b"short"), "no sound header"),
        (gray_file(bytes(8), 0, 3), "0 x 3 pixels"),
        (gray_file(bytes(8), interlace=1), "interlaced or with transparency: True; expected gray"),
        (gray_file(bytes(8), 5, 6), r"5 x 6 pixels, .* 2 x 3"),
        (gray_file(bytes(7)), "not the 8 bytes of its rows"),
        (gray_file(bytes(9)), "not the 8 bytes of its rows"),
        (gray_file(b"\5" + bytes(7)), "a filter that PNG does not know"),
        (file_of(struct.pack(">IIBBBBB", 3, 2, 8, 0, 0, 0, 0)), "cannot hold 8|not the 8 bytes"),
        (file_of(struct.pack(">IIBBBBB", 3, 2, 8, 0, 0, 0, 0), chunk(b"IDAT", b"garbage")), "its data are damaged"),
    ],
)
def test_damage_is_named(content, message):
    with pytest.raises(PngError, match=message):
        decoded(content, GRAY, (2, 3))


def test_a_file_that_claims_more_than_its_bytes_can_hold_is_refused_before_memory_is_allocated():
    content = gray_file(bytes(8), 60_000, 60_000)
    with pytest.raises(PngError, match="3600060000"):
        decoded(content, GRAY, (60_000, 60_000))


def test_damage_of_any_byte_is_noticed():
    pixels = noise(GRAY, 9, 9)
    content = encode_png(pixels)
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(PngError):
            decoded(bytes(damaged), GRAY, (9, 9))


@pytest.mark.parametrize("length", range(0, 70, 7))
def test_a_file_cut_short_is_refused(length):
    content = encode_png(noise(GRAY, 9, 9))[:length]
    assert read_png_header(content) is None
    with pytest.raises(PngError):
        decoded(content, GRAY, (9, 9))
