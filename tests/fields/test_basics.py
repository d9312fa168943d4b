from __future__ import annotations

import numpy as np
import pytest

from gpubeton.fields import FloatField, IntField
from gpubeton.fields.decoders import FloatDecoder, IntDecoder
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.state import State
from tests.fields.memory import encode

NOTHING = State(jit_mode=True, device="cpu", shape=(), dtype=None)


@pytest.mark.parametrize(
    ("value", "stored"), [(3, 3), (3.7, 3), (-3.7, -3), (True, 1), (np.int32(7), 7), (-(2**63), -(2**63))]
)
def test_an_integer_is_stored_as_ffcv_stores_it(value, stored):
    assert encode(IntField(), value) == (stored, None)


def test_a_float_keeps_every_bit_and_fields_show_how_they_are_made():
    for value in (0.1, -0.0, float("inf"), 5e-324, 3):
        assert encode(FloatField(), value)[0].tobytes() == np.float64(value).tobytes()
    assert [repr(field) for field in (IntField(), FloatField())] == ["IntField()", "FloatField()"]


@pytest.mark.parametrize(("decoder", "dtype"), [(IntDecoder(), "int64"), (FloatDecoder(), "float64")])
def test_numbers_come_back_one_to_a_row(decoder, dtype):
    rows = np.arange(4, dtype=dtype)
    decoded = decoder.decode(rows, None)
    assert (decoded.shape, decoded.dtype) == ((4, 1), dtype)
    assert not np.shares_memory(decoded, rows)
    state, memory = decoder.declare_state_and_memory(NOTHING)
    assert (state.shape, state.dtype, memory) == ((1,), np.dtype(dtype), AllocationQuery((1,), np.dtype(dtype)))
