from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.pipeline.pixel_type import PIXEL_TYPES, dtype_name, is_torch_dtype, pixel_type, torch_dtype


@pytest.mark.parametrize("dtype", [np.float16, np.dtype("float16"), "float16", "<f2", torch.float16, torch.half])
def test_all_spellings_of_a_type_have_one_name(dtype):
    assert dtype_name(dtype) == "float16"
    assert torch_dtype(dtype) is torch.float16


def test_bfloat16_is_known_though_numpy_has_none():
    assert dtype_name(torch.bfloat16) == dtype_name("bfloat16") == "bfloat16"
    assert torch_dtype("bfloat16") is torch.bfloat16


def test_only_torchs_types_are_torchs():
    assert is_torch_dtype(torch.uint8)
    assert not any(map(is_torch_dtype, (np.uint8, np.dtype("uint8"), "uint8", int)))


def test_a_type_that_torch_does_not_have_is_named():
    with pytest.raises(TypeError, match="'str64'"):
        torch_dtype(np.dtype("<U2"))


@pytest.mark.parametrize("name", [*PIXEL_TYPES, "uint8", "float64"])
def test_pixels_come_back_from_a_tensor_over_the_same_memory(name):
    kind = pixel_type(name)
    array = kind.encode(np.array([0.0, 1.0, 2.5, 200.3]))
    tensor = kind.tensor(array)
    assert (array.dtype, tensor.dtype) == (kind.dtype, torch_dtype(name))
    assert tensor.data_ptr() == array.ctypes.data
    back = kind.array(tensor)
    assert (back.dtype, back.tolist()) == (array.dtype, array.tolist())


@pytest.mark.parametrize("name", PIXEL_TYPES)
def test_numbers_are_rounded_as_torch_does(name):
    values = np.random.default_rng(0).normal(size=10_000)
    kind = pixel_type(name)
    assert torch.equal(kind.tensor(kind.encode(values)), torch.from_numpy(values).float().to(torch_dtype(name)))
