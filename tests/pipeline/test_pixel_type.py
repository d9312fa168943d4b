from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.pipeline.pixel_type import PIXEL_TYPES, dtype_name, is_torch_dtype, pixel_type, torch_dtype


def test_all_spellings_of_a_type_have_one_name():
    for dtype in (np.float16, np.dtype("float16"), "float16", "<f2", torch.float16, torch.half):
        assert (dtype_name(dtype), torch_dtype(dtype)) == ("float16", torch.float16)
    for dtype in (torch.bfloat16, "bfloat16"):
        assert (dtype_name(dtype), torch_dtype(dtype)) == ("bfloat16", torch.bfloat16)
    types = torch.uint8, np.uint8, np.dtype("uint8"), "uint8", int
    assert [is_torch_dtype(dtype) for dtype in types] == [True] + [False] * 4
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
