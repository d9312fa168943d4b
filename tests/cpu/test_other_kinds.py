from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gpubeton.format.field_arguments import IMAGE_KINDS
from gpubeton.transforms import Cutout, NormalizeImage, RandomErasing
from tests.cpu.guarded import guarded
from tests.cpu.making import INTERPOLATIONS, UNTOUCHED, draw_of, make, make_one, program_of, stored_jpeg, stored_raw
from tests.cpu.pictures import photo, pillow_jpeg
from tests.cpu.test_resample import SHAPES
from tests.reference.image import reference_image

KINDS = [kind for kind in IMAGE_KINDS.values() if kind.name != "rgb"]


def noise(kind, height, width, seed=0):
    rng = np.random.default_rng([height, width, seed])
    return rng.integers(0, kind.max_level + 1, (height, width, kind.channels)).astype(kind.dtype)


def assert_close(out, reference, kind):
    """Exact but for the last rounding; single precision moves it by some 10**-6 of the largest level."""
    off = np.abs(out - reference.levels)
    if kind.has_alpha:
        # Where hardly anything is opaque, colors are quotients of small numbers.
        off = off[reference.levels[..., 3] > 1]
    assert off.max(initial=0) <= 0.5 + 4e-6 * kind.max_level


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize(("source", "box", "size"), SHAPES)
def test_a_crop_is_the_reference_rounded(kind, interpolation, source, box, size):
    program = program_of(*size, interpolation, kind=kind.name)
    for flip in (0, 1):
        pixels, draw = noise(kind, *source), draw_of(program, box, flip=flip)
        out = make_one(program, stored_raw(pixels), draw)
        assert (out.dtype, out.shape) == (kind.dtype, (*size, kind.channels))
        assert_close(out, reference_image(pixels, draw, program), kind)


