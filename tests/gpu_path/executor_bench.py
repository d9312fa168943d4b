"""An executor on the simulated GPU with images to make, without a file or a loader."""

from __future__ import annotations

from functools import partial

import numpy as np

from gpubeton._cpu.stored_bytes import find_damage, pack_crops, pack_regions
from gpubeton._cpu.worker_pool import WorkerPool
from gpubeton._gpu.gpu import Gpu
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.loader import GpuOptions
from tests.gpu_path.gpu_room import (
    CpuServices,
    ImageJob,
    JpegReader,
    compile_image_program,
    load,
    open_nvjpeg_backends,
    probe_jpegs,
)

SLOTS = 3
BATCH = 8


def make_cpu_executor(programs):
    """The CPU's workers."""
    return WorkerPool(programs, BATCH, num_workers=1, ring=SLOTS)


def cpu_services(start_executor=make_cpu_executor, num_workers=1):
    """What the CPU does."""
    return CpuServices(probe_jpegs, pack_regions, pack_crops, find_damage, start_executor, num_workers, JpegReader())


def open_gpu(device, largest=(100, 100), **options):
    """The GPU as a loader has it."""
    chosen = GpuOptions(**options)
    opener = partial(open_nvjpeg_backends, library=load(), options=chosen, largest=largest)
    return Gpu(device, chosen, opener, num_slots=SLOTS)


def program_of(*operations, size=(12, 10), device="cuda:0"):
    sides = np.array([40])
    return compile_image_program(
        "image", 0, [RandomResizedCropRGBImageDecoder(size), *operations], sides, sides, device
    )


def job_of(program, images, out, *, epoch=0, first=0, source="image"):
    """A job of `Stored` images, numbered from `first`."""
    data = [np.frombuffer(image.data, np.uint8) for image in images]
    samples = np.arange(first, first + len(images)).astype(np.uint64)
    height, width = (np.array([getattr(image, side) for image in images], np.int32) for side in ("height", "width"))
    return ImageJob(
        address=np.array([content.ctypes.data for content in data], np.uint64),
        size=np.array([content.size for content in data], np.uint64),
        height=height,
        width=width,
        mode=np.array([image.mode for image in images], np.uint8),
        draws=program.draw(5, epoch, samples, height, width),
        steps=program.draw_steps(5, epoch, samples),
        out=out,
        keep=data,
        samples=samples,
        source=source,
    )


def made_by_the_cpu(program, images, **which):
    """What the CPU makes of images, and which of them are bad."""
    out = np.zeros((len(images), program.height, program.width, 3), np.uint8)
    pool = WorkerPool([program], max(1, len(images)), num_workers=0, ring=1)
    bad = pool.decode(0, job_of(program, images, out, **which))
    pool.close()
    return out, bad
