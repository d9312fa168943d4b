from __future__ import annotations

import re

import numpy as np
import pytest

from gpubeton._cpu.jpeg.codes import OK
from tests.cpu.making import INTERPOLATIONS, draw_of, make, make_alone, make_one, program_of, stored_jpeg, whole
from tests.cpu.pictures import SAMPLINGS, decoded, jpeg, noise, photo, pillow_jpeg, planar_reference, planes
from tests.cpu.plain_jpeg import components_of, write
from tests.reference.weights import resize

BLOCKS = {
    "4:2:0": ((2, 2), (1, 1), (1, 1)),
    "4:2:2": ((2, 1), (1, 1), (1, 1)),
    "4:4:0": ((1, 2), (1, 1), (1, 1)),
    "4:4:4": ((1, 1), (1, 1), (1, 1)),
    "gray": ((1, 1),),
}

#: Source size, crop box, output size.
SHAPES = [
    ((37, 53), (0, 0, 37, 53), (16, 16)),
    ((37, 53), (3, 5, 30, 41), (24, 31)),
    ((64, 48), (0, 0, 64, 48), (64, 48)),
    ((33, 20), (1, 2, 17, 9), (50, 40)),  # both sides grow
    ((40, 90), (7, 11, 33, 60), (48, 20)),  # one grows, one shrinks
    ((120, 160), (10, 20, 100, 130), (9, 7)),  # more taps than any unrolled loop has
    ((50, 50), (49, 49, 1, 1), (3, 5)),  # the last pixel alone
    ((50, 50), (20, 0, 1, 50), (1, 33)),
]


def expected_levels(data, box, size, interpolation, *, flip=False):
    return np.rint(planar_reference(data, box, size, interpolation, flip=flip))


def decode_alone(program, data, draw=None):
    """Decode without libjpeg-turbo, which must be possible."""
    image = stored_jpeg(data)
    out, codes = make_alone(program, [image], [draw_of(program, whole(image)) if draw is None else draw])
    assert codes.tolist() == [OK]
    return out[0]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("picture", [photo, noise])
def test_a_crop_is_within_a_level_of_its_resampled_planes(sampling, interpolation, picture):
    """And not more: libjpeg rounds upsampled values, half a level of Cb is 0.9 of B, and 0.5 is the last rounding.

    The absolute weights of bicubic sum to 1.25 in each direction: half a level of Cb becomes up to 1.4 of B.
    """
    most = 2 if interpolation == "bicubic" and sampling not in ("4:4:4", "gray") else 1
    for number, (source, box, size) in enumerate(SHAPES):
        data = jpeg(picture(*source, number), 92, sampling)
        program = program_of(*size, interpolation)
        out = decode_alone(program, data, draw_of(program, box, flip=number % 2))
        expected = expected_levels(data, box, size, interpolation, flip=number % 2)
        assert np.abs(out - expected).max() <= most, (source, box, size)


@pytest.mark.parametrize("sampling", ["4:2:0", "gray"])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_three_thousand_pixels_shrink_to_thirty_two_within_a_level(sampling, interpolation):
    for source in ((3000, 40), (40, 3000)):
        data = jpeg(photo(*source), 85, sampling)
        out = decode_alone(program_of(32, 32, interpolation), data)
        levels = planar_reference(data, (0, 0, *source), (32, 32), interpolation)
        assert np.abs(out - np.rint(levels)).max() <= 1
        assert abs((out - levels).mean()) < 0.1, "sums of many taps lose what each product rounds down"


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_images_of_every_small_size_are_decoded(sampling):
    sizes = [(h, w) for h in range(1, 19) for w in range(1, 19)] + [(h, 41 - h) for h in range(1, 41)]
    files = [jpeg(photo(*size, seed), 93, sampling) for seed, size in enumerate(sizes)]
    images = [stored_jpeg(data) for data in files]
    program = program_of(21, 19, "bilinear")
    out, codes = make_alone(program, images, [draw_of(program, whole(image)) for image in images])
    assert not codes.any()
    for size, data, pixels in zip(sizes, files, out, strict=True):
        assert np.abs(pixels - expected_levels(data, (0, 0, *size), (21, 19), "bilinear")).max() <= 1, size


@pytest.mark.parametrize("width", range(1, 7))
@pytest.mark.parametrize("sampling", ["4:2:0", "4:2:2", "4:4:0"])
def test_chroma_of_very_narrow_images_is_repeated_as_libjpeg_does(width, sampling):
    for height in (1, 2, 3, 4, 18):
        data = jpeg(noise(height, width), 95, sampling)
        out = decode_alone(program_of(height, width), data)
        assert np.abs(out - expected_levels(data, (0, 0, height, width), (height, width), "area")).max() <= 1


