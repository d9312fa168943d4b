from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.cpu.making import INTERPOLATIONS, draw_of, make_one, program_of, stored_jpeg, stored_raw
from tests.cpu.pictures import decoded, jpeg, noise, photo
from tests.reference.image import place, reference_image

#: Source size, crop box, output size.
SHAPES = [
    ((1, 1), (0, 0, 1, 1), (1, 1)),
    ((1, 1), (0, 0, 1, 1), (5, 7)),
    ((1, 9), (0, 2, 1, 6), (3, 4)),
    ((9, 1), (2, 0, 6, 1), (4, 3)),
    ((7, 5), (0, 0, 7, 5), (3, 3)),
    ((7, 5), (0, 0, 7, 5), (7, 5)),
    ((30, 10), (0, 0, 30, 10), (8, 8)),  # 30 bytes a row: narrower than a vector
    ((30, 11), (0, 0, 30, 11), (8, 8)),  # 33: just wider
    ((50, 60), (49, 59, 1, 1), (6, 5)),
    ((50, 60), (0, 7, 50, 1), (17, 9)),
    ((37, 53), (3, 5, 30, 41), (24, 31)),
    ((33, 20), (1, 2, 17, 9), (50, 40)),
    ((40, 90), (7, 11, 33, 60), (48, 20)),
    ((120, 160), (10, 20, 100, 130), (9, 7)),
    ((100, 100), (0, 0, 100, 100), (99, 99)),
    ((64, 48), (0, 0, 64, 48), (32, 24)),
]


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize(("source", "box", "size"), SHAPES)
def test_a_crop_is_within_a_level_of_the_reference(interpolation, source, box, size):
    """Rows are rounded between the two directions, by half a level; the last rounding is another half."""
    program = program_of(*size, interpolation)
    for picture in (noise, photo):
        for flip in (0, 1):
            rgb, draw = picture(*source), draw_of(program, box, flip=flip)
            out = make_one(program, stored_raw(rgb), draw)
            assert np.abs(out.astype(int) - reference_image(rgb, draw, program).output).max() <= 1


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize(("source", "size"), [((3000, 30), (32, 32)), ((30, 3000), (32, 32)), ((700, 900), (5, 4))])
def test_hundreds_of_taps_add_up_to_within_a_level(interpolation, source, size):
    """A product loses half of a 256th of a level by rounding down: 250 of them would be half a level too dark."""
    program = program_of(*size, interpolation)
    rgb = photo(*source)
    draw = draw_of(program, (0, 0, *source))
    out, reference = make_one(program, stored_raw(rgb), draw), reference_image(rgb, draw, program)
    assert np.abs(out.astype(int) - reference.output).max() <= 1
    # More than 254 taps get only half of 254 back.
    taps = max(a / b for a, b in zip(source, size, strict=True)) * (2 if interpolation == "antialias" else 1)
    taps = 0 if interpolation == "bicubic" else taps  # signed sums are exact
    assert abs((out - reference.levels).mean()) < 0.3 + max(0, taps - 254) / 512


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("level", [0, 1, 77, 254, 255])
def test_a_uniform_color_does_not_change_by_any_resampling(interpolation, level):
    for source, size in (((40, 50), (17, 23)), ((9, 11), (30, 31)), ((500, 300), (3, 2)), ((64, 64), (8, 8))):
        program = program_of(*size, interpolation)
        out = make_one(program, stored_raw(np.full((*source, 3), level, np.uint8)))
        assert (out == level).all(), (source, size)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_an_image_at_its_stored_size_does_not_change(interpolation):
    for size in ((1, 1), (3, 10), (7, 11), (16, 16), (33, 65)):
        rgb = noise(*size)
        assert np.array_equal(make_one(program_of(*size, interpolation), stored_raw(rgb)), rgb)


def test_a_crop_of_the_same_size_is_cut_out():
    rgb, program = noise(30, 40), program_of(9, 13)
    for y, x in ((0, 0), (21, 27), (5, 1), (21, 0), (0, 27)):
        out = make_one(program, stored_raw(rgb), draw_of(program, (y, x, 9, 13)))
        assert np.array_equal(out, rgb[y : y + 9, x : x + 13])


