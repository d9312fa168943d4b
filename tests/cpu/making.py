"""Making images with the CPU executor in one call, for tests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import simplejpeg

from gpubeton._cpu.epilogue import outputs_of
from gpubeton._cpu.image_tasks import ENTRIES, JPEG, NEXT_VIEW, NUM_ENTRIES, RAW, SEAL, allocate
from gpubeton._cpu.jpeg.entries import find_entries
from gpubeton._cpu.ring import BATCH_DONE, IDLE, REFUSED, allocate_ring, complete, publish, work
from gpubeton._cpu.worker_pool import WorkerPool
from gpubeton._plan.draw_rows import DRAW_COLUMNS, FLIP, NUM_PAINTS, PAINT_COLUMNS, SHIFT_X, SHIFT_Y, TOP, WIDTH
from gpubeton._plan.fusion import compile_image_program
from gpubeton._plan.image_job import ImageJob
from gpubeton.fields.image_decoders import CenterCropImageDecoder
from gpubeton.fields.image_field import ImageField
from gpubeton.format.layout import ENTRY_DTYPE

INTERPOLATIONS = ("area", "bilinear", "antialias", "nearest", "bicubic")

#: What outputs hold before anything is written: no byte of a finished image may still have it by chance alone.
UNTOUCHED = 0xA5


@dataclass(frozen=True)
class Stored:
    """An image as a file stores it; `height` and `width` are those of the metadata."""

    data: np.ndarray
    height: int
    width: int
    mode: int
    entries: np.ndarray = field(default_factory=lambda: np.zeros(0, ENTRY_DTYPE))  # ENTRY_DTYPE
    seal: int = 0


def stored_raw(rgb):
    """An image stored as it is."""
    return Stored(np.ascontiguousarray(rgb).reshape(-1).view(np.uint8), *rgb.shape[:2], RAW)


def stored_jpeg(data, height=None, width=None):
    """An image stored as JPEG; the metadata have the size of its header, unless another is passed."""
    if height is None:
        height, width = simplejpeg.decode_jpeg_header(bytes(data))[:2]
    return Stored(np.frombuffer(bytes(data), np.uint8), height, width, JPEG)


def entry_points(*contents):
    """The entry points of JPEGs that lie in arrays of bytes."""
    address, size = ([getter(content) for content in contents] for getter in (lambda c: c.ctypes.data, len))
    return find_entries(np.array(address, np.uint64), np.array(size, np.uint64))


def indexed(image):
    """The same image with its entry points."""
    result = entry_points(image.data)
    return replace(image, entries=result.entries, seal=int(result.seals[0]))


def program_of(height, width, interpolation="area", *steps, kind="rgb"):
    """A program with that output; crops are chosen by `draw_of`."""
    decoder = CenterCropImageDecoder((height, width), 1, interpolation)
    decoder.accept_field(ImageField(kind))
    operations = [decoder, *steps]
    return compile_image_program("image", 0, operations, np.array([64]), np.array([64]))


def draw_of(program, box, *, flip=0, shift=(0, 0), paints=()):
    """A row of draws: a crop box (top, left, height, width) and its other parameters."""
    row = np.zeros(DRAW_COLUMNS + PAINT_COLUMNS * program.max_paints, np.int32)
    row[TOP : WIDTH + 1] = box
    row[FLIP], row[SHIFT_Y], row[SHIFT_X], row[NUM_PAINTS] = flip, *shift, len(paints)
    row[DRAW_COLUMNS:][: PAINT_COLUMNS * len(paints)] = np.ravel(paints)
    return row


def whole(image):
    """The crop box of a whole image."""
    return 0, 0, image.height, image.width


def dtype_of(program):
    """The element type of a program's output array."""
    return np.dtype("uint16" if program.dtype == "bfloat16" else program.dtype)


