"""Several outputs of one stored image: made in one pass, and each as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton._cpu.worker_pool import WorkerPool
from gpubeton.transforms import Cutout, NormalizeImage, RandomBrightness, RandomTranslate
from tests.cpu.making import draw_of, job_of, make, program_of, stored_jpeg, stored_raw, whole
from tests.cpu.pictures import jpeg, photo, pillow_jpeg

PROGRAMS = [
    program_of(24, 40, "area"),
    program_of(17, 9, "antialias", Cutout(3), NormalizeImage([120, 110, 100], [60, 50, 40], "float16")),
    program_of(33, 30, "bilinear", RandomTranslate(2), RandomBrightness(0.5, 1)),
    program_of(8, 8, "nearest"),
]

IMAGES = {
    "4:2:0": stored_jpeg(pillow_jpeg(photo(131, 170), subsampling="4:2:0")),
    "4:4:4": stored_jpeg(pillow_jpeg(photo(131, 170), subsampling="4:4:4")),
    "4:2:2": stored_jpeg(pillow_jpeg(photo(131, 170), subsampling="4:2:2")),
    "restarts": stored_jpeg(pillow_jpeg(photo(131, 170), restart_marker_blocks=3)),
    "restarts by row": stored_jpeg(pillow_jpeg(photo(131, 170), restart_marker_rows=1)),
    "gray": stored_jpeg(pillow_jpeg(photo(131, 170)[..., 0])),
    "progressive": stored_jpeg(pillow_jpeg(photo(131, 170), progressive=True)),
    "raw": stored_raw(photo(131, 170)),
}


def together(programs, images, draws, source="photos", batch_size=None):
    """Make several outputs of the same images; the batches and the bad images."""
    jobs = [job_of(program, images, rows) for program, rows in zip(programs, draws, strict=True)]
    for program, job in zip(programs, jobs, strict=True):
        job.source, job.steps = source, steps_of(program, len(images))
    pool = WorkerPool(programs, batch_size or len(images), num_workers=2, ring=1)
    try:
        pool.submit(jobs)
        return [job.out for job in jobs], pool.collect()
    finally:
        pool.close()


def steps_of(program, count):
    samples = np.arange(count, dtype=np.uint64)
    return program.draw_steps(3, 0, samples)


def boxes(height=131, width=170):
    def of(corner):
        top, left = corner
        return st.tuples(st.just(top), st.just(left), st.integers(1, height - top), st.integers(1, width - left))

    return st.tuples(st.integers(0, height - 1), st.integers(0, width - 1)).flatmap(of)


def row_of(program, box, flip):
    paints = [(1, 1, 4, 4, 0)] if program.max_paints == 1 else [(0, 0, 2, 30, 0), (0, 0, 33, 0, 0)]
    return draw_of(program, box, flip=flip, shift=(flip, -flip), paints=paints[: program.max_paints])


@given(st.data(), st.sampled_from(sorted(IMAGES)), st.integers(2, 6))
@settings(max_examples=120)
def test_each_view_has_the_bits_that_it_has_alone(data, kind, count):
    programs = [data.draw(st.sampled_from(PROGRAMS)) for _ in range(count)]
    draws = [[row_of(program, data.draw(boxes()), data.draw(st.integers(0, 1)))] for program in programs]
    result, bad = together(programs, [IMAGES[kind]], draws)
    apart, none = together(programs, [IMAGES[kind]], draws, source="")
    assert bad == none == []
    for shared, alone in zip(result, apart, strict=True):
        assert np.array_equal(shared, alone)
    plain = programs.index(PROGRAMS[3]) if PROGRAMS[3] in programs else None
    if plain is not None:
        assert np.array_equal(result[plain], make(PROGRAMS[3], [IMAGES[kind]], draws[plain])[0])


def test_small_crops_at_the_corners_leave_a_gap_between_them():
    corners = [(0, 0, 20, 20), (0, 150, 20, 20), (111, 0, 20, 20), (111, 150, 20, 20), (60, 70, 5, 5)]
    for kind, image in IMAGES.items():
        programs = [PROGRAMS[0]] * len(corners)
        draws = [[draw_of(PROGRAMS[0], corner)] for corner in corners]
        result, _ = together(programs, [image], draws)
        for batch, rows in zip(result, draws, strict=True):
            assert np.array_equal(batch, make(PROGRAMS[0], [image], rows)[0]), kind


def test_libjpeg_turbo_decodes_a_refused_image_once_for_all_views(monkeypatch):
    calls = []
    decode = simplejpeg.decode_jpeg

    def counted(data, *arguments, **options):
        calls.append(len(data))
        return decode(data, *arguments, **options)

    monkeypatch.setattr(simplejpeg, "decode_jpeg", counted)
    programs = [PROGRAMS[0], PROGRAMS[3], PROGRAMS[0]]
    draws = [[draw_of(program, whole(IMAGES["progressive"]))] for program in programs]
    result, bad = together(programs, [IMAGES["progressive"]], draws)
    assert bad == []
    assert len(calls) == 1
    assert np.array_equal(result[0], result[2])


@pytest.mark.parametrize("kind", ["4:2:0", "raw", "progressive"])
def test_a_bad_image_is_bad_in_all_views_for_the_same_reason_and_others_are_not(kind):
    good, data = IMAGES[kind], IMAGES[kind].data.copy()
    cut = type(good)(data[: len(data) // 3], good.height, good.width, good.mode)
    programs = [PROGRAMS[0], PROGRAMS[3]]
    draws = [[draw_of(program, whole(good))] * 3 for program in programs]
    result, bad = together(programs, [good, cut, good], draws)
    assert sorted((bad_image.program, bad_image.row) for bad_image in bad) == [(0, 1), (1, 1)]
    assert len({bad_image.reason for bad_image in bad}) == 1
    for batch in result:
        assert np.array_equal(batch[0], batch[2])


ABOVE, BELOW = draw_of(PROGRAMS[0], (0, 0, 8, 48)), draw_of(PROGRAMS[0], (56, 0, 8, 48))


def damaged_below():
    data = jpeg(photo(64, 48), 85, "4:4:4")
    return stored_jpeg(data[:-2] + b"\x55" * 40 + data[-2:], 64, 48)


@pytest.mark.parametrize("first", [True, False])
def test_a_view_that_reaches_damage_makes_the_sample_bad_in_all_its_views(first):
    """One verdict for a sample, though the other view alone would not have met the damage."""
    draws = [[ABOVE], [BELOW]] if first else [[BELOW], [ABOVE]]
    _, bad = together([PROGRAMS[0]] * 2, [damaged_below()], draws)
    assert sorted(bad_image.program for bad_image in bad) == [0, 1]


@pytest.mark.parametrize("kind", ["4:2:0", "raw", "progressive"])
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_crop_box_that_is_no_part_of_the_image_spoils_its_own_view_alone(kind, wrong):
    programs = [PROGRAMS[0], PROGRAMS[3], PROGRAMS[0]]
    draws = [
        [draw_of(program, (0, 0, 132, 9) if number == wrong else (5, 6, 77, 88))]
        for number, program in enumerate(programs)
    ]
    result, bad = together(programs, [IMAGES[kind]], draws)
    assert [(bad_image.program, bad_image.reason) for bad_image in bad] == [
        (wrong, "its crop box is empty or passes its border")
    ]
    for number, program in enumerate(programs):
        if number != wrong:
            assert np.array_equal(result[number], make(program, [IMAGES[kind]], draws[number])[0])


def test_images_of_other_fields_and_other_places_are_made_apart():
    """Damage that one of them reaches is no matter of the other."""
    image, copy = (damaged_below() for _ in range(2))
    for images, sources in (([image, copy], ("photos", "photos")), ([image, image], ("photos", "masks"))):
        jobs = [job_of(PROGRAMS[0], [image], [box]) for image, box in zip(images, (ABOVE, BELOW), strict=True)]
        for job, source in zip(jobs, sources, strict=True):
            job.source = source
        pool = WorkerPool([PROGRAMS[0]] * 2, 1, num_workers=1, ring=1)
        pool.submit(jobs)
        assert [bad_image.program for bad_image in pool.collect()] == [1]
        pool.close()
