"""Damaged and lying files: each is decoded or named, nothing else happens, and libjpeg-turbo agrees.

``GPUBETON_HOSTILE_FILES`` sets how many files are tried (3000 if it is not set).
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from gpubeton._cpu.jpeg.codes import DAMAGED_SCAN, OK, WRONG_SIZE
from tests.cpu import damage
from tests.cpu.guarded import Slots, guarded, guarded_scratch
from tests.cpu.making import (
    INTERPOLATIONS,
    Stored,
    draw_of,
    job_of,
    make,
    make_alone,
    program_of,
    scratch_for,
    stored_jpeg,
    stored_raw,
    whole,
)
from tests.cpu.pictures import SAMPLINGS, decoded, jpeg, noise, photo, pillow_jpeg, planar_reference, planes
from tests.cpu.plain_jpeg import DamagedError, components_of, read, write

FILES = int(os.environ.get("GPUBETON_HOSTILE_FILES", "3000"))
BATCH = 50
HEIGHT, WIDTH = 21, 26
PROGRAM = program_of(HEIGHT, WIDTH)


def sound_files():
    picture = photo(HEIGHT, WIDTH)
    ycc = planes(jpeg(picture, 95, "4:4:4"))
    return [
        *(jpeg(picture, 70, sampling) for sampling in SAMPLINGS),
        pillow_jpeg(picture, quality=60, optimize=True, restart_marker_blocks=1),
        pillow_jpeg(picture, quality=80, comment=b"x" * 20, restart_marker_rows=1),
        write(components_of(ycc, ((1, 2), (1, 1), (1, 1))), HEIGHT, WIDTH, restart_interval=3),
        pillow_jpeg(picture, progressive=True, quality=50),
        pillow_jpeg(picture, "CMYK", quality=50),
    ]


def damaged_files(seed, count):
    rng, sound = np.random.default_rng(seed), sound_files()
    for number in range(count):
        way = damage.WAYS[number % len(damage.WAYS)]
        data = way(sound[int(rng.integers(len(sound)))], rng)
        if rng.random() < 0.2 and len(data) > 200:
            data = damage.flip_bits(data, rng)
        yield way.__name__, data


def accepted_by_libjpeg(data):
    try:
        return decoded(data).shape[:2] == (HEIGHT, WIDTH)
    except ValueError:
        return False


def is_comparable(data):
    """Whether a file's coefficients are all sound, and small enough for libjpeg-turbo's 16-bit arithmetic.

    It lets coefficients pass the end of a block without a warning, and its sums of extreme ones wrap around.
    """
    try:
        return all(np.abs(blocks).sum(axis=-1).max() < 5900 for blocks in read(data).values())
    except (DamagedError, KeyError, IndexError, ValueError):
        return False


class Trial:
    """A batch of damaged files, each right before or right after an unreadable page, and sound ones among them."""

    def __init__(self):
        self.slots = Slots(BATCH, 1 << 16)
        self.sound = stored_jpeg(jpeg(photo(HEIGHT, WIDTH, 3), 80, "4:2:0"))
        self.expected = make_alone(PROGRAM, [self.sound], [draw_of(PROGRAM, whole(self.sound))])[0][0]
        self.scratch = guarded_scratch(scratch_for(PROGRAM, [Stored(np.empty(1 << 16, "u1"), HEIGHT, WIDTH, 0)]))
        self.out = guarded(np.zeros((BATCH, HEIGHT, WIDTH, 3), np.uint8))
        self.compared = self.bad = 0

    def run(self, files):
        images = []
        for i, (_, data) in enumerate(files):
            place = self.slots.ending(i, data) if i % 2 else self.slots.starting(i, data)
            images.append(self.sound if i % 7 == 0 else Stored(place, HEIGHT, WIDTH, self.sound.mode))
        draws = [draw_of(PROGRAM, whole(image)) for image in images]
        self.out[...] = 0xA5
        alone, codes = make_alone(PROGRAM, images, draws, self.scratch, self.out[: len(images)])
        out, bad = make(PROGRAM, images, draws)
        reasons = {bad_image.row: bad_image.reason for bad_image in bad}
        for i, ((way, data), code) in enumerate(zip(files, codes.tolist(), strict=True)):
            if i % 7 == 0:
                assert np.array_equal(out[i], self.expected), "a sound neighbor was changed"
                assert np.array_equal(alone[i], self.expected), "a sound neighbor was changed"
            else:
                self.judge(way, data, code, out[i], alone[i], reasons.get(i))

    def judge(self, way, data, code, pixels, alone, reason):
        accepted = accepted_by_libjpeg(data)
        assert not (accepted and reason), f"{way}: libjpeg-turbo accepts it, but: {reason}"
        self.bad += reason is not None
        if reason is not None:
            assert reason
            assert code != OK
            untouched = (pixels == 0xA5).all(axis=(1, 2))
            # Rows are written from the top while the scan is sound; the rest of the buffer is the caller's.
            assert untouched.all() or code == DAMAGED_SCAN
            assert not np.any(np.diff(untouched.astype(int)) < 0)
        elif code == OK:
            assert np.array_equal(pixels, alone)
            if accepted and is_comparable(data):
                self.compared += 1
                off = np.abs(pixels - np.rint(planar_reference(data, (0, 0, HEIGHT, WIDTH), (HEIGHT, WIDTH), "area")))
                assert off.max() <= 1, way
        else:
            assert accepted or code != WRONG_SIZE


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_are_decoded_or_named_as_libjpeg_has_it(seed):
    trial = Trial()
    files = list(damaged_files(seed, FILES // 3))
    for start in range(0, len(files), BATCH):
        trial.run(files[start : start + BATCH])
    assert trial.bad > len(files) / 4
    assert trial.compared > len(files) / 20


def test_crops_of_damaged_files_stay_inside_memory():
    """Rows above a crop are skipped, MCUs beside it too: other code than for whole images."""
    rng = np.random.default_rng(11)
    slots = Slots(BATCH, 1 << 16)
    for size in ((5, 9), (40, 3)):
        program = program_of(*size, "antialias")
        scratch = guarded_scratch(scratch_for(program, [Stored(np.empty(1 << 16, "u1"), HEIGHT, WIDTH, 0)]))
        files = list(damaged_files(17, FILES // 10))
        for start in range(0, len(files), BATCH):
            batch = files[start : start + BATCH]
            images = [Stored(slots.ending(i, data), HEIGHT, WIDTH, 0) for i, (_, data) in enumerate(batch)]
            corners = [(int(rng.integers(HEIGHT)), int(rng.integers(WIDTH))) for _ in images]
            boxes = [
                (y, x, int(rng.integers(1, HEIGHT - y + 1)), int(rng.integers(1, WIDTH - x + 1))) for y, x in corners
            ]
            _, codes = make_alone(program, images, [draw_of(program, box) for box in boxes], scratch)
            assert 0 < (codes == OK).sum() < len(codes)


@pytest.mark.parametrize("stored", [*SAMPLINGS, "raw"])
def test_no_sound_image_makes_the_kernels_leave_their_memory(stored):
    """Random sizes, crops and outputs, with every array between unreadable pages."""
    rng = np.random.default_rng(5)
    for _ in range(FILES // 75):
        height, width, rows, columns = (int(2 ** rng.uniform(0, 7)) for _ in range(4))
        program = program_of(rows, columns, INTERPOLATIONS[int(rng.integers(len(INTERPOLATIONS)))])
        rgb = noise(height, width, int(rng.integers(9)))
        content = rgb.tobytes() if stored == "raw" else jpeg(rgb, int(rng.integers(30, 101)), stored)
        mode = (stored_raw(rgb) if stored == "raw" else stored_jpeg(content)).mode
        image = Stored(Slots(1, len(content)).ending(0, content), height, width, mode)
        top, left = int(rng.integers(height)), int(rng.integers(width))
        box = top, left, int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1))
        draw = draw_of(program, box, flip=int(rng.integers(2)), shift=rng.integers(-5, 6, 2).tolist())
        out = guarded(np.zeros((1, rows, columns, 3), np.uint8), alignment=1)
        _, codes = make_alone(program, [image], [draw], guarded_scratch(scratch_for(program, [image])), out)
        assert codes.tolist() == [OK]
        free = make_alone(program, [image], [draw])[0]
        assert np.array_equal(out, free), "what lies beside the scratch memory decides a pixel"


def test_raw_images_whose_size_lies_are_named_and_not_read():
    """The existing bytes end at an unreadable page; the metadata claim more."""
    slots = Slots(4, 1 << 12)
    sizes = [(9, 9), (65535, 65535), (1, 65535), (21846, 65535)]
    images = [Stored(slots.ending(i, b"\x11" * 241), *size, 1) for i, size in enumerate(sizes)]
    program = program_of(4, 4)
    _, bad = make(program, images, [draw_of(program, (0, 0, 1, 1))] * 4)
    assert [bad_image.row for bad_image in bad] == [0, 1, 2, 3]
    assert all("it has 241 bytes" in bad_image.reason for bad_image in bad)


def test_a_job_is_described_by_address_and_nothing_is_copied():
    """What the tests above rely on: the bytes between the unreadable pages are those that are read."""
    place = Slots(1, 4096).ending(0, noise(3, 3).tobytes())
    job = job_of(program_of(3, 3), [Stored(place, 3, 3, 1)], [draw_of(program_of(3, 3), (0, 0, 3, 3))])
    assert job.address[0] == place.ctypes.data
