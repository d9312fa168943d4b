"""Images that keep their proportions and are padded: beside exact resizing, Pillow, and the same crop unpadded."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gpubeton._plan.fusion import compile_image_program
from gpubeton._plan.philox import BatchNumbers
from gpubeton.errors import PipelineError
from gpubeton.fields.image_decoders import FollowImage, PadImageDecoder
from gpubeton.fields.image_field import ImageField
from gpubeton.fields.rgb_image import PadRGBImageDecoder, RGBImageField
from gpubeton.loader import Loader
from gpubeton.transforms import Cutout, NormalizeImage, RandomBrightness, RandomHorizontalFlip, RandomTranslate
from tests.cpu.making import INTERPOLATIONS, draw_of, make_one, program_of, stored_jpeg, stored_raw, whole
from tests.cpu.pictures import noise, photo
from tests.reference.image import reference_image
from tests.reference.weights import resize
from tests.small_files import write

FILL = (114, 30, 200)

#: Source size and output size.
SHAPES = [
    ((1, 1), (5, 7)),
    ((60, 40), (32, 48)),
    ((40, 60), (32, 48)),
    ((100, 149), (1, 10)),  # the shorter side is rounded from 1.49 to one
    ((9, 200), (30, 31)),
    ((200, 9), (31, 30)),
    ((17, 23), (64, 64)),
    ((64, 48), (16, 12)),
    ((500, 750), (96, 96)),
]


def programs(size, source, *steps, decoder=PadRGBImageDecoder, kind="rgb", **arguments):
    decoder = decoder(size, **{"fill": FILL, **arguments})
    decoder.accept_field(ImageField(kind))
    return compile_image_program("image", 0, [decoder, *steps], *np.array(source)[:, None])


def drawn(program, source, seed=0):
    return program.draw(seed, 0, np.zeros(1, np.uint64), *np.array(source)[:, None])[0]


def made(program, stored, seed=0):
    return make_one(program, stored, drawn(program, (stored.height, stored.width), seed))


def letterboxed(image, size, interpolation, fill):
    """An exact resize in the middle of a plain canvas."""
    scale = min(size[0] / image.shape[0], size[1] / image.shape[1])
    inner = [max(1, int(np.floor(side * scale + 0.5 + 1e-9))) for side in image.shape[:2]]
    top, left = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    canvas = np.empty((*size, image.shape[2]))
    canvas[...] = fill
    canvas[top : top + inner[0], left : left + inner[1]] = resize(image, tuple(inner), interpolation)
    return canvas


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize(("source", "size"), SHAPES)
def test_an_image_is_resized_exactly_and_the_rest_is_filled(source, size, interpolation):
    rgb, program = noise(*source), programs(size, source, interpolation=interpolation)
    expected = letterboxed(rgb, size, interpolation, FILL)
    # Between the directions a level is rounded by a half, of which the weights of bicubic make up to 0.65.
    assert np.abs(made(program, stored_raw(rgb)) - expected).max() <= (1.2 if interpolation == "bicubic" else 1.01)
    assert np.array_equal(expected, reference_image(rgb, drawn(program, source), program).levels)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:2", "4:2:0", "gray"])
@pytest.mark.parametrize(("source", "size"), [((97, 64), (40, 45)), ((64, 97), (150, 131)), ((90, 91), (64, 200))])
def test_a_jpeg_has_the_pixels_of_the_same_crop_without_padding(source, size, interpolation, sampling):
    """To the bit: the taps of the image are those of an output of the size inside."""
    picture, buffer = Image.fromarray(photo(*source)), io.BytesIO()
    if sampling == "gray":
        picture.convert("L").save(buffer, "jpeg", quality=90)
    else:
        picture.save(buffer, "jpeg", quality=90, subsampling=sampling)
    for stored in (stored_jpeg(buffer.getvalue()), stored_raw(photo(*source))):
        program = programs(size, source, interpolation=interpolation)
        ((top, left, height, width),) = program.decoder.places(*np.array(source)[:, None]).tolist()
        inner = program_of(height, width, interpolation)
        expected = np.empty((*size, 3), np.uint8)
        expected[...] = FILL
        expected[top : top + height, left : left + width] = make_one(inner, stored, draw_of(inner, whole(stored)))
        assert np.array_equal(made(program, stored), expected)
        flipped = programs(size, source, RandomHorizontalFlip(1.0), interpolation=interpolation)
        assert np.array_equal(made(flipped, stored), expected[:, ::-1])


@pytest.mark.parametrize(
    ("interpolation", "resample", "tolerance"),
    [("nearest", Image.Resampling.NEAREST, 0), ("antialias", Image.Resampling.BILINEAR, 1)],
)
def test_pillows_resize_and_paste_give_the_same(interpolation, resample, tolerance):
    for source, size in (((301, 201), (64, 64)), ((120, 333), (80, 48)), ((31, 20), (90, 100)), ((50, 50), (20, 30))):
        rgb = photo(*source)
        program = programs(size, source, interpolation=interpolation)
        ((top, left, height, width),) = program.decoder.places(*np.array(source)[:, None]).tolist()
        canvas = Image.new("RGB", size[::-1], FILL)
        canvas.paste(Image.fromarray(rgb).resize((width, height), resample), (left, top))
        assert np.abs(made(program, stored_raw(rgb)).astype(int) - np.asarray(canvas)).max() <= tolerance


@settings(max_examples=60)
@given(
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.lists(
        st.sampled_from([RandomHorizontalFlip(1.0), RandomTranslate(5, (1, 2, 3)), Cutout(4, (7, 8, 9))]), max_size=5
    ),
    st.sampled_from(INTERPOLATIONS),
    st.integers(0, 2**32),
)
def test_flips_translates_and_holes_after_it_are_folded(source, size, steps, interpolation, seed):
    steps = [step for step in steps if not isinstance(step, Cutout) or min(size) >= 4]
    rgb, program = noise(*source), programs(size, source, *steps, interpolation=interpolation)
    expected = letterboxed(rgb, size, interpolation, FILL)[None]
    sample = np.zeros(1, np.uint64)
    for step, stream in program.folds:
        draw = step.draw(BatchNumbers(seed, 0, sample, stream), 1, program._image)
        expected = step.apply(expected, draw)
    draw = drawn(program, source, seed)
    assert np.array_equal(reference_image(rgb, draw, program).levels, expected[0])
    assert np.abs(make_one(program, stored_raw(rgb), draw) - expected[0]).max() <= 1.01


def test_padding_is_normalized_and_changes_color_as_pixels_do():
    source, size, rgb = (30, 60), (40, 40), photo(30, 60)
    levels = made(programs(size, source), stored_raw(rgb))
    normalize = NormalizeImage((120, 110, 100), (50, 60, 70), np.float32)
    result = made(programs(size, source, normalize), stored_raw(rgb))
    table = programs(size, source, normalize).table
    assert np.array_equal(result, table[levels, np.arange(3)])
    brighter = programs(size, source, RandomBrightness(0.5, 1.0))
    assert (brighter.max_paints, len(brighter.steps)) == (2, 1)


@pytest.mark.parametrize("kind", ["gray", "rgba", "gray16", "rgb16"])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_images_of_other_kinds_are_padded_too(kind, interpolation):
    for source, size in (((30, 61), (24, 24)), ((50, 20), (70, 33)), ((100, 149), (1, 10))):
        arguments = {"kind": kind, "decoder": PadImageDecoder, "fill": 9, "interpolation": interpolation}
        program = programs(size, source, RandomHorizontalFlip(1.0), **arguments)
        rng = np.random.default_rng(0)
        image = rng.integers(1, program.kind.max_level + 1, (*source, program.kind.channels)).astype(program.kind.dtype)
        levels = reference_image(image, drawn(program, source), program).levels
        assert np.abs(made(program, stored_raw(image)) - levels).max() <= 0.51
        assert (levels == 9).all(axis=2).any()


@settings(max_examples=300)
@given(*[st.integers(1, 400)] * 4)
def test_the_memory_for_taps_suffices_for_any_size(height, width, output_height, output_width):
    """The promise of `largest_scale`: nothing shrinks by more."""
    program = programs((output_height, output_width), (height, width))
    _, _, *inner = program.decoder.places(np.array([height]), np.array([width]))[0].tolist()
    assert inner[0] == output_height or inner[1] == output_width
    assert 1 <= inner[0] <= output_height
    assert 1 <= inner[1] <= output_width
    largest = max(height / inner[0], width / inner[1], 1)
    assert largest <= max(program.largest_scale(height, width), 1)


def test_a_mask_of_other_proportions_follows_with_its_fill_color(tmp_path):
    fields = dict.fromkeys(("image", "mask"), RGBImageField("raw"))
    mask = noise(300, 300) // 2
    path = write(tmp_path / "masks.beton", fields, [(noise(1000, 46), mask)])
    pipelines = {"image": [PadRGBImageDecoder((32, 32))], "mask": [FollowImage("image", fill=255)]}
    ((_, masks),) = Loader(path, 1, num_workers=1, pipelines=pipelines)
    assert (masks[0][:, [*range(15), *range(16, 32)]] == 255).all()
    assert np.array_equal(masks[0][:, 15:16], resize(mask, (32, 1), "nearest"))


@pytest.mark.parametrize(("kind", "fill"), [("rgb", 256), ("rgb", -1), ("rgb", (1, 2, 3, 4)), ("gray", (1, 2, 3))])
def test_a_color_that_does_not_fit_is_refused(kind, fill):
    with pytest.raises(PipelineError, match="fill"):
        programs((8, 8), (9, 9), decoder=PadImageDecoder, kind=kind, fill=fill)
