from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.pipeline import State
from gpubeton.transforms import NormalizeImage
from tests.apply import LAYOUTS, as_nhwc_array, in_layout

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
LEVELS = np.arange(256, dtype=np.uint8)[None, :, None, None].repeat(4, axis=2).repeat(3, axis=3)
EXACT = (LEVELS.astype(np.float64) - MEAN) / STD
STATE = State(True, "cpu", (256, 4, 3), np.dtype("uint8"))
TENSOR = State(False, "cpu", (256, 4, 3), torch.uint8)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, torch.float32, "float64"])
def test_the_result_is_the_exact_one_rounded_once(layout, dtype):
    normalize = NormalizeImage(MEAN, STD, dtype)
    result = as_nhwc_array(normalize.apply(in_layout(LEVELS, layout)), layout)
    if layout == "numpy" and normalize.type == "float16":
        assert result.dtype == np.int16
        result = result.view(np.float16)
    assert result.dtype == normalize.type
    assert np.array_equal(result, EXACT.astype(normalize.type))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bfloat16_is_rounded_as_in_torch(layout):
    result = NormalizeImage(MEAN, STD, torch.bfloat16).apply(in_layout(LEVELS, layout))
    assert result.dtype is torch.bfloat16
    if layout in {"channels_last", "nchw"}:
        result = result.permute(0, 2, 3, 1)
    assert torch.equal(result, torch.from_numpy(EXACT).to(torch.bfloat16))


@pytest.mark.parametrize("seed", range(3))
def test_the_bits_of_the_bfloat16_table_are_torchs_for_any_mean_and_std(seed):
    generator = np.random.default_rng(seed)
    normalize = NormalizeImage(generator.uniform(0, 255, 3), generator.uniform(1e-3, 300, 3), "bfloat16")
    exact = (np.arange(256.0)[:, None] - normalize.mean) / np.array(normalize.std)
    expected = torch.from_numpy(exact).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(normalize.table(), expected)


def test_bfloat16_ties_go_to_even():
    bits = NormalizeImage([-0.5] * 3, [1] * 3, "bfloat16").table()[128:, 0]  # 128.5, 129.5, ...: one bit too many
    assert (bits % 2 == 0).all()


def test_channels_last_stays_channels_last_and_the_levels_stay_as_they_are():
    batch = in_layout(LEVELS, "channels_last")
    assert NormalizeImage(MEAN, STD).apply(batch).is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(as_nhwc_array(batch, "channels_last"), LEVELS)


@pytest.mark.parametrize(
    ("state", "dtype", "expected"),
    [
        (STATE, np.float16, np.dtype("int16")),
        (STATE, np.float32, np.dtype("float32")),
        (STATE, torch.bfloat16, torch.bfloat16),
        (TENSOR, np.float16, torch.float16),
        (TENSOR, np.float64, torch.float64),
        (TENSOR, "bfloat16", torch.bfloat16),
    ],
)
def test_halves_are_carried_as_int16_only_before_totensor(state, dtype, expected):
    after, memory = NormalizeImage(MEAN, STD, dtype).declare_state_and_memory(state)
    assert after.dtype == expected
    assert after.jit_mode == isinstance(expected, np.dtype)
    assert memory is None


def test_normalizing_twice_is_refused():
    normalize = NormalizeImage(MEAN, STD)
    with pytest.raises(PipelineError, match="images are int16"):
        normalize.declare_state_and_memory(normalize.declare_state_and_memory(STATE)[0])


@pytest.mark.parametrize(
    ("mean", "std", "dtype", "message"),
    [
        (MEAN, STD, "int8", "whole numbers.*float"),
        (0, 1, np.int8, "whole numbers.*float"),
        (128, 1, "uint8", "whole numbers.*float"),
        ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225], np.float32, r"std is \(0.229, 0.224, 0.225\).*255"),
    ],
)
def test_types_that_hold_no_result_exactly_and_statistics_from_0_to_1_are_a_warning(mean, std, dtype, message):
    with pytest.warns(UserWarning, match=message):
        NormalizeImage(mean, std, dtype)


def test_whole_numbers_that_hold_all_results_are_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        normalize = NormalizeImage([128] * 3, [1], np.int16)
    assert normalize.table()[:, 0].tolist() == list(range(-128, 128))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_arrays_of_any_strides_are_normalized_into_the_memory_that_is_given(dtype):
    normalize, inputs = NormalizeImage(MEAN, STD, dtype), []

    def take(shape, dtype):
        inputs.append(np.full(shape, 7, dtype))
        return inputs[-1]

    result = normalize.apply(LEVELS[:, ::-2, ::3], take=take)
    assert np.shares_memory(result, inputs[0])
    assert np.array_equal(result.view(dtype), EXACT[:, ::-2, ::3].astype(dtype))


@pytest.mark.parametrize(
    ("name", "mean", "std"), [("mean", [0.485] * 3, [58.0] * 3), ("std", [124.0] * 3, [0.229] * 3)]
)
def test_one_of_mean_and_std_for_images_from_0_to_1_is_warned_of(name, mean, std):
    with pytest.warns(UserWarning, match=f"{name} is .* for images from 0 to 1"):
        NormalizeImage(mean, std, np.float32)
