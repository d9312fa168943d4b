"""Structs that kernels read from device memory, as numpy dtypes; KernelImages: their addresses for one output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

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
        ("row", "<i4"),  # of the batch that the image belongs to; negative: another kernel makes it
        ("is_guarded", "<i4"),  # 1 if a canary was written to it
        ("reserved", "<i4"),
    ]
)
"""A decoded image; `struct Picture` of ``kernels/picture.cuh``, 32 bytes."""

GATHER = np.dtype(
    [
        ("source", "<u8"),  # first byte of the first row, in page-locked memory or on the device
        ("target", "<u8"),  # first byte on the device
        ("source_pitch", "<i4"),  # bytes from one row to the next
        ("target_pitch", "<i4"),
        ("row_bytes", "<i4"),  # bytes to copy of each row
        ("rows", "<i4"),
    ]
)
"""Rows of bytes to copy to the device; `struct Gather` of ``kernels/gather.cu``, 32 bytes."""

JPEG = np.dtype(
    [
        ("bytes", "<u8"),  # address of its first byte
        ("entries", "<u8"),  # address of ENTRY_DTYPE (num_entries,), even
        ("quantization", "<u8"),  # address of uint8 (3, 64): factors of each component, by rows
        ("coefficients", "<u8"),  # addresses of the window's coefficients, samples, and samples resampled across
        ("samples", "<u8"),
        ("resampled", "<u8"),
        ("size", "<u4"),  # bytes
        ("num_entries", "<i4"),
        ("every", "<i4"),  # MCUs from one entry point to the next
        ("is_restarted", "<i4"),  # 1 if entry points are restart intervals
        ("height", "<i4"),  # in pixels
        ("width", "<i4"),
        ("components", "<i4"),
        ("luma_across", "<i4"),  # blocks of an MCU
        ("luma_down", "<i4"),
        ("first_row", "<i4"),  # the window, in MCUs
        ("first_column", "<i4"),
        ("rows", "<i4"),
        ("columns", "<i4"),
        ("row", "<i4"),  # of the batch that the image belongs to
    ]
)
"""A JPEG with entry points; `struct Jpeg` of ``kernels/jpeg.cuh``, 104 bytes."""


@dataclass(eq=False)
class KernelImages:
    """Device addresses of the structs and arrays of one output, as its kernel takes them."""

    count: int  # images, N
    pictures: int  # PICTURE (N,)
    draws: int  # int32 (N, columns)
    columns: int
    status: int  # int32 (N,), zeros
    most: int  # int32 (N, 2), zeros
    most_taps: int  # upper bound of the taps of an output pixel along an axis
    taps: int  # the memory of `taps_nbytes`
    levels: int  # uint8 (N, height, width, 3), unused without changes of color
    colors: int  # int32 (N, 2 * num_steps)
    num_steps: int  # color steps of each image
    sums: int  # uint64 (N, num_sums), zeros
    out: int  # the output batch
    nonce: int  # of the canaries


def image_arrays(
    number: int,
    program: ImageProgram,
    pictures: NDArray[np.void],  # PICTURE (N,)
    draws: NDArray[np.int32],  # (N, columns)
    colors: NDArray[np.int32] | None,  # (N, 2 * K)
) -> dict[Hashable, NDArray[Any]]:
    """Return the arrays that the kernel of one output needs on the device."""
    count = len(pictures)
    steps = np.zeros((count, 0), np.int32) if colors is None else np.ascontiguousarray(colors)
    return {
        (number, "pictures"): pictures,
        (number, "draws"): draws,
        (number, "status"): np.zeros(count, np.int32),
        (number, "most"): np.zeros((count, 2), np.int32),
        (number, "colors"): steps,
        (number, "sums"): np.zeros((count, program.num_contrasts), np.uint64),
    }


def describe_images(number: int, job: ImageJob, places: Mapping[Hashable, int], **others: int) -> KernelImages:
    """Collect the addresses that the kernels of one output need."""
    named = ("pictures", "draws", "status", "most", "colors", "sums")
    return KernelImages(
        **{name: places[number, name] for name in named},
        count=len(job.address),
        columns=job.draws.shape[1],
        num_steps=0 if job.colors is None else job.colors.shape[1] // 2,
        out=job.out.data_ptr(),
        **others,
    )
