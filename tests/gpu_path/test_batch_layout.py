from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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
)
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder
from gpubeton.format import ImageMode
from gpubeton.transforms import Cutout
from tests.gpu_path.gpu_room import DecodeRoute, ImageJob, compile_image_program, lay_out_batch

STAGING = 1 << 30


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
        self.batch = lay_out_batch(programs, self.jobs, sources, [self.routes] * count, [self.samplings] * count)

    def arena(self):
        """(first byte, last byte + 1) of every image in the arena."""
        for decoded in self.batch.decoded:
            start, height = decoded.target.astype(np.int64), self.jobs[decoded.program].height[decoded.rows]
            stop = start + decoded.pitch.astype(np.int64) * height
            yield from zip(start.tolist(), stop.tolist(), strict=True)
        yield from self.pixels("offset")

    def pixels(self, beginning):
        """(first byte, last byte + 1) of every image that is sent, from the beginning of a copy."""
        for sent in self.batch.sent:
            rows = np.flatnonzero(np.isin(self.routes, (DecodeRoute.BYTES, DecodeRoute.CPU)))
            start = getattr(sent, beginning) + sent.within[rows].astype(np.int64)
            stop = start + sent.pitch[rows].astype(np.int64) * self.batch.pictures[sent.program]["height"][rows]
            yield from zip(start.tolist(), stop.tolist(), strict=True)

    def staging(self):
        for decoded in self.batch.decoded:
            start = decoded.address.astype(np.int64)
            if not self.jobs[decoded.program].is_pinned:
                stop = start + self.jobs[decoded.program].size[decoded.rows].astype(np.int64)
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
def test_no_image_overlaps_another_and_none_passes_the_end_of_the_memory(images, sources, is_pinned, seed):
    placed = Placed(images, PROGRAMS[: len(sources)], sources, is_pinned, seed)
    # Kernels read the arena in pieces of 16 bytes.
    assert_apart(placed.arena(), placed.batch.arena_nbytes - 16)
    assert_apart(placed.staging(), placed.batch.staging_nbytes)


def test_a_gather_far_into_a_huge_image_is_addressed_without_overflow():
    placed = Placed([(DecodeRoute.BYTES, 50_000, 50_000, 0)], PROGRAMS[:1], [0], is_pinned=True)
    (job,), (sent,) = placed.jobs, placed.batch.sent
    job.draws[0, [TOP, LEFT]] = 49_000, 48_000
    (row,) = placed.batch.gathers(sent)
    assert int(row["source"]) - int(job.address[0]) == 3 * (49_000 * 50_000 + 48_000)


def test_sizes_of_many_large_crops_do_not_overflow():
    placed = Placed([(DecodeRoute.BYTES, 60_000, 60_000, 0)] * 20, PROGRAMS[:1], [0])
    (job,), side = placed.jobs, 60_000
    job.draws[:, [TOP, LEFT]], job.draws[:, [HEIGHT, WIDTH]] = 0, side
    (sent,) = lay_out_batch(PROGRAMS[:1], [job], [0], [placed.routes], [placed.samplings]).sent
    assert (np.diff(sent.within.astype(np.int64)) >= 3 * side**2).all()
    assert sent.nbytes >= 20 * 3 * side**2
