"""Lanes: the ways to decode the images of a GPU's batch, and the choice between them."""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from gpubeton.format import ImageMode

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

SURVEY_COLUMNS = 5
"""Columns of a survey of JPEG markers, int32: kind, height, width, chroma sampling and a hash of the tables."""

KIND, HEIGHT, WIDTH, SAMPLING, TABLES = range(SURVEY_COLUMNS)


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


class Lane(IntEnum):
    """One way to decode an image; those before CPU decode JPEGs on the device, all but OWN into the arena."""

    HARDWARE = 0
    """The JPEG engines of the GPU, many images a call."""
    OWN = 1
    """Our decoder in CUDA: baseline JPEGs with entry points, decoded and resampled under the crop."""
    LIBRARY = 2
    """Another library, which the user chose."""
    CPU = 3
    """The CPU makes the crop at its final size; the GPU does the rest."""
    BYTES = 4
    """A raw-stored image: nothing to decode, the crop's bytes are copied to the GPU."""


MOST_PIXELS = 16_000
"""Height and width of the largest image that the engines take."""

RawLane = Literal["auto", "cpu", "bytes"]

# Resizing on the CPU leaves the fewest bytes to send to the GPU, but takes the CPU much longer than to copy the crop.
MANY_CORES = 8
"""Workers from which on "auto" crops raw-stored images on the CPU."""


def raw_lane(choice: RawLane, num_workers: int) -> Lane:
    """Decide where raw-stored images are cropped; "auto" spares the CPU unless it has `MANY_CORES` workers."""
    if choice == "auto":
        choice = "cpu" if num_workers >= MANY_CORES else "bytes"
    return Lane.CPU if choice == "cpu" else Lane.BYTES


# Numbers of numpy's type: Python looks up a member of an enumeration in longer time than numpy's calls take.
_CPU, _JPG = np.int8(Lane.CPU), np.uint8(ImageMode.JPG)


def choose_lanes(
    mode: NDArray[np.uint8],  # (N,) image modes of the file format
    size: NDArray[np.uint64],  # (N,) in bytes
    height: NDArray[np.int32],  # (N,) by the file's metadata, in pixels
    width: NDArray[np.int32],  # (N,)
    survey: NDArray[np.int32],  # (N, SURVEY_COLUMNS); undefined for raw-stored images
    *,
    available: Collection[Lane],  # for JPEGs, besides the CPU
    raw: Lane,  # of raw-stored images
) -> NDArray[np.int8]:  # (N,)
    """Choose a lane for each image; the choice does not depend on the batch."""
    is_whole = size == 3 * height.astype(np.uint64) * width.astype(np.uint64)
    lanes = np.where(is_whole, np.int8(raw), _CPU)
    is_jpeg = mode == _JPG
    if is_jpeg.any():
        # If markers contradict the file's metadata, the CPU decodes and reports the error: nvJPEG would write by the
        # image's own size, into its neighbour.
        by_kind = np.full(len(JpegKind), Lane.CPU, np.int8)
        if Lane.LIBRARY in available:
            by_kind[JpegKind.BASELINE] = by_kind[JpegKind.ELABORATE] = Lane.LIBRARY
        elif Lane.HARDWARE in available:
            by_kind[JpegKind.BASELINE] = Lane.HARDWARE
        agrees = (survey[:, HEIGHT] == height) & (survey[:, WIDTH] == width)
        jpegs = np.where(agrees, by_kind[survey[:, KIND]], np.int8(Lane.CPU))
        jpegs[(jpegs == Lane.HARDWARE) & (np.maximum(height, width) > MOST_PIXELS)] = Lane.CPU
        lanes[is_jpeg] = jpegs[is_jpeg]
    return lanes


# Both lanes keep some of the images they share: without any there is nothing to measure.
_LEAST_SHARE = 1 / 16
_GAIN = 1 / 4


def adjust_share(share: float, engines: float, own: float) -> float:
    """Move the engines' share of the images they share with our decoder, so that both will take the same time."""
    total = engines + own
    moved = share + (_GAIN * (own - engines) / total if total > 0 else 0.0)
    return min(max(moved, _LEAST_SHARE), 1 - _LEAST_SHARE)


def cut(count: int, most: int) -> list[slice]:
    """Split images into the fewest consecutive pieces of nearly equal size: an engine without an image is idle."""
    pieces = -(-count // most)
    stops = [number * count // max(pieces, 1) for number in range(pieces + 1)]
    return [slice(start, stop) for start, stop in pairwise(stops)]
