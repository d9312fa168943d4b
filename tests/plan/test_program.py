from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpubeton._engine.run_batch_ops import finish_images
from gpubeton._plan.fusion import compile_image_program
from gpubeton.errors import PipelineError
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
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
from tests.reference.image import reference_image

H, W = 6, 5
IMAGES = np.random.default_rng(0).integers(0, 256, (3, H, W, 3), np.uint8)
SIZES = np.full(3, H), np.full(3, W)
SAMPLES = np.array([2, 9, 4], np.uint64)
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
EXACT = (IMAGES.astype(np.float64) - MEAN) / STD
HALVES = EXACT.astype(np.float16)


def program_of(*operations):
    return compile_image_program("image", 2, operations, *SIZES)


def executed(program):
    """What an executor writes for IMAGES."""
    draws = program.draw(7, 3, SAMPLES, *SIZES)
    return np.stack([reference_image(*pair, program).output for pair in zip(IMAGES, draws, strict=True)])


def finished(*operations):
    program = program_of(*operations)
    result = finish_images(program, executed(program), 7, 3, SAMPLES)
    assert tuple(result.shape[1:]) == program.state.shape
    assert result.dtype == program.state.dtype
    return result


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
    result = finished(*operations)
    assert result.dtype is dtype
    assert result.stride() == strides
    result = result.permute(0, 2, 3, 1) if strides in {CHANNELS_LAST, NCHW} else result
    assert np.array_equal(result.numpy(), values)


def test_without_totensor_the_batch_is_an_array():
    assert np.array_equal(finished(RandomHorizontalFlip(0)), IMAGES)
    assert np.array_equal(finished(normalize()), HALVES.view(np.int16))


@pytest.mark.parametrize(
    "operations",
    [
        [normalize(torch.bfloat16)],
        [normalize("bfloat16"), ToTensor(), ToTorchImage()],
        [ToTensor(), ToTorchImage(), normalize(torch.bfloat16)],
    ],
)
def test_bfloat16_output_is_a_tensor_after_any_operations(operations):
    program = program_of(*operations)
    assert (program.dtype, program.table.dtype) == ("bfloat16", np.uint16)
    result = finished(*operations)
    expected = torch.from_numpy(EXACT).to(torch.bfloat16)
    assert torch.equal(result if len(operations) == 1 else result.permute(0, 2, 3, 1), expected)


def test_finishing_copies_nothing():
    program = program_of(normalize(), ToTensor(), ToTorchImage())
    array = executed(program)
    assert finish_images(program, array, 0, 0, SAMPLES).data_ptr() == array.ctypes.data


GEOMETRY = [RandomHorizontalFlip(), Cutout(3, (1, 2, 3)), RandomTranslate(2, (4, 5, 6))]


@pytest.mark.parametrize(
    "operations",
    [
        [*GEOMETRY, normalize(), ToTensor(), ToTorchImage()],
        [*GEOMETRY, ToTensor(), ToTorchImage(), normalize()],
        [ToTensor(), GEOMETRY[0], ToTorchImage(), *GEOMETRY[1:], normalize()],
        [*GEOMETRY[:2], normalize(), GEOMETRY[0], ToTensor(), ToTorchImage()],
    ],
)
def test_all_is_fused_with_any_views_between(operations):
    program = program_of(*operations)
    assert not [step for step in program.ops.steps if not isinstance(step.operation, ToTensor | ToTorchImage)]
    assert len(program.steps) == 3
    assert program.dtype == "float16"


def test_erasing_is_fused_before_and_after_colors_and_not_after_normalization():
    program = program_of(RandomErasing(value=(9.8, 8.5, 7)), RandomGrayscale(), RandomErasing())
    assert (len(program.ops.steps), program.early_paints, program.max_paints) == (0, 1, 2)
    assert program.fills.tolist() == [[9, 8, 7], [0, 0, 0]]
    late = program_of(normalize(np.float32), RandomErasing(value=-0.5))
    assert (len(late.steps), len(late.ops.steps)) == (0, 1)


class Plain(Operation):
    """Does nothing that a program knows of, and so ends fusion."""

    def generate_code(self):
        return lambda batch, _memory: batch

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False), None


