from __future__ import annotations

import ctypes
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._gpu.batch import lay_out_batch
from gpubeton._plan.arena_layout import ALIGNMENT
from gpubeton._plan.draw_rows import (
    DRAW_COLUMNS,
    FLIP,
    HEIGHT,
    LEFT,
    NUM_PAINTS,
    SHIFT_X,
    SHIFT_Y,
    TOP,
    WIDTH,
    identity_draws,
)
from gpubeton._plan.fusion import compile_image_program
from gpubeton._plan.image_job import ImageJob
from gpubeton._plan.routes import DecodeRoute
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.format import ImageMode
from gpubeton.transforms import Cutout, RandomHorizontalFlip, RandomTranslate
from tests.cpu.pictures import noise
from tests.reference.image import reference_image

ARENA, STAGING = 1 << 20, 1 << 30
JPEG_ROUTES = (DecodeRoute.HARDWARE, DecodeRoute.ENTRIES)


def program_of(height, width):
    operations = [CenterCropRGBImageDecoder((height, width), 1), Cutout(1)]
    return compile_image_program("image", 0, operations, np.array([64]), np.array([64]), "cuda:0")


def job_of(images, source="image", is_pinned=False, seed=0):
    """A job of (route, height, width, bytes of the JPEG) with random crops, flips, shifts and paints."""
    rng = np.random.default_rng(seed)
    height, width = (np.array([image[axis] for image in images], np.int32) for axis in (1, 2))
    draws = np.zeros((len(images), DRAW_COLUMNS + 5), np.int32)
    for row, (_, rows, columns, _) in zip(draws, images, strict=True):
        row[HEIGHT], row[WIDTH] = rng.integers(1, rows + 1), rng.integers(1, columns + 1)
        row[TOP], row[LEFT] = rng.integers(rows - row[HEIGHT] + 1), rng.integers(columns - row[WIDTH] + 1)
        row[[FLIP, SHIFT_Y, SHIFT_X, NUM_PAINTS]] = rng.integers(2), *rng.integers(-3, 4, 2), 1
        row[DRAW_COLUMNS:] = 0, 1, 2, 3, 0
    is_raw = np.array([image[0] == DecodeRoute.BYTES for image in images], bool)
    size = np.where(is_raw, 3 * height.astype(np.int64) * width, [image[3] for image in images]).astype(np.uint64)
    mode = np.where(is_raw, ImageMode.RAW, ImageMode.JPG).astype(np.uint8)
    address = (STAGING * 2 + np.cumsum(size) - size).astype(np.uint64)
    return ImageJob(height, width, mode, draws, source=source, address=address, size=size, is_pinned=is_pinned)


def routes_of(images):
    return np.array([image[0] for image in images], np.int8)


IMAGES = st.lists(
    st.tuples(st.sampled_from(DecodeRoute), st.integers(1, 90), st.integers(1, 90), st.integers(1, 5000)),
    min_size=1,
    max_size=25,
)


class Placed:
    """The placement of some outputs, and what each takes of the memory."""

    def __init__(self, images, programs, sources, is_pinned=False, seed=0):
        rng = np.random.default_rng(seed)
        names = [f"field {source}" for source in sources]
        self.jobs = [job_of(images, name, is_pinned, seed + i) for i, name in enumerate(names)]
        self.programs, self.sources, self.routes = programs, sources, routes_of(images)
        self.samplings = rng.integers(0, 7, len(images)).astype(np.int32)
        count = len(programs)
        self.made = lay_out_batch(programs, self.jobs, sources, [self.routes] * count, [self.samplings] * count)

    def arena(self):
        """(first byte, last byte + 1) of every image in the arena."""
        for own in self.made.decoded:
            stop = own.target.astype(np.int64) + own.pitch.astype(np.int64) * self.jobs[own.program].height[own.rows]
            yield from zip(own.target.astype(np.int64).tolist(), stop.tolist(), strict=True)
        yield from self.pixels("offset")

    def pixels(self, beginning):
        """(first byte, last byte + 1) of every image that is sent, from the beginning of a copy."""
        for one in self.made.sent:
            rows = np.flatnonzero(np.isin(self.routes, (DecodeRoute.BYTES, DecodeRoute.CPU)))
            start = getattr(one, beginning) + one.within[rows].astype(np.int64)
            stop = start + one.pitch[rows].astype(np.int64) * self.made.pictures[one.program]["height"][rows]
            yield from zip(start.tolist(), stop.tolist(), strict=True)

    def staging(self):
        for own in self.made.decoded:
            start = own.address.astype(np.int64)
            if not self.jobs[own.program].is_pinned:
                stop = start + self.jobs[own.program].size[own.rows].astype(np.int64)
                yield from zip(start.tolist(), stop.tolist(), strict=True)
        yield from self.pixels("staged")


def assert_apart(places, end):
    """None overlaps another, all are inside."""
    ordered = sorted(places)
    assert all(start >= 0 for start, _ in ordered)
    assert all(stop <= start for (_, stop), (start, _) in pairwise(ordered))
    assert max((stop for _, stop in ordered), default=0) <= end