@pytest.mark.parametrize("quality", [1, 5, 20, 50, 75, 90, 100])
def test_a_gray_image_at_its_stored_size_equals_libjpegs(quality):
    """One is stored as 65535/65536: a sample loses 2/256 of a level on its way, and rounding brings it back."""
    for picture in (photo, noise):
        data = jpeg(picture(45, 67), quality, "gray")
        assert np.array_equal(decode_alone(program_of(45, 67), data), decoded(data))


@pytest.mark.parametrize("quality", [1, 10, 40, 75, 90, 100])
@pytest.mark.parametrize("sampling", ["4:2:0", "4:2:2", "4:4:0", "4:4:4"])
def test_colors_of_any_quality_at_their_own_size_are_within_a_level(quality, sampling):
    data = jpeg(photo(45, 67), quality, sampling)
    out = decode_alone(program_of(45, 67), data)
    assert np.abs(out - expected_levels(data, (0, 0, 45, 67), (45, 67), "area")).max() <= 1
    # Of libjpeg's own RGB most levels are hit: they differ where upsampled chroma was rounded on the way.
    assert (out == decoded(data)).mean() > (0.95 if sampling == "4:4:4" else 0.6)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_crop_is_cut_from_the_whole_to_the_bit(sampling):
    """Only the crop's MCUs are decoded; the others must not be needed."""
    data = jpeg(noise(35, 52), 80, sampling)
    image, full = stored_jpeg(data), decode_alone(program_of(35, 52), data)
    for height, width in ((1, 1), (8, 16), (9, 3), (17, 33)):
        program = program_of(height, width)
        places = [(y, x) for y in range(0, 36 - height, 3) for x in range(0, 53 - width, 2)]
        draws = [draw_of(program, (y, x, height, width)) for y, x in places]
        out, codes = make_alone(program, [image] * len(places), draws)
        assert not codes.any()
        for (y, x), pixels in zip(places, out, strict=True):
            assert np.array_equal(pixels, full[y : y + height, x : x + width]), (y, x, height, width)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("interval", [1, 2, 3, 7, 11])
def test_restart_markers_change_no_bit(sampling, interval):
    picture = planes(jpeg(photo(43, 58), 95, "4:4:4"))[..., : len(BLOCKS[sampling])]
    components = components_of(picture, BLOCKS[sampling])
    plain, restarting = (
        write(components, 43, 58, restart_interval=restart_interval) for restart_interval in (0, interval)
    )
    assert b"\xff\xdd" in restarting
    assert b"\xff\xd0" in restarting
    assert np.array_equal(decoded(restarting), decoded(plain)), "the writer is wrong"
    for box, size in (((0, 0, 43, 58), (43, 58)), ((20, 30, 20, 20), (9, 9)), ((40, 50, 3, 8), (5, 5))):
        program = program_of(*size)
        draw = draw_of(program, box)
        assert np.array_equal(decode_alone(program, restarting, draw), decode_alone(program, plain, draw))


@pytest.mark.parametrize("options", [{"restart_marker_rows": 1}, {"restart_marker_blocks": 5}, {"optimize": True}])
@pytest.mark.parametrize("subsampling", ["4:2:0", "4:2:2", "4:4:4"])
def test_optimized_tables_and_libjpegs_restart_markers_change_no_bit(options, subsampling):
    plain = pillow_jpeg(photo(50, 70), quality=70, subsampling=subsampling)
    data = pillow_jpeg(photo(50, 70), quality=70, subsampling=subsampling, **options)
    assert data != plain
    assert np.array_equal(decode_alone(program_of(32, 40), data), decode_alone(program_of(32, 40), plain))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_flip_mirrors_and_a_shift_moves_to_the_bit(sampling):
    data, program = jpeg(photo(44, 61), 90, sampling), program_of(20, 23)
    box = (3, 4, 37, 50)
    straight = decode_alone(program, data, draw_of(program, box))
    assert np.array_equal(decode_alone(program, data, draw_of(program, box, flip=1)), straight[:, ::-1])
    for down, across in ((2, -3), (-5, 7), (19, 22), (30, -40)):
        moved = decode_alone(program, data, draw_of(program, box, flip=1, shift=(down, across)))
        rows, columns = np.clip(np.arange(20) + down, 0, 19), np.clip(np.arange(23) + across, 0, 22)
        assert np.array_equal(moved, straight[:, ::-1][np.ix_(rows, columns)])


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_photographs_look_as_if_decoded_first_and_resampled_then(interpolation):
    """They differ where RGB left 0..255 and was clamped before resampling, and by rounding in between."""
    for sampling in SAMPLINGS:
        data = jpeg(photo(300, 400), 90, sampling)
        out = decode_alone(program_of(224, 224, interpolation), data).astype(np.float64)
        off = np.abs(out - resize(decoded(data), (224, 224), interpolation))
        assert off.mean() < 0.5, sampling
        assert (off > 4).mean() < 0.002, sampling


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_no_state_of_an_image_affects_the_next(sampling):
    program = program_of(24, 24, "antialias")
    files = [jpeg(noise(90, 110), 100, "4:4:4"), jpeg(photo(13, 9), 60, sampling), jpeg(photo(60, 33), 60, sampling)]
    images = [stored_jpeg(data) for data in files]
    out, codes = make_alone(program, images, [draw_of(program, whole(image)) for image in images])
    assert not codes.any()
    for image, pixels in zip(images, out, strict=True):
        assert np.array_equal(pixels, make_one(program, image))


