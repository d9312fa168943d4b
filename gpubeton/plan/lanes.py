"""Lanes: which way each image of a batch is decoded, where there are several."""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from gpubeton.format import ImageMode

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

SURVEY_COLUMNS = 4
"""What a survey of a JPEG's markers gives, int32: its kind, height, width and chroma sampling."""

KIND, HEIGHT, WIDTH, SAMPLING = range(SURVEY_COLUMNS)


class JpegKind(IntEnum):
    """What the markers of a JPEG say about who can decode it."""

    DAMAGED = 0
    """Nobody, by its markers; it is left to the CPU to say why."""
    BASELINE = 1
    """Everybody: 8 bits, Huffman, sequential, one scan, gray or YCbCr, chroma halved along no, one or both axes."""
    ELABORATE = 2
    """nvJPEG without the engines: progressive, several scans, or chroma in a quarter of the columns."""
    FOREIGN = 3
    """The CPU: four colours, RGB, 12 bits, arithmetic coding, lossless, other samplings."""


class Sampling(IntEnum):
    """How many chroma samples there are, in nvJPEG's numbers."""

    FULL = 0  # 4:4:4
    HALF_ACROSS = 1  # 4:2:2
    HALF_BOTH = 2  # 4:2:0
    HALF_DOWN = 3  # 4:4:0
    QUARTER_ACROSS = 4  # 4:1:1
    EIGHTH = 5  # 4:1:0
    GRAY = 6


class Lane(IntEnum):
    """One way to decode an image."""

    HARDWARE = 0
    """The JPEG engines of the GPU, many images a call."""
    SM = 1
    """The GPU's processors, many images a call."""
    HYBRID = 2
    """nvJPEG, one image a call, with the CPU's help: what the two above refuse."""
    CPU = 3
    """The CPU makes the crop at its final size; the GPU does the rest."""
    BYTES = 4
    """A raw-stored image: nothing to decode, the crop's bytes are copied to the GPU."""


RawLane = Literal["auto", "cpu", "bytes"]

# Resizing on the CPU leaves the fewest bytes to send to the GPU, but takes the CPU much longer than to copy the crop.
MANY_CORES = 8
"""Cores from which on raw-stored images are cropped on the CPU, if nothing else is said."""


def raw_lane(choice: RawLane, num_workers: int) -> Lane:
    """Decide where raw-stored images are cropped.

    Parameters
    ----------
    choice : {"auto", "cpu", "bytes"}
        "cpu" crops them there, "bytes" copies the crop's bytes to the GPU and resizes them there. "auto" spares the
        CPU, unless there are `MANY_CORES` workers.
    num_workers : int
        The loader's threads.

    Returns
    -------
    Lane
        CPU or BYTES.

    Examples
    --------
    >>> raw_lane("auto", 2), raw_lane("auto", 16)
    (<Lane.BYTES: 4>, <Lane.CPU: 3>)
    """
    if choice == "auto":
        choice = "cpu" if num_workers >= MANY_CORES else "bytes"
    return Lane.CPU if choice == "cpu" else Lane.BYTES


def choose_lanes(
    mode: NDArray[np.uint8],
    size: NDArray[np.uint64],
    height: NDArray[np.int32],
    width: NDArray[np.int32],
    survey: NDArray[np.int32],
    *,
    available: Collection[Lane],
    raw: Lane,
) -> NDArray[np.int8]:
    """Choose a lane for each image, by the image alone.

    An image whose markers contradict the file's metadata goes to the CPU, which says what is wrong with it: nvJPEG
    would write by the image's own size, into its neighbour.

    Parameters
    ----------
    mode : ndarray of uint8, shape (N,)
        The file format's image modes.
    size : ndarray of uint64, shape (N,)
        Bytes of each.
    height, width : ndarray of int32, shape (N,)
        Sizes by the file's metadata, in pixels.
    survey : ndarray of int32, shape (N, SURVEY_COLUMNS)
        What the markers say; of no meaning for raw-stored images.
    available : collection of Lane
        The lanes for JPEGs that this machine has, besides the CPU.
    raw : Lane
        The lane of raw-stored images.

    Returns
    -------
    ndarray of int8, shape (N,)
        A lane for each.

    Examples
    --------
    >>> survey = np.array([[JpegKind.BASELINE, 48, 64, Sampling.HALF_BOTH]] * 2, np.int32)
    >>> size = np.array([48, 40], np.int32), np.array([64, 64], np.int32)
    >>> bytes_of_each = np.array([900, 900], "u8")
    >>> choose_lanes(np.zeros(2, "u1"), bytes_of_each, *size, survey, available=[Lane.HARDWARE], raw=Lane.CPU).tolist()
    [0, 3]
    """
    batched = next((lane for lane in (Lane.HARDWARE, Lane.SM, Lane.HYBRID) if lane in available), Lane.CPU)
    single = Lane.HYBRID if Lane.HYBRID in available else Lane.CPU
    by_kind = np.full(len(JpegKind), Lane.CPU, np.int8)
    by_kind[JpegKind.BASELINE] = batched
    by_kind[JpegKind.ELABORATE] = single
    agrees = (survey[:, HEIGHT] == height) & (survey[:, WIDTH] == width)
    lanes = np.where(agrees, by_kind[survey[:, KIND]], np.int8(Lane.CPU))
    is_whole = size == 3 * height.astype(np.uint64) * width.astype(np.uint64)
    raws = np.where(is_whole, np.int8(raw), np.int8(Lane.CPU))
    return np.where(mode == ImageMode.JPG, lanes, raws).astype(np.int8)


def cut(count: int, most: int) -> list[slice]:
    """Cut images into pieces of the same number, or, if that would be less than half of `most`, of nearly the same.

    States of nvJPEG are made anew for another number of images: with pieces of one size that never happens.

    Parameters
    ----------
    count : int
        Images.
    most : int
        Images of a piece, at most.

    Returns
    -------
    list of slice
        Consecutive pieces; none is empty, and the longer ones come first.

    Examples
    --------
    >>> [piece.stop - piece.start for piece in cut(256, 28)]
    [16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16]
    >>> [piece.stop - piece.start for piece in cut(11, 4)]
    [4, 4, 3]
    """
    fewest = -(-count // most)
    pieces = next((number for number in range(fewest, 2 * fewest + 1) if number and count % number == 0), fewest)
    short, longer = divmod(count, pieces) if pieces else (0, 0)
    stops = [number * short + min(number, longer) for number in range(pieces + 1)]
    return [slice(start, stop) for start, stop in pairwise(stops)]
