"""What the operations of a pipeline make of images, wherever they run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.pipeline import Operation
from gpubeton.transforms import (
    Convert,
    Cutout,
    NormalizeImage,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomTranslate,
    ToDevice,
    ToTensor,
    ToTorchImage,
    View,
)
from tests.apply import explained, load

H, W = 6, 5
IMAGES = np.random.default_rng(0).integers(0, 256, (3, H, W, 3), np.uint8)
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
EXACT = (IMAGES.astype(np.float64) - MEAN) / STD
HALVES = EXACT.astype(np.float16)


def where(*operations):
    """Where each operation after the decoder runs, in a word."""
    return [place.split(",")[0] for _, place in explained(operations, IMAGES)[1:]]


def normalize(dtype=np.float16):
    return NormalizeImage(MEAN, STD, dtype)


NHWC = (H * W * 3, W * 3, 3, 1)
CHANNELS_LAST = (H * W * 3, 1, W * 3, 3)
NCHW = (H * W * 3, H * W, W, 1)


@pytest.mark.parametrize(
    ("operations", "dtype", "strides", "values"),
    [
        ([], torch.uint8, NHWC, IMAGES),
        ([ToTensor()], torch.uint8, NHWC, IMAGES),
        ([ToTensor(), ToTorchImage()], torch.uint8, CHANNELS_LAST, IMAGES),
        ([ToTensor(), ToTorchImage(channels_last=False)], torch.uint8, NCHW, IMAGES),
        ([normalize(), ToTensor()], torch.int16, NHWC, HALVES.view(np.int16)),
        ([normalize(), ToTensor(), ToTorchImage()], torch.float16, CHANNELS_LAST, HALVES),
        (
            [normalize(), ToTensor(), ToTorchImage(convert_back_int16=False)],
            torch.int16,
            CHANNELS_LAST,
            HALVES.view(np.int16),
        ),
        ([normalize(), ToTensor(), ToTorchImage(channels_last=False)], torch.float16, NCHW, HALVES),
        ([normalize(np.float32), ToTensor(), ToTorchImage()], torch.float32, CHANNELS_LAST, EXACT.astype(np.float32)),
        ([normalize(np.float64), ToTensor(), ToTorchImage()], torch.float64, CHANNELS_LAST, EXACT),
        ([normalize(), View(np.float16), ToTensor(), ToTorchImage()], torch.float16, CHANNELS_LAST, HALVES),
        ([ToTensor(), ToTorchImage(), normalize()], torch.float16, CHANNELS_LAST, HALVES),
        ([ToTensor(), ToDevice("cpu"), ToTorchImage(), normalize()], torch.float16, CHANNELS_LAST, HALVES),
        ([ToTensor(), ToTorchImage(channels_last=False), normalize()], torch.float16, NCHW, HALVES),
        ([ToTensor(), normalize()], torch.float16, NHWC, HALVES),
        ([ToTensor(), ToTorchImage(), normalize(np.float64)], torch.float64, CHANNELS_LAST, EXACT),
        ([ToTensor(), ToTorchImage(), Convert(torch.float16)], torch.float16, CHANNELS_LAST, IMAGES.astype(np.float16)),
        ([ToTensor(), ToTorchImage(), torch.nn.Identity()], torch.uint8, CHANNELS_LAST, IMAGES),
    ],
)
def test_type_strides_and_values_are_ffcvs(operations, dtype, strides, values):
    result = load(operations, IMAGES)
    assert result.dtype is dtype
    assert result.stride() == strides
    result = result.permute(0, 2, 3, 1) if strides in {CHANNELS_LAST, NCHW} else result
    assert np.array_equal(result.numpy(), values)


def test_without_totensor_the_batch_is_an_array():
    assert np.array_equal(load([RandomHorizontalFlip(0)], IMAGES), IMAGES)
    assert np.array_equal(load([normalize()], IMAGES), HALVES.view(np.int16))


@pytest.mark.parametrize(
    "operations",
    [
        [normalize(torch.bfloat16)],
        [normalize("bfloat16"), ToTensor(), ToTorchImage()],
        [ToTensor(), ToTorchImage(), normalize(torch.bfloat16)],
    ],
)
def test_bfloat16_output_is_a_tensor_after_any_operations(operations):
    result = load(operations, IMAGES)
    expected = torch.from_numpy(EXACT).to(torch.bfloat16)
    assert torch.equal(result if len(operations) == 1 else result.permute(0, 2, 3, 1), expected)


GEOMETRY = [RandomHorizontalFlip(), Cutout(3, (1, 2, 3)), RandomTranslate(2, (4, 5, 6))]


@pytest.mark.parametrize(
    "operations",
    [
        [*GEOMETRY, normalize(), ToTensor(), ToTorchImage()],
        [*GEOMETRY, ToTensor(), ToTorchImage(), normalize()],
        [ToTensor(), GEOMETRY[0], ToTorchImage(), *GEOMETRY[1:], normalize()],
        [*GEOMETRY[:2], normalize(), GEOMETRY[0], ToTensor(), ToTorchImage()],
        [RandomErasing(value=(9.8, 8.5, 7)), RandomGrayscale(), RandomErasing(), normalize()],
    ],
)
def test_all_is_fused_with_any_views_between(operations):
    expected = ["view" if isinstance(operation, ToTensor | ToTorchImage) else "fused" for operation in operations]
    assert where(*operations) == expected


class Plain(Operation):
    """Does nothing, and so ends fusion."""

    def generate_code(self):
        return lambda batch, _memory: batch

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False), None


@pytest.mark.parametrize("position", range(5))
def test_where_fusion_ends_does_not_show_in_the_result(position):
    operations = [RandomResizedCropRGBImageDecoder((H, W)), *GEOMETRY, RandomHorizontalFlip(), normalize()]
    interrupted = [*operations[: position + 1], Plain(), *operations[position + 1 :]]
    assert where(*interrupted) == ["fused"] * position + ["after"] * (6 - position)
    assert np.array_equal(load(interrupted, IMAGES), load(operations, IMAGES))


@pytest.mark.parametrize("paint", [Cutout(3, (-1, -1, -1)), RandomErasing(1, value=-1)])
def test_paints_after_normalizing_are_not_levels_and_are_not_fused(paint):
    operations = [normalize(np.float32), paint]
    assert where(*operations)[1] == "after"
    assert (load(operations, IMAGES) == -1).all(axis=3).any(axis=(1, 2)).all()


@pytest.mark.filterwarnings("ignore:NormalizeImage. results in int32")
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_a_type_that_is_not_written_directly_is_made_afterwards(dtype):
    assert where(normalize(dtype), ToTensor()) == ["after", "after"]


def test_explain_has_a_line_for_each_operation():
    operations = [RandomHorizontalFlip(), ToTensor(), Plain(), Cutout(1), torch.nn.ReLU()]
    assert explained(operations, IMAGES) == [
        ("SimpleRGBImageDecoder", "fused"),
        ("RandomHorizontalFlip", "fused"),
        ("ToTensor", "view"),
        ("Plain", "after, plain Python"),
        ("Cutout", "after, on the finished batch"),
        ("ModuleWrapper", "after, on the finished batch"),
    ]


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([ToTorchImage()], "field 'image': ToTorchImage works on torch tensors"),
        ([normalize(), normalize()], "field 'image': NormalizeImage reads levels"),
        ([Cutout(7)], "field 'image': Cutout: a square of 7 pixels"),
        ([torch.nn.ReLU()], "field 'image': ReLU is a torch module"),
        ([ToTensor], "field 'image': operation 0"),
    ],
)
def test_operations_that_do_not_fit_are_refused_with_the_field(operations, message):
    with pytest.raises(PipelineError, match=message):
        load(operations, IMAGES)
