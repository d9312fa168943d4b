from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import Compiler, Operation, State
from gpubeton.transforms import (
    NormalizeImage,
    RandomHorizontalFlip,
    RandomResizedCrop,
    ToTensor,
    ToTorchImage,
)
from tests.apply import LAYOUTS, apply, as_nhwc_array, in_layout
from tests.reference.weights import resize
from tests.small_files import picture

IMAGES = np.stack([picture(number, 50, 70) for number in range(3)])
LEVELS = State(True, torch.device("cpu"), (50, 70, 3), np.dtype("uint8"))
CROP = RandomResizedCrop((0.1, 0.9), (0.7, 1.4), size=20)


class Nothing(Operation):
    """A user's operation: nothing after it is fused."""

    def generate_code(self):
        return lambda batch, _memory: batch

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False), None


def images(path, *operations, **arguments):
    pipelines = {"image": list(operations), **dict.fromkeys(["label", "weight", "note", "info", "vector"])}
    loader = Loader(path, 8, num_workers=1, seed=5, drop_last=False, pipelines=pipelines, **arguments)
    return np.concatenate([np.asarray(batch) for (batch,) in loader])


def resized(images, boxes, size):
    return RandomResizedCrop((0.1, 0.9), (0.7, 1.4), size).apply(images, np.array(boxes, np.int32))


@pytest.mark.parametrize(
    ("box", "size"),
    [
        ((0, 0, 50, 70), 20),
        ((3, 5, 40, 60), 20),
        ((3, 5, 41, 37), 36),
        ((3, 5, 41, 37), 13),
        ((7, 11, 20, 20), 20),
        ((7, 11, 9, 13), 20),  # grows
        ((7, 9, 9, 60), 20),  # grows down, shrinks across
        ((2, 9, 45, 6), 15),  # grows across, shrinks down
        ((7, 9, 35, 28), 45),  # new pixels end where old ones do, but for rounding
        ((7, 9, 35, 28), 36),
        ((0, 0, 1, 1), 4),
        ((49, 69, 1, 1), 1),
    ],
)
def test_levels_are_those_of_inter_area(box, size):
    result = resized(IMAGES[:1], [box], size)[0]
    top, left, height, width = box
    exact = resize(IMAGES[0, top : top + height, left : left + width], (size, size), "area")
    assert np.abs(result - exact).max() <= 0.5 + 1e-4


def test_a_mean_of_four_is_rounded_up_at_halves_and_other_means_to_even():
    levels = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], np.uint8)[None, :, :, None]
    image = np.repeat(levels, 3, axis=3)
    halved, quartered = (resized(image, [[0, 0, 4, 4]], size) for size in (2, 1))
    assert (halved.max(), halved.min(), quartered.max()) == (1, 1, 0)


def test_parts_are_chosen_as_the_decoder_of_that_name_chooses_them():
    numbers = np.random.default_rng(0).random((3, 40))

    def uniform(count, rows=None):
        return numbers[:, :count] if rows is None else numbers[rows, :count]

    decoder = RandomResizedCropRGBImageDecoder((20, 20), CROP.scale, CROP.ratio)
    expected = decoder.boxes(np.full(3, 50), np.full(3, 70), uniform)
    assert CROP.draw(uniform, 3, LEVELS).tolist() == expected.tolist()


@pytest.mark.parametrize("before", [[], [ToTensor()], [ToTensor(), ToTorchImage()]])
def test_arrays_and_tensors_keep_their_kind_and_their_channels_place(before):
    result = apply([*before, CROP], IMAGES.copy())
    assert isinstance(result, torch.Tensor) == bool(before)
    if len(before) == 2:
        assert result.shape == (3, 3, 20, 20)
        assert result.is_contiguous(memory_format=torch.channels_last)
        result = result.permute(0, 2, 3, 1)
    assert np.array_equal(np.asarray(result), apply([CROP], IMAGES))


def test_directly_after_the_decoder_only_the_crop_is_decoded(raw_photos, capsys):
    rest = [RandomHorizontalFlip(), NormalizeImage([120] * 3, [60] * 3, np.float32), ToTensor(), ToTorchImage()]
    pixels = images(raw_photos, SimpleRGBImageDecoder(), CROP, *rest)
    decoder = RandomResizedCropRGBImageDecoder((20, 20), CROP.scale, CROP.ratio)
    assert np.array_equal(pixels, images(raw_photos, decoder, *rest))
    pipelines = {"image": [CROP, *rest], "label": None}
    loader = Loader(raw_photos, 8, num_workers=1, pipelines=pipelines)
    loader.explain()
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  Random")]
    assert [line[-1] for line in lines] == ["fused", "fused"]


def test_after_other_operations_the_same_crops_are_taken_from_decoded_images(raw_photos):
    fused = images(raw_photos, SimpleRGBImageDecoder(), CROP)
    late = images(raw_photos, SimpleRGBImageDecoder(), Nothing(), CROP)
    difference = np.abs(fused.astype(int) - late)
    assert difference.max() <= 1
    assert (difference > 0).any()  # they are made in different ways


