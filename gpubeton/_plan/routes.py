"""Decode routes: the ways to decode the images of a GPU's batch, and the choice between them."""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gpubeton._compile.compile import compiled
from gpubeton.format.layout import ImageMode

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    Array = NDArray[Any]

PROBE_COLUMNS = 5
"""Columns of a probe of JPEG markers, int32: kind, height, width, chroma sampling and a hash of the tables."""

KIND, HEIGHT, WIDTH, SAMPLING, TABLES = range(PROBE_COLUMNS)


class JpegKind(IntEnum):
    """Which decoders take a JPEG, by its markers."""

    DAMAGED = 0
    """None, by its markers; the CPU tries, and gives the reason."""
    BASELINE = 1
    """All: 8 bits, Huffman, sequential, one scan, gray or YCbCr, chroma halved along no, one or both axes."""
    ELABORATE = 2
    """Not the engines: progressive, several scans, or chroma in a quarter of the columns."""
    FOREIGN = 3
    """The CPU: four colors, RGB, 12 bits, arithmetic coding, lossless, other samplings."""


class Sampling(IntEnum):
    """Chroma subsampling, in nvJPEG's numbers."""

    FULL = 0  # 4:4:4
    HALF_ACROSS = 1  # 4:2:2
    HALF_BOTH = 2  # 4:2:0
    HALF_DOWN = 3  # 4:4:0
    QUARTER_ACROSS = 4  # 4:1:1
    EIGHTH = 5  # 4:1:0
    GRAY = 6


class DecodeRoute(IntEnum):
    """One way to decode an image; those before CPU decode JPEGs on the device, all but ENTRIES into the arena."""

    HARDWARE = 0
    """The JPEG engines of the GPU, many images a call."""
    ENTRIES = 1
    """Our decoder in CUDA: baseline JPEGs with entry points, decoded and resampled under the crop."""
    CPU = 2
    """The CPU makes the crop at its final size; the GPU does the rest."""
    BYTES = 3
    """A raw-stored image: nothing to decode, the crop's bytes are copied to the GPU."""


MOST_PIXELS = 16_000
"""Height and width of the largest image that the engines take."""

RawRoute = Literal["auto", "cpu", "bytes"]

# Resizing on the CPU leaves the fewest bytes to send to the GPU, but takes the CPU much longer than to copy the crop.
MANY_CORES = 8
"""Workers from which on "auto" crops raw-stored images on the CPU."""


def raw_route(choice: RawRoute, num_workers: int) -> DecodeRoute:
    """Decide where raw-stored images are cropped; "auto" spares the CPU unless it has `MANY_CORES` workers."""
    if choice == "auto":
        choice = "cpu" if num_workers >= MANY_CORES else "bytes"
    return DecodeRoute.CPU if choice == "cpu" else DecodeRoute.BYTES


_HARDWARE, _CPU, _JPG = int(DecodeRoute.HARDWARE), int(DecodeRoute.CPU), int(ImageMode.JPG)


@compiled
def assign_routes(
    mode: Array,  # (N,) uint8: image modes of the file format
    size: Array,  # (N,) uint64, in bytes
    height: Array,  # (N,) int32, by the file's metadata, in pixels
    width: Array,  # (N,) int32
    probes: Array,  # (N, PROBE_COLUMNS) int32; undefined for raw-stored images
    by_kind: Array,  # (JpegKind,) int8 from `routes_by_kind`
    raw: int,  # the route of raw-stored images
    routes: Array,  # (N,) int8, written
) -> int:
    """Choose a route for each image; the choice does not depend on the batch. Return the number of JPEGs."""
    # By markers alone: `gpubeton._gpu.planner` gives ENTRIES to images with entry points, and has the last word.
    jpegs = 0
    for i in range(len(mode)):
        routes[i] = _CPU
        if mode[i] == _JPG:
            jpegs += 1
            # If markers contradict the file's metadata, the CPU decodes and reports the error: nvJPEG would write by
            # the image's own size, into its neighbor.
            if probes[i, HEIGHT] == height[i] and probes[i, WIDTH] == width[i]:
                routes[i] = by_kind[probes[i, KIND]]
            if routes[i] == _HARDWARE and max(height[i], width[i]) > MOST_PIXELS:
                routes[i] = _CPU
        elif size[i] == np.uint64(3) * np.uint64(height[i]) * np.uint64(width[i]):
            routes[i] = raw
    return jpegs


def routes_by_kind(available: Collection[DecodeRoute]) -> NDArray[np.int8]:  # (JpegKind,)
    """Choose a route for each kind of JPEG, of those that are available besides the CPU."""
    by_kind = np.full(len(JpegKind), DecodeRoute.CPU, np.int8)
    if DecodeRoute.HARDWARE in available:
        by_kind[JpegKind.BASELINE] = DecodeRoute.HARDWARE
    return by_kind


def cut(count: int, most: int) -> list[slice]:
    """Split images into the fewest consecutive pieces of nearly equal size: an engine without an image is idle."""
    pieces = -(-count // most)
    stops = [number * count // max(pieces, 1) for number in range(pieces + 1)]
    return [slice(start, stop) for start, stop in pairwise(stops)]
