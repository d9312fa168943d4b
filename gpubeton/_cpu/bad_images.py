"""Decide whether an image is bad: a library decodes what the crop decoder refuses, or nothing does.

Sizes and crops that `ring` finds wrong are final. All else that it refuses comes here, by `Worker.make_refused`: bytes
with a wrong checksum, which are bad, JPEG files that the crop decoder cannot decode, and files for which there is none,
such as PNG, also where a JPEG is expected. `jpeg.codes` has all reasons. On a GPU, `gpubeton._gpu.executor` lets the
CPU make what is left, so that bad is what is bad here. What follows is decided by `on_error`, in
`gpubeton._engine.engine`.
"""

from __future__ import annotations

import ctypes
import zlib
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._cpu.image_tasks import (
    ADDRESS,
    CHECKSUM,
    IMAGE_HEIGHT,
    IMAGE_WIDTH,
    JPEG,
    MODE,
    NEXT_VIEW,
    PACKED,
    PROGRAM,
    SIZE,
)
from gpubeton._cpu.jpeg.codes import NO_MEMORY, OK, REASONS, WRONG_CHECKSUM, WRONG_CROP, WRONG_SIZE
from gpubeton._plan.image_job import BadImage
from gpubeton.errors import BadImageError
from gpubeton.fields.codecs import codec_of, decode_file
from gpubeton.fields.pixels import rgb_of_file, size_of_file
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.format.file_notes import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton._compile.intrinsics import Array
    from gpubeton._cpu.ring import Ring
    from gpubeton._plan.program import ImageProgram

# The code of an image that no library decodes, in addition to those of `jpeg.codes`.
UNDECODABLE = 100


def bytes_at(address: int, size: int) -> bytes:
    """Return a copy of `size` bytes of memory."""
    return ctypes.string_at(address, size)


def describe_damage(address: int, size: int, checksum: int) -> str:
    """Describe how a region of memory differs from its checksum."""
    present = zlib.crc32(bytes_at(address, size))
    if present ^ checksum == DAMAGED:
        return f"its {size} bytes cannot be decoded, as `gpubeton index` noticed"
    return f"its {size} bytes have the CRC-32 {present:08x}, expected {checksum:08x}"


def views_of(ring: Ring, ticket: int) -> tuple[int, list[int]]:
    """Return the slot of a batch, and its images that are made together, from the ticket of the first."""
    batches, images = ring.codes.shape
    slot, views = (ticket // images) % batches, [ticket % images]
    while ring.tasks[slot, views[-1], NEXT_VIEW]:
        views.append(int(ring.tasks[slot, views[-1], NEXT_VIEW]))
    return slot, views


def decode_refused(
    task: Array,  # (TASK_FIELDS,) int64
    codes: Array,  # (V,) of all views of the image
    kind: ImageKind,
) -> tuple[int, str, Array | None]:
    """Decode a whole image by a library; return OK and its pixels, or the code and the reason why it is bad."""
    refused = next(code for code in codes.tolist() if code not in (OK, WRONG_CROP))
    if refused == WRONG_CHECKSUM:
        return refused, "", None
    refusal = REASONS[refused]
    size = int(task[IMAGE_HEIGHT]), int(task[IMAGE_WIDTH])
    try:
        data = bytes_at(int(task[ADDRESS]), int(task[SIZE]))
        if task[MODE] == PACKED:
            codec = codec_of(data)
            refusal = refusal if codec is None else f"it is a {codec.name} file"
        if task[MODE] == PACKED or kind != RGB:
            return OK, "", decode_file(data, kind, size)
        # Before anything of that size is allocated.
        return (OK, "", rgb_of_file(data)) if size_of_file(data) == size else (WRONG_SIZE, "", None)
    except BadImageError as error:
        return UNDECODABLE, f"{refusal}; {error}", None
    except Exception as error:  # noqa: BLE001 - no error of a library over one image may end the loop
        return UNDECODABLE, f"{refusal}; {type(error).__name__}: {error}", None


def bad_images(
    ring: Ring, slot: int, reasons: dict[int, str], programs: Sequence[ImageProgram], batch_size: int
) -> list[BadImage]:
    """List the bad images of a finished batch; `reasons` has those of UNDECODABLE ones by their places."""
    codes, tasks = ring.codes[slot].tolist(), ring.tasks[slot]
    return [
        BadImage(
            *divmod(image, batch_size),
            reasons.get(image) or _reason(tasks[image], codes[image], programs),
            codes[image] == WRONG_CHECKSUM,
        )
        for image in np.flatnonzero(ring.codes[slot]).tolist()
    ]


def _reason(task: Array, code: int, programs: Sequence[ImageProgram]) -> str:
    """Return the reason for a code."""
    if code == WRONG_CHECKSUM:
        return describe_damage(int(task[ADDRESS]), int(task[SIZE]), int(task[CHECKSUM]))
    if code == NO_MEMORY:
        return f"{REASONS[code]}: the file's metadata have {task[IMAGE_HEIGHT]} x {task[IMAGE_WIDTH]} pixels"
    if code != WRONG_SIZE:
        return REASONS[code]
    expected = f"the file's metadata have {task[IMAGE_HEIGHT]} x {task[IMAGE_WIDTH]} pixels"
    if task[MODE] != JPEG:
        pixel_size = programs[task[PROGRAM]].kind.pixel_size
        return f"it has {task[SIZE]} bytes, but {expected}, {pixel_size * task[IMAGE_HEIGHT] * task[IMAGE_WIDTH]} bytes"
    try:
        height, width = size_of_file(bytes_at(int(task[ADDRESS]), int(task[SIZE])))
    except BadImageError as error:
        return f"{REASONS[WRONG_SIZE]}; {error}"
    return f"it is {height} x {width} pixels, but {expected}"