def test_a_part_of_a_resized_image_is_not_decoded_instead_of_it(raw_photos):
    center = CenterCropRGBImageDecoder((40, 40), 0.5)
    pixels = images(raw_photos, center, RandomResizedCrop((1, 1), (1, 1), 40))
    assert np.abs(pixels.astype(int) - images(raw_photos, center)).max() <= 1


def test_a_crop_after_a_flip_is_taken_from_the_flipped_image(raw_photos):
    flip, crop = RandomHorizontalFlip(1.0), RandomResizedCrop((0.2, 0.2), (1, 1), 16)
    flipped = images(raw_photos, SimpleRGBImageDecoder(), flip, crop)
    plain = images(raw_photos, SimpleRGBImageDecoder(), flip, Nothing(), crop)
    assert np.array_equal(flipped, plain)


BOXES = np.array(
    # The second is halved, where its width is; the last two grow, one of them along one side.
    [[0, 0, 50, 70], [3, 5, 40, 40], [3, 5, 41, 37], [7, 11, 20, 20], [2, 9, 45, 6], [49, 69, 1, 1]],
    np.int32,
)


@pytest.mark.parametrize("interpolation", ["area", "nearest"])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_of_levels_are_resized_without_compiled_code_to_the_same_bit(
    monkeypatch, layout, dtype, channels, interpolation
):
    """What a GPU runs, on the CPU; arrays take that way, too, while compilation is switched off."""
    most = np.iinfo(dtype).max
    images = np.random.default_rng(1).integers(0, most + 1, (6, 50, 70, channels)).astype(dtype)
    images[:, :, :35] //= most  # halves, which are rounded in one way or another
    crop = RandomResizedCrop((0.1, 0.9), (0.7, 1.4), size=20)
    crop.interpolation = interpolation
    compiled = crop.apply(images, BOXES)
    monkeypatch.setattr(Compiler, "is_enabled", False)
    result = crop.apply(in_layout(images, layout), BOXES)
    assert isinstance(result, np.ndarray) == (layout == "numpy")
    assert np.array_equal(as_nhwc_array(result, layout), compiled)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_compiled_code_rounds_each_product_and_each_sum_as_tensors_do(dtype, monkeypatch):
    """Sums near a half come out on one side or the other if anything is rounded once instead of twice."""
    rng = np.random.default_rng(3)
    # More pixels than tensors resize at once.
    images = rng.integers(0, np.iinfo(dtype).max + 1, (2600, 40, 45, 1)).astype(dtype)
    sides = rng.integers(1, [41, 46], (2600, 2))
    boxes = np.hstack([rng.integers(0, [40, 45] - sides + 1), sides]).astype(np.int32)
    compiled = {size: resized(images, boxes, size) for size in (7, 12, 28)}
    monkeypatch.setattr(Compiler, "is_enabled", False)
    for size, expected in compiled.items():
        assert np.array_equal(resized(torch.from_numpy(images), boxes, size), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_floating_point_numbers_are_means_of_areas_that_are_not_rounded(layout, dtype):
    values = np.random.default_rng(2).standard_normal((6, 50, 70, 3))
    batch = in_layout(values, layout).to(dtype)
    originals = as_nhwc_array(batch.to(torch.float64), layout)
    result = CROP.apply(batch, BOXES)
    assert result.dtype == dtype
    if layout != "tensor":
        assert result.is_contiguous(memory_format=torch.channels_last)
    result = as_nhwc_array(result.to(torch.float64), layout)
    # Rounded once to the type; before that, sums of not a hundred products in single precision and such weights.
    tolerance = torch.finfo(dtype).eps * np.abs(originals).max() + 200 * 2.0**-24 * np.abs(originals).max()
    for image, (top, left, height, width), resized in zip(originals, BOXES.tolist(), result, strict=True):
        exact = resize(image[top : top + height, left : left + width], (20, 20), "area")
        assert np.abs(resized - exact).max() <= tolerance


def test_pixels_outside_the_crop_do_not_change_it():
    batch = torch.full((1, 50, 70, 3), torch.inf)
    batch[:, 10:25, 30:44] = 1.5
    other = torch.ones((1, 50, 70, 3))
    result = CROP.apply(torch.cat([batch, other]), np.array([[10, 30, 15, 14], [0, 0, 50, 70]], np.int32))
    assert (result[0] == 1.5).all()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (replace(LEVELS, dtype=np.dtype("int16")), "works on levels, uint8 or uint16, and on .* images are int16. Put"),
        (State(False, torch.device("cuda:0"), (50, 70, 3), torch.int64), "images are int64"),
        (replace(LEVELS, shape=(1,)), "works on images"),
    ],
)
def test_states_other_than_images_of_levels_or_floats_are_refused(state, message):
    with pytest.raises(PipelineError, match=message):
        CROP.declare_state_and_memory(state)
