from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton.fields import JSONField
from gpubeton.fields.decoders import JSONDecoder
from gpubeton.loader import Loader
from tests.fields.memory import encode, gather_from
from tests.small_files import damage, write

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=25)
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_stored_values_are_unpacked(values):
    texts = [encode(JSONField(), value)[1] for value in values]
    decoder = JSONDecoder()
    decoder.accept_extent(max(map(len, texts)))
    rows = decoder.decode(np.zeros(len(values), JSONField().metadata_type), gather_from(texts))
    assert JSONField.unpack(rows) == values
    assert JSONField.unpack(torch.from_numpy(rows)) == values
    assert JSONField.unpack(rows[0]) == values[0]


def test_text_ends_with_a_zero_that_counts_and_not_a_number_is_stored_as_ffcv_does():
    row, region = encode(JSONField(), {"a": "\0"})
    assert region == b'{"a": "\\u0000"}\0'
    assert row["size"] == len(region)
    _, region = encode(JSONField(), float("nan"))
    assert region == b"NaN\0"
    assert math.isnan(JSONField.unpack(np.frombuffer(region, np.uint8)))


@pytest.mark.parametrize("text", [b"\0\0\0\0", b"[" * 20_000, b'{"a":' * 20_000, b"9" * 25_000, b'"\xff\xfe"'], ids=len)
def test_json_that_python_cannot_read_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"Expecting|nested|digits|decode"):
        JSONField.unpack(np.frombuffer(text, np.uint8))


def test_a_loader_returns_stored_json_of_any_kind(tmp_path):
    text = b"[" * 20_000
    path = write(tmp_path / "a.beton", {"info": JSONField()}, [("x" * (len(text) - 2),)])
    damage(path, 0, field="info", content=text)
    ((batch,),) = list(Loader(path, 1, pipelines={"info": [JSONDecoder()]}))
    assert batch[0].tobytes() == text + bytes(1)
