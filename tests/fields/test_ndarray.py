from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from gpubeton.errors import FieldArgumentsError
from gpubeton.fields import NDArrayField, TorchTensorField
from gpubeton.fields.decoders import NDArrayDecoder
from gpubeton.pipeline.state import State
from tests.fields.memory import encode, gather_from

CODES = ["?", "u1", "i1", "<u2", ">i2", "<i4", ">u4", "<i8", "<f2", ">f2", "<f4", ">f8", "<f8", "<c8", ">c16"]


def decode(field, regions):
    decoder = NDArrayDecoder()
    decoder.accept_field(field)
    decoder.accept_extent(field.element_size)
    state, _ = decoder.declare_state_and_memory(State(jit_mode=True, device="cpu", shape=(), dtype=None))
    decoded = decoder.decode(np.zeros(len(regions), "<u8"), gather_from(regions))
    assert (state.shape, state.dtype) == (decoded.shape[1:], decoded.dtype)
    return decoded


@given(st.data())
def test_arrays_come_back_in_the_byte_order_of_the_machine(data):
    dtype, shape = data.draw(st.sampled_from(CODES)), data.draw(array_shapes(min_dims=0, max_dims=4, max_side=4))
    value = data.draw(arrays(np.dtype(dtype), shape))
    field = NDArrayField(dtype, shape)
    row, region = encode(field, value)
    assert (row, len(region)) == (1000, value.nbytes)
    read = NDArrayField.from_binary(np.frombuffer(field.to_binary().tobytes(), np.uint8))
    decoded = decode(read, [region, region])
    assert decoded.dtype.isnative
    assert decoded.shape == (2, *shape)
    assert decoded[1].tobytes() == value.astype(value.dtype.newbyteorder("=")).tobytes()
    if dtype not in ("<u2", ">u4"):  # which torch has had since 2.3
        torch.from_numpy(decoded)


def test_an_array_is_stored_in_c_order_for_all_sources_and_axes_of_length_one_may_differ():
    value = np.arange(6, dtype="<i4").reshape(2, 3)
    for array in (value, np.asfortranarray(value), value.astype(">i4"), torch.from_numpy(value)):
        assert encode(NDArrayField("<i4", (2, 3)), array)[1] == value.tobytes()
    for shape in ((5,), (1, 5), (5, 1)):
        assert encode(NDArrayField("<f4", (1, 5)), np.ones(shape, "<f4"))[1] == np.ones(5, "<f4").tobytes()
    assert encode(NDArrayField("<f4", (1,)), np.float32(3))[1] == np.float32(3).tobytes()


def test_a_field_that_no_file_can_hold_is_refused_when_it_is_made():
    for dtype, shape in (("O", (1,)), ("f4,f4", (1,)), ("<f4", (0,)), ("<f4", (1,) * 33)):
        with pytest.raises(FieldArgumentsError):
            NDArrayField(dtype, shape)
    with pytest.raises(TypeError, match="BFloat16"):
        TorchTensorField(torch.bfloat16, (1,))


def test_a_tensor_field_is_an_array_field_of_the_same_type():
    field = TorchTensorField(torch.float16, (2, 3))
    assert (field.dtype, field.shape, field.element_size) == (np.dtype("f2"), (2, 3), 12)
    value = torch.arange(6, dtype=torch.float16).reshape(2, 3)
    _, region = encode(field, value)
    read = TorchTensorField.from_binary(np.frombuffer(field.to_binary().tobytes(), np.uint8))
    assert torch.equal(torch.from_numpy(decode(read, [region])[0]), value)