@given(data=st.data(), kind=st.sampled_from(KINDS), interpolation=st.sampled_from(INTERPOLATIONS))
@settings(max_examples=80)
def test_any_crop_is_the_reference(data, kind, interpolation):
    height, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    box = top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left))
    size = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 30))
    program = program_of(*size, interpolation, kind=kind.name)
    draw = draw_of(program, box, flip=data.draw(st.integers(0, 1)))
    pixels = noise(kind, height, width, data.draw(st.integers(0, 9)))
    assert_close(make_one(program, stored_raw(pixels), draw), reference_image(pixels, draw, program), kind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_levels_are_normalized_per_channel_to_the_bit(kind, dtype):
    mean, std = np.linspace(90, 130, kind.channels), np.linspace(50, 60, kind.channels) * (kind.max_level / 255)
    program = program_of(12, 15, "area", NormalizeImage(mean, std, dtype), kind=kind.name)
    pixels = noise(kind, 12, 15)
    out = make_one(program, stored_raw(pixels))
    exact = (pixels.astype(np.float64) - mean) / std
    if dtype == "bfloat16":
        import torch

        assert np.array_equal(out, torch.from_numpy(exact).to(torch.bfloat16).view(torch.int16).numpy().view("u2"))
    else:
        assert np.array_equal(out, exact.astype(dtype))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("normalized", [False, True])
def test_paints_have_a_number_for_each_channel(kind, normalized):
    fill = [kind.max_level, 3, 0, 200][: kind.channels]
    steps = [Cutout(2, fill), RandomErasing(1, value=9)]
    program = program_of(6, 7, "area", *steps, *([NormalizeImage(100, 50)] if normalized else []), kind=kind.name)
    paints = [(1, 2, 3, 5, 0), (2, 4, 6, 7, 1)]
    pixels = noise(kind, 6, 7)
    draw = draw_of(program, (0, 0, 6, 7), paints=paints)
    assert np.array_equal(make_one(program, stored_raw(pixels), draw), reference_image(pixels, draw, program).output)


@pytest.mark.parametrize("box", [(0, 0, 41, 30), (3, 5, 30, 22)])
def test_transparency_is_resized_as_pillow_does(box):
    """Pillow rounds colors times alpha to 8 bits and divides: colors of rather opaque pixels differ by levels."""
    kind = IMAGE_KINDS["rgba"]
    pixels = noise(kind, 41, 30)
    pixels[..., 3] = np.where(pixels[..., 3] < 100, 0, pixels[..., 3])
    program = program_of(11, 9, "antialias", kind="rgba")
    out = make_one(program, stored_raw(pixels), draw_of(program, box)).astype(int)
    top, left, height, width = box
    crop = Image.fromarray(pixels[top : top + height, left : left + width])
    expected = np.asarray(crop.resize((9, 11), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(out[..., 3] - expected[..., 3]).max() <= 1
    assert np.abs(out - expected)[expected[..., 3] > 60].max() <= 5
    naive = np.asarray(Image.merge("RGB", crop.split()[:3]).resize((9, 11), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(out[..., :3] - naive).max() > 20, "transparent pixels count as much as the others"


def test_transparent_pixels_are_preserved_where_nothing_is_resized():
    pixels = noise(IMAGE_KINDS["rgba"], 9, 8)
    pixels[..., 3] = 0
    program = program_of(4, 5, kind="rgba")
    assert np.array_equal(make_one(program, stored_raw(pixels), draw_of(program, (2, 1, 4, 5))), pixels[2:6, 1:6])
    smaller = make_one(program, stored_raw(pixels), draw_of(program, (0, 0, 9, 8)))
    assert not smaller.any()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("source", "box"), [((1, 1), (0, 0, 1, 1)), ((7, 5), (6, 4, 1, 1)), ((20, 33), (2, 1, 18, 32))]
)
def test_nothing_beyond_the_image_is_read(kind, source, box):
    pixels = noise(kind, *source)
    stored = stored_raw(pixels)
    stored = replace(stored, data=guarded(stored.data, alignment=1))
    for interpolation in INTERPOLATIONS:
        program = program_of(6, 5, interpolation, kind=kind.name)
        draw = draw_of(program, box)
        assert_close(make_one(program, stored, draw), reference_image(pixels, draw, program), kind)


@pytest.mark.parametrize("kind", IMAGE_KINDS.values(), ids=lambda kind: kind.name)
def test_a_size_that_does_not_fit_the_metadata_is_named_and_its_neighbors_are_whole(kind):
    good, program = stored_raw(noise(kind, 8, 9)), program_of(4, 4, kind=kind.name)
    nbytes = kind.pixel_size * 8 * 9
    wrong_sizes = [replace(good, data=np.zeros(size, np.uint8)) for size in (0, 1, nbytes - 1, nbytes + 1, nbytes * 2)]
    wrong = [*wrong_sizes, *(replace(good, height=height, width=width) for height, width in ((8, 10), (9, 9), (7, 9)))]
    out, bad = make(program, [good, *wrong, good], [draw_of(program, (0, 0, 4, 4))] * (2 + len(wrong)))
    assert {bad_image.row: bad_image.reason for bad_image in bad} == {
        row: f"it has {image.data.size} bytes, but the file's metadata have {image.height} x {image.width} pixels, "
        f"{kind.pixel_size * image.height * image.width} bytes"
        for row, image in enumerate(wrong, 1)
    }
    assert (out[1:-1].view(np.uint8) == UNTOUCHED).all()
    assert np.array_equal(out[0], out[-1])


@pytest.mark.parametrize("kind", IMAGE_KINDS.values(), ids=lambda kind: kind.name)
@pytest.mark.parametrize("box", [(-1, 0, 4, 4), (0, -1, 4, 4), (0, 0, 0, 4), (0, 0, 4, 0), (5, 0, 4, 4), (0, 6, 4, 4)])
def test_a_crop_box_that_is_no_part_of_the_image_is_named(box, kind):
    program = program_of(4, 4, kind=kind.name)
    out, bad = make(program, [stored_raw(noise(kind, 8, 9))], [draw_of(program, box)])
    assert [bad_image.reason for bad_image in bad] == ["its crop box is empty or passes its border"]
    assert (out.view(np.uint8) == UNTOUCHED).all()


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpegs_that_the_crop_decoder_refuses_become_gray_by_libjpeg_turbo(mode):
    picture = photo(40, 31)
    data = pillow_jpeg(picture, mode, progressive=True, quality=80)
    image = Image.open(io.BytesIO(data))
    image.draft("L", image.size)  # the brightness that a file of YCbCr has
    expected = np.asarray(image.convert("L")).astype(int)
    program = program_of(40, 31, kind="gray")
    assert np.abs(make_one(program, stored_jpeg(data))[..., 0] - expected).max() <= 2
    _, bad = make(program, [stored_jpeg(data, 41, 31)], [draw_of(program, (0, 0, 40, 31))])
    assert "40 x 31 pixels, but the file's metadata have 41 x 31" in bad[0].reason
    _, bad = make(program, [stored_jpeg(data[:300], 40, 31)], [draw_of(program, (0, 0, 40, 31))])
    assert "libjpeg-turbo" in bad[0].reason
