"""Runs the kernels that decode JPEGs, compiled with sanitizers, over arrays with poisoned memory around them.

A separate program: the address sanitizer has to be loaded before Python. `test_sanitized_images.py` starts it. Intact
images come out the same in whichever order threads run; damaged data and lying entry points touch no other memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from gpubeton._plan.jpeg_windows import EVERY
from tests.cpu import damage
from tests.cpu.making import INTERPOLATIONS, draw_of, program_of, stored_jpeg
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg
from tests.kernels.host_build import ORDERS, RANDOM, HostKernels
from tests.kernels.jpeg_launching import batch_of, make_jpegs, read_parts
from tests.kernels.sanitized_steps import SanitizedDevice, unguarded
from tests.kernels.test_resample import FINISHES

SHAPES = [((1, 1), (3, 4)), ((5, 3), (1, 33)), ((61, 75), (17, 300)), ((90, 33), (40, 7)), ((10, 400), (3, 3))]
WAYS = [damage.cut, damage.flip_bits, damage.overwrite, damage.leave_out, damage.repeat]


def draws_of(generator, program, source, count):
    """The whole image, then any crops."""
    draws = [draw_of(program, (0, 0, *source))]
    for i in range(1, count):
        crop = generator.integers(1, np.array(source) + 1)
        corner = generator.integers(0, np.array(source) - crop + 1)
        draws.append(draw_of(program, (*corner, *crop), flip=i % 2, shift=generator.integers(-3, 4, 2)))
    return draws


def images_of(source, seed):
    rgb = (noise if seed % 2 else photo)(*source, seed)
    files = [jpeg(rgb, 90, sampling) for sampling in SAMPLINGS] + [pillow_jpeg(rgb, restart_marker_blocks=2)]
    return [stored_jpeg(data) for data in files]


def make_intact(kernels, source, size, number, interpolation):
    generator = np.random.default_rng(number)
    program = program_of(*size, interpolation, *list(FINISHES.values())[number % 4])
    images = images_of(source, number)
    draws = draws_of(generator, program, source, len(images))
    batch = batch_of(images, unguarded)
    results = [
        make_jpegs(program, batch, draws, place=unguarded, device=SanitizedDevice(kernels, order)) for order in ORDERS
    ]
    assert not any(results[0].status)
    assert all(np.array_equal(results[0].out.view(np.uint8), other.out.view(np.uint8)) for other in results[1:])


def make_damaged(kernels, number, interpolation):
    """Change the data or the entry points after headers were read."""
    generator = np.random.default_rng(number)
    source = tuple(generator.integers(1, 90, 2).tolist())
    program, images = program_of(7, 9, interpolation), images_of(source, number)
    batch, draws = batch_of(images, unguarded), draws_of(generator, program, source, len(images))
    parts = read_parts(batch, np.stack(draws))
    for i, image in enumerate(images):
        data = bytes(image.data)
        scan = data.index(b"\xff\xda") + 14
        changed = data[:scan] + WAYS[number % len(WAYS)](data[scan:], generator)
        batch.data[i] = unguarded(np.frombuffer(changed[: len(data)], np.uint8))
        batch.address[i], batch.size[i] = batch.data[i].ctypes.data, batch.data[i].size

    def lie(entries, jpegs):
        words = entries.reshape(-1).view(np.uint16)
        if number % 3 == 0 and len(words):
            words[generator.integers(0, len(words), 20)] = generator.integers(0, 1 << 16, 20)

    device = SanitizedDevice(kernels, RANDOM)
    result = make_jpegs(program, batch, draws, parts=parts, change=lie, place=unguarded, device=device)
    assert result.can[:-1].all()
    assert (parts.rows[:-1, EVERY] > 0).all()


def run(kernels, interpolations):
    for number in range(4):
        for source, size in SHAPES:
            make_intact(kernels, source, size, number, interpolations[number % len(interpolations)])
    for number in range(60):
        make_damaged(kernels, number, interpolations[0])


if __name__ == "__main__":
    library, *signed = sys.argv[1:]
    run(
        HostKernels(Path(library)),
        ["bicubic"] if signed else [interpolation for interpolation in INTERPOLATIONS if interpolation != "bicubic"],
    )
    print("done")
