"""The structs that kernels read from device memory, as numpy dtypes, and where one output's structs are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.plan.draws import HEIGHT, WIDTH

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from numpy.typing import NDArray

    from gpubeton.plan.image_executor import ImageJob
    from gpubeton.plan.program import ImageProgram

PICTURE = np.dtype(
    [
        ("address", "<u8"),  # first byte of the first row, uint8 RGB, interleaved
        ("pitch", "<i4"),  # bytes from one row to the next
        ("height", "<i4"),  # in pixels
        ("width", "<i4"),
        ("row", "<i4"),  # of the batch that the image belongs to
        ("is_guarded", "<i4"),  # 1 if a sentinel was planted in it
        ("reserved", "<i4"),
    ]
)
"""A decoded image; `struct Picture` of ``kernels/picture.cuh``, 32 bytes."""

GATHER = np.dtype(
    [
        ("source", "<u8"),  # first byte of the first row, in page-locked memory or on the device
        ("target", "<u8"),  # where it goes, on the device
        ("source_pitch", "<i4"),  # bytes from one row to the next
        ("target_pitch", "<i4"),
        ("row_bytes", "<i4"),  # bytes to be copied of each row
        ("rows", "<i4"),
    ]
)
"""Rows of bytes to copy to the device; `struct Gather` of ``kernels/gather.cu``, 32 bytes."""


@dataclass(frozen=True)
class KernelImages:
    """The images of one output, as the kernels find them. Addresses are the device's.

    Parameters
    ----------
    count : int
        Number of images N.
    pictures, draws : int
        Addresses of PICTURE (N,) and int32 (N, columns).
    columns : int
        Numbers in a row of draws.
    status, most : int
        Addresses of int32 (N,) and int32 (N, 2), of zeros.
    most_taps : int
        Upper bound of the taps of an output pixel along an axis.
    colours : int
        Address of int32 (N, 2 * num_steps).
    num_steps : int
        Steps on the colours of each image.
    sums : int
        Address of uint64 (N, `num_sums`), of zeros.
    tickets : int
        Address of uint32 (2 + N,), of zeros.
    out : int
        Address of the output batch.
    nonce : int
        What the sentinel was made of.
    """

    count: int
    pictures: int
    draws: int
    columns: int
    status: int
    most: int
    most_taps: int
    colours: int
    num_steps: int
    sums: int
    tickets: int
    out: int
    nonce: int


def image_arrays(
    number: int,
    program: ImageProgram,
    pictures: NDArray[np.void],
    draws: NDArray[np.int32],
    colours: NDArray[np.int32] | None,
) -> dict[Hashable, NDArray[Any]]:
    """Give what has to be on the device for the images of one output.

    Parameters
    ----------
    number : int
        Number of the program.
    program : ImageProgram
        The program.
    pictures : ndarray of PICTURE, shape (N,)
        Where the images are.
    draws : ndarray of int32, shape (N, columns)
        What is done to them.
    colours : ndarray of int32, shape (N, 2 * K), or None
        What is done to their colours.

    Returns
    -------
    dict
        Arrays by (number, name).
    """
    count = len(pictures)
    steps = np.zeros((count, 0), np.int32) if colours is None else np.ascontiguousarray(colours)
    return {
        (number, "pictures"): pictures,
        (number, "draws"): draws,
        (number, "status"): np.zeros(count, np.int32),
        (number, "most"): np.zeros((count, 2), np.int32),
        (number, "colours"): steps,
        (number, "sums"): np.zeros((count, num_sums(program)), np.uint64),
        (number, "tickets"): np.zeros(2 + count, np.uint32),
    }


def describe_images(
    number: int, program: ImageProgram, job: ImageJob, places: Mapping[Hashable, int], nonce: int
) -> KernelImages:
    """Say where the kernels find the images of one output.

    Parameters
    ----------
    number : int
        Number of the program.
    program : ImageProgram
        The program.
    job : ImageJob
        Its images.
    places : mapping
        Addresses of what `image_arrays` gave.
    nonce : int
        What the sentinel is made of.

    Returns
    -------
    Images
        Addresses.
    """
    return KernelImages(
        count=len(job.address),
        pictures=places[number, "pictures"],
        draws=places[number, "draws"],
        columns=job.draws.shape[1],
        status=places[number, "status"],
        most=places[number, "most"],
        most_taps=most_taps(job.draws, program),
        colours=places[number, "colours"],
        num_steps=0 if job.colours is None else job.colours.shape[1] // 2,
        sums=places[number, "sums"],
        tickets=places[number, "tickets"],
        out=job.out.data_ptr(),
        nonce=nonce,
    )


def num_sums(program: ImageProgram) -> int:
    """Count the contrasts that an image of a program may have, each of which needs the sum of its gray values.

    Parameters
    ----------
    program : ImageProgram
        The program.

    Returns
    -------
    int
        How many.
    """
    return sum(colour.num_contrasts for colour, _ in program.colours)


def most_taps(draws: NDArray[np.int32], program: ImageProgram) -> int:
    """Bound the taps of an output pixel along an axis.

    Parameters
    ----------
    draws : ndarray of int32, shape (N, columns)
        The crops.
    program : ImageProgram
        The size that they get.

    Returns
    -------
    int
        An even upper bound, over all ways to interpolate.
    """
    if len(draws) == 0:
        return 2
    ratio = max(draws[:, HEIGHT].max() / program.height, draws[:, WIDTH].max() / program.width, 1.0)
    return 2 * math.ceil(float(ratio)) + 2