def test_a_size_other_than_the_metadatas_is_named_and_nothing_is_decoded():
    image = stored_jpeg(jpeg(photo(20, 30)), 21, 30)
    program = program_of(8, 8)
    out, bad = make(program, [image], [draw_of(program, whole(image))])
    assert [(bad_image.row, bad_image.reason) for bad_image in bad] == [
        (0, "it is 20 x 30 pixels, but the file's metadata have 21 x 30 pixels")
    ]
    assert (out == 0xA5).all()


@pytest.mark.parametrize("options", [{}, {"restart_marker_rows": 1}])
def test_every_flipped_bit_that_libjpeg_turbo_notices_is_noticed(options):
    """Most often data end a few bytes before the next marker: the decoder had lost step, and was lucky."""
    data = pillow_jpeg(photo(60, 80), quality=85, **options)
    start, rng = data.index(b"\xff\xda") + 14, np.random.default_rng(3)
    program, images, noticed = program_of(60, 80), [], []
    for _ in range(1000):
        flipped = bytearray(data)
        flipped[int(rng.integers(start, len(data) - 2))] ^= 1 << int(rng.integers(8))
        images.append(stored_jpeg(flipped, 60, 80))
        try:
            decoded(bytes(flipped))
        except ValueError:
            noticed.append(len(images) - 1)
    _, bad = make(program, images, [draw_of(program, whole(images[0]))] * 1000)
    assert [bad_image.row for bad_image in bad] == noticed
    assert len(noticed) > 50


def left_over(data, interval, count=40):
    """The file with bytes that no MCU takes at the end of a restart interval; libjpeg-turbo overlooks a few."""
    scan = data.index(b"\xff\xda")
    ends = [match.start() for match in re.finditer(rb"\xff[\xd0-\xd9]", data) if match.start() > scan]
    return data[: ends[interval]] + b"\x55" * count + data[ends[interval] :]


def test_damage_counts_as_far_as_the_crops_of_a_sample_reach():
    """The rule: check all that is read, from the restart marker before the crop to its last row; read no more."""
    data = pillow_jpeg(photo(64, 48), quality=85, restart_marker_rows=1)
    program = program_of(8, 8)
    for damaged_row in range(4):
        image = stored_jpeg(left_over(data, damaged_row), 64, 48)
        for top, height in ((0, 8), (18, 10), (34, 10), (50, 14)):
            _, bad = make(program, [image], [draw_of(program, (top, 0, height, 48))])
            assert bool(bad) == (top // 16 == damaged_row), (damaged_row, top)


@pytest.mark.parametrize("box", [(0, 0, 4, 4), (30, 20, 4, 4), (60, 44, 4, 4)])
@pytest.mark.parametrize(
    "damaged",
    [
        lambda data: data[:-2],
        lambda data: data.replace(b"\xff\xd1", b"\xff\xd3"),
        lambda data: data.replace(b"\xff\xd2", b""),
        lambda data: data.replace(b"\xff\xdb", b"\xff\xfe"),
    ],
    ids=["no end", "a restart marker of another number", "a restart marker too few", "no tables"],
)
def test_damage_of_the_whole_file_counts_for_every_crop(damaged, box):
    data = damaged(pillow_jpeg(photo(64, 48), quality=85, restart_marker_rows=1))
    program, image = program_of(8, 8), stored_jpeg(data, 64, 48)
    assert len(make(program, [image], [draw_of(program, box)])[1]) == 1


def test_a_table_with_a_code_of_ones_alone_is_refused_as_libjpeg_turbo_has_it():
    """The standard keeps these codes free; a decoder that takes them reads other data than all others."""
    data = jpeg(photo(16, 16), 85)
    usual = bytes([0x01, 0, 3, *[1] * 9, *[0] * 5])
    assert usual in data
    image = stored_jpeg(data.replace(usual, bytes([0x01, 0, 3, *[1] * 7, 2, *[0] * 6])), 16, 16)
    _, [bad] = make(program_of(16, 16), [image], [draw_of(program_of(16, 16), whole(image))])
    assert "Huffman" in bad.reason
