from __future__ import annotations

import json
import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from gpubeton.errors import FieldArgumentsError
from gpubeton.format.field_arguments import ArrayArguments
from tests.golden_files import sidecar


def stored(dtype_text: bytes, lengths=(2,), claimed=None) -> bytes:
    shape = np.zeros(33, "<u8")
    shape[: len(lengths)] = lengths
    shape[32] = len(dtype_text) if claimed is None else claimed
    return (shape.tobytes() + dtype_text).ljust(1024, b"\0")


@pytest.mark.parametrize("name", ["ndarrays", "ndarray_be", "ndarray_big", "all_fields", "custom"])
def test_arguments_are_those_of_ffcv_to_the_byte(name):
    for field in sidecar(name)["fields"]:
        if field["type_id"] in (4, 6, 255):
            content = bytes.fromhex(field["arguments_hex"]).ljust(1024, b"\0")
            assert ArrayArguments.from_bytes(content).to_bytes() == content


@given(
    st.sampled_from(["|b1", "|u1", "<f2", ">f4", "<c16", "|S7", "<U3", "<M8[ns]"]),
    array_shapes(min_dims=0, max_dims=32, max_side=9),
)
@example("<f4", ())
def test_stored_arguments_are_read_back(code, shape):
    arguments = ArrayArguments(shape, np.dtype(code))
    assert ArrayArguments.from_bytes(arguments.to_bytes()) == arguments
    assert arguments.nbytes == np.dtype(code).itemsize * math.prod(shape)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[" * 700,
        b"{}",
        b"[]",
        b'[["", "<f4"], ["", "<f4"]]',
        b'[["a", "<f4"]]',
        b'[["", "|O"]]',
        b'[["", "O8"]]',
        b'[["", "f4,f4"]]',
        b'[["", "(2,3)f4"]]',
        b'[["", [["a", "<f4"]]]]',
        b'[["", 4]]',
        b'[["", "<f3"]]',
        b'[["", "__import__(\'os\')"]]',
        json.dumps(np.dtype([("a", "<f4"), ("b", "<i8")]).descr).encode(),
    ],
)
def test_a_dtype_that_is_not_one_of_plain_numbers_is_refused(text):
    with pytest.raises(FieldArgumentsError, match="expected JSON"):
        ArrayArguments.from_bytes(stored(text))


def test_nesting_that_exhausts_the_stack_is_refused(monkeypatch):
    def exhaust(_):
        raise RecursionError

    monkeypatch.setattr(json, "loads", exhaust)  # it takes a caller that is deep in the stack already
    with pytest.raises(FieldArgumentsError, match="expected JSON"):
        ArrayArguments.from_bytes(stored(b"[" * 700))


@pytest.mark.parametrize(
    ("lie", "message"), [({"claimed": 761}, r"761 bytes, .* 760"), ({"lengths": (2, 0, 3)}, r"\(2, 0, 3\)")]
)
def test_a_description_longer_than_its_room_and_a_length_of_zero_are_refused(lie, message):
    with pytest.raises(FieldArgumentsError, match=message):
        ArrayArguments.from_bytes(stored(b'[["", "<f4"]]', **lie))


@given(st.binary(min_size=1024, max_size=1024))
def test_random_bytes_give_arguments_or_their_error(content):
    with suppress(FieldArgumentsError):
        ArrayArguments.from_bytes(content)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        *((shape, "<f4", "32 lengths") for shape in [(0,), (2, -1), (1,) * 33]),
        *(((1,), dtype, "plain numbers") for dtype in ["O", "f4,f4", "(2,)f4"]),
    ],
)
def test_an_array_beyond_the_format_is_not_stored(shape, dtype, message):
    with pytest.raises(FieldArgumentsError, match=message):
        ArrayArguments(shape, np.dtype(dtype)).to_bytes()