@pytest.mark.parametrize("shift", [(0, 5), (0, -5), (3, 0), (-3, 0), (20, 1), (-1, -24), (100, 100)])
def test_a_shift_reads_further_on_and_repeats_the_edge(shift):
    rgb, program = photo(33, 44), program_of(20, 24)
    plain = draw_of(program, (1, 2, 30, 40), flip=1)
    moved = make_one(program, stored_raw(rgb), draw_of(program, (1, 2, 30, 40), flip=1, shift=shift))
    unmoved = make_one(program, stored_raw(rgb), plain)
    rows, columns = np.clip(np.arange(20) + shift[0], 0, 19), np.clip(np.arange(24) + shift[1], 0, 23)
    assert np.array_equal(moved, unmoved[np.ix_(rows, columns)])
    inside = ~np.isnan(place(rgb, draw_of(program, (1, 2, 30, 40), flip=1, shift=shift), (20, 24), "area"))
    expected = np.rint(place(rgb, plain, (20, 24), "area"))[np.ix_(rows, columns)]
    assert np.abs(moved.astype(int) - expected)[inside].max(initial=0) <= 1


@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(-9, 9)
)
@settings(max_examples=150)
def test_nearest_picks_pixels_as_they_are_and_makes_no_new_level(height, width, rows, columns, flip, shift):
    """Of every level, in all places; where a center lies on no border, the pixel is the one that Pillow picks."""
    rgb = np.random.default_rng(height * 64 + width).permuted(np.arange(height * width * 3) % 256).astype(np.uint8)
    rgb = rgb.reshape(height, width, 3)
    program = program_of(rows, columns, "nearest")
    draw = draw_of(program, (0, 0, height, width), flip=int(flip), shift=(shift, -shift))
    down, across = (np.arange(n) for n in (rows, columns))
    down = np.clip(down + shift, 0, rows - 1)
    across = np.clip(across - shift, 0, columns - 1)
    across = columns - 1 - across if flip else across
    picked = (2 * down + 1) * height // (2 * rows), (2 * across + 1) * width // (2 * columns)
    out = make_one(program, stored_raw(rgb), draw)
    assert np.array_equal(out, rgb[np.ix_(*picked)])
    pillow = np.asarray(Image.fromarray(rgb).resize((columns, rows), Image.Resampling.NEAREST))
    clear = np.ix_((2 * down + 1) * height % (2 * rows) != 0, (2 * across + 1) * width % (2 * columns) != 0)
    assert np.array_equal(out[clear], pillow[np.ix_(down, across)][clear])


@pytest.mark.parametrize("stored", ["raw", "4:4:4", "4:2:0", "gray"])
@pytest.mark.parametrize(
    ("source", "size"),
    [((301, 201), (64, 43)), ((31, 20), (90, 58)), ((300, 400), (224, 224)), ((1, 60), (33, 7)), ((700, 500), (5, 4))],
)
def test_bicubic_is_pillows(stored, source, size):
    """In its levels and beside them: where RGB is limited between the directions, which one comes first matters.

    Pillow chooses it by the sizes; raw images are resampled down first, JPEGs across, and as Y, Cb, Cr. Two levels are
    the roundings of both; JPEGs have those of RGB before, which absolute weights make up to 1.6 times as large.
    """
    program, rgb = program_of(*size, "bicubic"), photo(*source)
    for is_mild in (True, False):
        image = stored_raw(rgb // 2 + 64 if is_mild else rgb)
        if stored != "raw":
            image = stored_jpeg(jpeg(rgb // 2 + 64 if is_mild else rgb, 90, stored))
        pixels = image.data.reshape(*source, 3) if stored == "raw" else decoded(bytes(image.data))
        expected = np.asarray(Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BICUBIC)).astype(int)
        off = np.abs(make_one(program, image) - expected)
        if is_mild:
            assert off.max() <= (2 if stored in ("raw", "gray") else 3)
        assert (off > 2).mean() < 0.01
        assert off.mean() < 0.5