def job_of(program, images, draws, out=None):
    """Describe images to a pool."""
    if out is None:
        out = np.empty((len(images), program.height, program.width, program.kind.channels), dtype_of(program))
        out.view(np.uint8)[...] = UNTOUCHED
    return ImageJob(
        address=np.array([image.data.ctypes.data for image in images], np.uint64),
        size=np.array([image.data.size for image in images], np.uint64),
        height=np.array([image.height for image in images], np.int32),
        width=np.array([image.width for image in images], np.int32),
        mode=np.array([image.mode for image in images], np.uint8),
        entries=np.array([image.entries.ctypes.data for image in images], np.uint64),
        num_entries=np.array([len(image.entries) for image in images], np.int32),
        seals=np.array([image.seal for image in images], np.uint32),
        draws=np.array(draws, np.int32).reshape(len(images), DRAW_COLUMNS + PAINT_COLUMNS * program.max_paints),
        out=out,
        keep=images,
    )


def make(program, images, draws, steps=None):
    """Make images, with steps on their colors if there are any; returns the batch and its bad images."""
    job = job_of(program, images, draws)
    job.steps = steps
    pool = WorkerPool([program], max(1, len(images)), num_workers=0, ring=1)
    return job.out, pool.decode(0, job)


def make_one(program, image, draw=None):
    """Make one image: all of it, or the crop of `draw`. It must succeed."""
    out, bad = make(program, [image], [draw_of(program, whole(image)) if draw is None else draw])
    assert bad == []
    return out[0]


def scratch_for(program, images):
    """A worker's memory, just large enough for images and their program."""
    height, width = max(image.height for image in images), max(image.width for image in images)
    source = height, width, max(image.data.size for image in images)
    return allocate(source, (program.height, program.width), program.largest_scale(height, width))


def ring_of(job):
    """A ring with a job's images, ready to be made."""
    ring = allocate_ring(1, len(job.address), job.draws.shape[1])
    for task, *columns, out in zip(
        ring.tasks[0], job.address, job.size, job.height, job.width, job.mode, job.out, strict=True
    ):
        task[:NEXT_VIEW] = [*map(int, columns), 0, out.ctypes.data]
    ring.tasks[0][:, [ENTRIES, NUM_ENTRIES, SEAL]] = np.stack([job.entries, job.num_entries, job.seals], axis=1)
    ring.draws[0] = job.draws
    publish(ring, 0)
    return ring


def make_alone(program, images, draws, scratch=None, out=None):
    """Make images without libjpeg-turbo; returns the batch and a code of `jpeg.codes` for each."""
    job = job_of(program, images, draws, out)
    ring, outputs = ring_of(job), outputs_of([program])
    scratch = scratch_for(program, images) if scratch is None else scratch
    while True:
        event, ticket = work(ring, outputs, scratch, 0)
        if event == REFUSED:
            complete(ring, ticket, int(ring.codes[0, ticket]))
        elif event == IDLE:
            return job.out, ring.codes[0].copy()
        else:
            assert event == BATCH_DONE


def decode_crop(image, program, draw, scratch=None):
    """Decode one crop: pixels, a code of `jpeg.codes`, and whether the entry points were good to the end."""
    out = np.zeros((1, program.height, program.width, 3), np.uint8)
    ring = ring_of(job_of(program, [image], [draw], out))
    work(ring, outputs_of([program]), scratch_for(program, [image]) if scratch is None else scratch, 0)
    return out[0], int(ring.codes[0, 0]), bool(ring.tasks[0, 0, NUM_ENTRIES] > 0)


def segments(data):
    """Split a JPEG into (marker, content) pairs, the content of a scan with its entropy-coded data."""
    results, position = [(0xD8, b"")], 2
    while data[position + 1] != 0xD9:
        marker = data[position + 1]
        stop = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        if marker == 0xDA:
            stop = data.index(b"\xff", stop)
            while data[stop + 1] == 0 or 0xD0 <= data[stop + 1] <= 0xD7:
                stop = data.index(b"\xff", stop + 2)
        results.append((marker, bytes(data[position + 4 : stop])))
        position = stop
    return [*results, (0xD9, b"")]


def joined(parts):
    """Put together what `segments` split. A scan's length is that of its header."""
    out = bytearray()
    for marker, content in parts:
        out += bytes([0xFF, marker])
        if marker not in (0xD8, 0xD9):
            length = 2 + (4 + 2 * content[0] if marker == 0xDA else len(content))
            out += length.to_bytes(2, "big") + content
    return bytes(out)