@pytest.mark.parametrize("position", range(5))
def test_where_fusion_ends_does_not_show_in_the_result(position):
    operations = [*GEOMETRY, RandomHorizontalFlip(), normalize()]
    expected = finished(*operations)
    program = program_of(*operations[:position], Plain(), *operations[position:])
    assert len(program.steps) == position
    assert len(program.ops.steps) == 6 - position
    assert np.array_equal(finished(*operations[:position], Plain(), *operations[position:]), expected)


def test_paints_after_normalizing_are_not_levels_and_are_not_fused():
    program = program_of(normalize(np.float32), Cutout(3, (-1, -1, -1)))
    assert program.steps == ()
    assert (finished(normalize(np.float32), Cutout(3, (-1, -1, -1))) == -1).sum() == 3 * 27


@pytest.mark.filterwarnings("ignore:NormalizeImage. results in int32")
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_a_type_that_executors_do_not_write_is_left_to_the_tail(dtype):
    program = program_of(normalize(dtype), ToTensor())
    assert (program.dtype, program.table) == ("uint8", None)
    assert [type(step.operation) for step in program.ops.steps] == [NormalizeImage, ToTensor]


def test_an_executor_finds_all_it_needs():
    crop = RandomResizedCropRGBImageDecoder((8, 9), interpolation="antialias")
    program = program_of(crop, Cutout(2), RandomTranslate(1, (9, 9, 9)), Cutout(3), normalize())
    assert (program.height, program.width, program.interpolation) == (8, 9, "antialias")
    assert program.max_paints == 4
    assert program.fills.dtype == np.uint8
    assert program.fills.tolist() == [[0, 0, 0], [9, 9, 9]]
    assert np.array_equal(program.table, normalize().table())
    plain = program_of()
    assert (plain.max_paints, plain.fills.shape, plain.table, plain.dtype) == (0, (1, 3), None, "uint8")


def test_random_operations_are_numbered_over_the_whole_pipeline():
    crop = RandomResizedCropRGBImageDecoder((4, 4))
    program = program_of(crop, ToTensor(), RandomHorizontalFlip(), Plain(), Cutout(1))
    assert (program.rng_stream, [rng_stream for _, rng_stream in program.steps]) == (0x20000, [0x20001])
    assert program.ops.steps[-1].rng_stream == 0x20002
    centered = program_of(CenterCropRGBImageDecoder((4, 4), 1), RandomHorizontalFlip())
    assert (centered.rng_stream, [rng_stream for _, rng_stream in centered.steps]) == (None, [0x20000])


def test_two_programs_may_share_one_pipeline_list():
    pipeline = [RandomResizedCropRGBImageDecoder((4, 4)), RandomHorizontalFlip(), ToTensor()]
    copy = list(pipeline)
    first = compile_image_program("image", 0, pipeline, *SIZES)
    pipeline[0].output_size = (2, 2)
    second = compile_image_program("image", 0, pipeline, *SIZES)
    assert pipeline == copy
    assert (first.height, first.decoder.output_size, second.height) == (4, (4, 4), 2)


def test_explain_shows_where_operations_run_in_one_column():
    program = program_of(RandomHorizontalFlip(), NormalizeImage([123.675] * 3, [58.395] * 3, "f2"))
    lines = program.explain().splitlines()[1:]
    assert {line.rindex("  fused") for line in lines} == {2 + 60}


def test_explain_has_a_line_for_each_operation():
    program = program_of(RandomHorizontalFlip(), ToTensor(), Plain(), Cutout(1), torch.nn.ReLU())
    head, *lines = program.explain().splitlines()
    assert head == "image: 6 x 5, area, written as uint8"
    assert [line.split()[0].split("(")[0] for line in lines[:3]] == [
        "SimpleRGBImageDecoder",
        "RandomHorizontalFlip",
        "ToTensor",
    ]
    ends = [
        "fused",
        "fused",
        "view",
        "after, plain Python",
        "after, on the finished batch",
        "after, on the finished batch",
    ]
    assert all(line.endswith(end) for line, end in zip(lines, ends, strict=True))


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
        program_of(*operations)


def test_images_of_several_sizes_are_refused_with_the_field():
    with pytest.raises(PipelineError, match="'image': SimpleRGBImageDecoder "):
        compile_image_program("image", 0, [], np.array([1, 2]), np.array([1, 2]))