PROGRAMS = [program_of(8, 9), program_of(1, 1), program_of(40, 33)]


@settings(max_examples=150)
@given(
    images=IMAGES,
    sources=st.sampled_from([[0], [0, 0], [0, 1], [0, 0, 2], [0, 1, 1], [0, 1, 0], [0, 1, 2]]),
    is_pinned=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_nothing_overlaps_and_nothing_passes_the_end(images, sources, is_pinned, seed):
    placed = Placed(images, PROGRAMS[: len(sources)], sources, is_pinned, seed)
    # Kernels read the arena in pieces of 16 bytes.
    assert_apart(placed.arena(), placed.made.arena_nbytes - 16)
    assert_apart(placed.staging(), placed.made.staging_nbytes)
    for own in placed.made.decoded:
        assert (own.target % ALIGNMENT == 0).all()
        assert (own.pitch >= 3 * placed.jobs[own.program].width[own.rows]).all()
        if not is_pinned:
            assert (own.address % 16 == 0).all()
        else:
            assert np.array_equal(own.address, placed.jobs[own.program].address[own.rows])
    for one in placed.made.sent:
        assert (one.offset % ALIGNMENT, one.crops_nbytes % ALIGNMENT, one.nbytes % ALIGNMENT) == (0, 0, 0)
        assert (one.pitch[one.crops] % 32 == 0).all()
        assert (one.within[one.crops] < max(one.crops_nbytes, 1)).all()
        width = placed.programs[one.program].width
        assert (one.pitch[one.finished] == 3 * width).all()
        tight = 3 * width * placed.programs[one.program].height * np.arange(len(one.finished))
        assert one.within[one.finished].tolist() == (one.crops_nbytes + tight).tolist()


@settings(max_examples=100)
@given(images=IMAGES, sources=st.sampled_from([[0], [0, 0], [0, 1], [0, 1, 0]]), seed=st.integers(0, 1000))
def test_every_image_comes_by_its_route_and_each_stored_jpeg_once(images, sources, seed):
    placed = Placed(images, PROGRAMS[: len(sources)], sources, seed=seed)
    decoded = sorted(set(sources)) if (placed.routes == DecodeRoute.HARDWARE).any() else []
    assert [own.program for own in placed.made.decoded] == decoded
    for own in placed.made.decoded:
        assert sorted(own.rows.tolist()) == np.flatnonzero(placed.routes == DecodeRoute.HARDWARE).tolist()
        assert np.array_equal(own.routes, placed.routes[own.rows])
    for program in range(len(sources)):
        sent = [one for one in placed.made.sent if one.program == program]
        finished, crops = (np.flatnonzero(placed.routes == route) for route in (DecodeRoute.CPU, DecodeRoute.BYTES))
        assert len(sent) == bool(len(finished) + len(crops))
        for one in sent:
            assert np.array_equal(one.finished, finished)
            assert np.array_equal(np.arange(len(images))[one.crops], crops)
            assert bool(one.crops_nbytes) == bool(len(crops))


@given(images=IMAGES, seed=st.integers(0, 1000))
def test_images_of_a_route_and_sampling_lie_together_the_largest_first(images, seed):
    placed = Placed(images, PROGRAMS[:1], [0], seed=seed)
    for own in placed.made.decoded:
        size = placed.jobs[0].size[own.rows].astype(np.int64)
        keys = list(zip(own.routes.tolist(), placed.samplings[own.rows].tolist(), (-size).tolist(), strict=True))
        assert keys == sorted(keys)


@given(images=IMAGES, sources=st.sampled_from([[0], [0, 0], [0, 1]]), seed=st.integers(0, 1000))
def test_kernels_receive_the_address_of_each_image_and_which_is_guarded(images, sources, seed):
    placed = Placed(images, PROGRAMS[: len(sources)], sources, seed=seed)
    arena = {start + ARENA: stop + ARENA for start, stop in placed.arena()}
    staged = [decoded.address + np.uint64(STAGING) for decoded in placed.made.decoded]
    placed.made.place(ARENA, STAGING)
    assert [decoded.address.tolist() for decoded in placed.made.decoded] == [addresses.tolist() for addresses in staged]
    for decoded in placed.made.decoded:
        assert np.array_equal(decoded.target, placed.made.pictures[decoded.program]["address"][decoded.rows])
    for program, job, pictures in zip(placed.programs, placed.jobs, placed.made.pictures, strict=True):
        rows = [-1 if route is DecodeRoute.ENTRIES else row for row, (route, *_) in enumerate(images)]
        assert pictures["row"].tolist() == rows, "our decoder makes its images elsewhere"
        assert pictures["is_guarded"].tolist() == (placed.routes == DecodeRoute.HARDWARE).astype(int).tolist()
        for picture, (route, height, width, _), draw in zip(pictures, images, job.draws, strict=True):
            if route is DecodeRoute.ENTRIES:
                continue
            size = {
                DecodeRoute.CPU: (program.height, program.width),
                DecodeRoute.BYTES: (draw[HEIGHT], draw[WIDTH]),
            }.get(route, (height, width))
            assert (picture["height"], picture["width"]) == size
            assert picture["address"] + picture["pitch"] * picture["height"] == arena[int(picture["address"])]
    if sources == [0, 0]:
        decoded, both = (placed.routes == DecodeRoute.HARDWARE), placed.made.pictures
        assert np.array_equal(both[0][decoded], both[1][decoded])


@pytest.mark.parametrize("route", DecodeRoute)
def test_draws_do_not_change_by_sending_the_crop_alone(route):
    steps = RandomHorizontalFlip(), RandomTranslate(2, (9, 8, 7)), Cutout(3)
    operations = [RandomResizedCropRGBImageDecoder((8, 9)), *steps]
    program = compile_image_program("image", 0, operations, np.array([64]), np.array([64]), "cuda:0")
    images = [(route, 20, 30, 100), (route, 9, 8, 100), (route, 1, 1, 100), (route, 60, 50, 100)]
    job, routes = job_of(images), routes_of(images)
    job.draws = program.draw(1, 2, np.arange(4, dtype=np.uint64), job.height, job.width)
    before = job.draws.copy()
    (draws,) = lay_out_batch([program], [job], [0], [routes], [np.zeros(4, np.int32)]).draws
    assert np.array_equal(job.draws, before), "the job keeps its own"
    assert (draws.dtype, draws.flags.c_contiguous) == (np.int32, True)
    for number, (_, height, width, _) in enumerate(images):
        rgb, draw = noise(height, width, number), job.draws[number]
        expected = reference_image(rgb, draw, program)
        if route is DecodeRoute.BYTES:
            rgb = rgb[draw[TOP] :, draw[LEFT] :][: draw[HEIGHT], : draw[WIDTH]]
        if route is DecodeRoute.CPU:
            rgb = expected.output
        assert np.array_equal(reference_image(rgb, draws[number], program).output, expected.output)


def test_rows_of_crops_are_gathered_from_where_they_are_stored():
    images = [
        (DecodeRoute.BYTES, 20, 30, 0),
        (DecodeRoute.HARDWARE, 5, 5, 10),
        (DecodeRoute.BYTES, 1, 1, 0),
        (DecodeRoute.BYTES, 7, 90, 0),
    ]
    placed = Placed(images, PROGRAMS[:1], [0], is_pinned=True, seed=5)
    (job,), (one,), (pictures,) = placed.jobs, placed.made.sent, placed.made.pictures
    pixels = [noise(height, width, number) for number, (_, height, width, _) in enumerate(images)]
    job.address = np.array([image.ctypes.data for image in pixels], np.uint64)
    memory = np.full(placed.made.arena_nbytes, 0xA5, np.uint8)
    placed.made.place(memory.ctypes.data, STAGING)
    for row in placed.made.gathers(one):
        for line in range(row["rows"]):
            source = int(row["source"]) + line * int(row["source_pitch"])
            target = int(row["target"]) + line * int(row["target_pitch"])
            ctypes.memmove(target, source, int(row["row_bytes"]))
    for number in (0, 2, 3):
        top, left, height, width = job.draws[number, [TOP, LEFT, HEIGHT, WIDTH]]
        start = int(pictures["address"][number]) - memory.ctypes.data
        pitch = int(pictures["pitch"][number])
        assert 3 * width <= pitch < 3 * width + 32
        result = memory[start : start + pitch * height].reshape(height, pitch)[:, : 3 * width]
        assert np.array_equal(result.reshape(height, width, 3), pixels[number][top : top + height, left : left + width])


def test_a_gather_far_into_a_huge_image_is_addressed_without_overflow():
    placed = Placed([(DecodeRoute.BYTES, 50_000, 50_000, 0)], PROGRAMS[:1], [0], is_pinned=True)
    (job,), (one,) = placed.jobs, placed.made.sent
    job.draws[0, [TOP, LEFT]] = 49_000, 48_000
    (row,) = placed.made.gathers(one)
    assert int(row["source"]) - int(job.address[0]) == 3 * (49_000 * 50_000 + 48_000)


def test_sizes_of_many_large_crops_do_not_overflow():
    placed = Placed([(DecodeRoute.BYTES, 60_000, 60_000, 0)] * 20, PROGRAMS[:1], [0])
    (job,), side = placed.jobs, 60_000
    job.draws[:, [TOP, LEFT]], job.draws[:, [HEIGHT, WIDTH]] = 0, side
    (one,) = lay_out_batch(PROGRAMS[:1], [job], [0], [placed.routes], [placed.samplings]).sent
    assert (np.diff(one.within.astype(np.int64)) >= 3 * side**2).all()
    assert one.nbytes >= 20 * 3 * side**2


def test_images_made_by_the_cpu_are_copied_unchanged():
    rgb, program = noise(8, 9), PROGRAMS[0]
    draws = identity_draws(8, 9, DRAW_COLUMNS + 5)
    assert draws.shape == (1, DRAW_COLUMNS + 5)
    assert np.array_equal(reference_image(rgb, draws[0], program).output, rgb)
