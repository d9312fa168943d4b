from __future__ import annotations

import numpy as np
import pytest

from gpubeton.errors import PipelineError
from gpubeton.fields import BytesField
from gpubeton.fields.decoders import BytesDecoder
from gpubeton.pipeline.state import State
from tests.fields.memory import encode, gather_from

NOTHING = State(jit_mode=True, device="cpu", shape=(), dtype=None)


def test_bytes_of_all_accepted_types_are_stored_and_no_bytes_are_a_value_too():
    for value in (
        *(b"abc", bytearray(b"abc"), memoryview(b"abc"), np.frombuffer(b"abc", np.uint8)),
        *(np.array([97, 98, 99]), np.array([97.0, 98.0, 99.0]), np.frombuffer(b"a.b.c.", np.uint8)[::2]),
    ):
        row, region = encode(BytesField(), value)
        assert (region, row["ptr"], row["size"]) == (b"abc", 1000, 3)
    row, region = encode(BytesField(), b"")
    assert (region, row["size"]) == (b"", 0)


def test_rows_are_as_long_as_the_longest_value_and_padded_with_zeros():
    decoder = BytesDecoder()
    decoder.accept_extent(5)
    assert decoder.declare_state_and_memory(NOTHING)[0].shape == (5,)
    decoded = decoder.decode(np.zeros(2, BytesField().metadata_type), gather_from([b"abc", b""]))
    assert decoded.tolist() == [[97, 98, 99, 0, 0], [0] * 5]


def test_the_error_of_a_decoder_outside_a_loader_names_the_missing_length():
    with pytest.raises(PipelineError, match=r"BytesDecoder .* longest"):
        BytesDecoder().declare_state_and_memory(NOTHING)
    with pytest.raises(PipelineError, match=r"decode\(\)"):
        BytesDecoder().generate_code()
