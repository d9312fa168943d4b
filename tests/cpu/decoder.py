"""JPEGs for the crop decoder: of drawn coefficients, and with entry points that fit them or lie."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from gpubeton.format.layout import ENTRY_DTYPE, MCUS_PER_ENTRY
from tests.cpu.making import stored_jpeg
from tests.cpu.pictures import photo, pillow_jpeg
from tests.cpu.plain_jpeg import Component, write

#: A quantization that changes no coefficient.
FLAT = np.ones(64, int)


def random_blocks(count, amplitude, share, seed):
    """Blocks whose coefficients are up to `amplitude`, a `share` of them other than zero."""
    generator = np.random.default_rng(seed)
    blocks = generator.integers(-amplitude, amplitude + 1, (count, 64))
    return blocks * (generator.random((count, 64)) < share)


def gray_jpeg(blocks, quantization=FLAT, **options):
    """A square gray file of blocks (n, 64), row-major."""
    side = round(len(blocks) ** 0.5)
    component = Component(1, 1, 1, blocks.reshape(side, side, 64), quantization)
    return write([component], 8 * side, 8 * side, **options)


def scan_of(image):
    """Where the entropy-coded data of a stored image begin."""
    content = image.data.tobytes()
    start = content.index(b"\xff\xda")
    return start + 2 + int.from_bytes(content[start + 2 : start + 4], "big")


def seal_of(image):
    """The seal of an image and its entry points as `docs/format.md` describes it."""
    factor, limit, data, scan = 0x9E3779B97F4A7C15, 1 << 64, image.data.tobytes(), scan_of(image)
    numbers = [len(data), scan, len(image.entries)]
    for content in (data[:scan], image.entries.tobytes()):
        whole = len(content) // 8 * 8
        numbers += [int.from_bytes(content[i : i + 8], "little") for i in range(0, whole, 8)]
        numbers.append(int.from_bytes(content[whole:], "big"))
    step = (len(data) - scan - 8) // 16
    if step > 0:
        numbers += [int.from_bytes(data[scan + i * step :][:8], "little") for i in range(16)]
    state = factor
    for number in numbers:
        state = (state ^ number) * factor % limit
        state ^= state >> 32
    return state % (1 << 32)


def sealed(image, data=None, entries=None):
    """The image with other bytes or entry points, and the seal that fits them."""
    image = replace(image, data=image.data if data is None else data)
    image = replace(image, entries=image.entries if entries is None else entries)
    return replace(image, seal=seal_of(image))


def without(image):
    """The image without entry points."""
    return replace(image, entries=np.zeros(0, ENTRY_DTYPE))


def restarted_with_an_index(height=131, width=170):
    """A JPEG with a restart interval for each entry point, whose last one begins with other values."""
    image = stored_jpeg(pillow_jpeg(photo(height, width), quality=85, restart_marker_blocks=MCUS_PER_ENTRY))
    starts = [match.end() for match in re.finditer(rb"\xff[\xd0-\xd7]", image.data[scan_of(image) :])]
    entries = np.zeros(1 + len(starts), ENTRY_DTYPE)
    entries["bit"] = 8 * (scan_of(image) + np.array([0, *starts]))
    entries["dc"][-1] = 500, -300, 300
    return sealed(image, entries=entries)
