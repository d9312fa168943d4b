from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.pipeline.ragged import Ragged, tensors_in
from gpubeton.transforms import Convert, ToDevice, ToTensor

VALUES, OFFSETS = np.arange(10, dtype=np.float32).reshape(5, 2), np.array([0, 2, 2, 5])
ROWS = [VALUES[0:2], VALUES[2:2], VALUES[2:5]]


@pytest.fixture(params=["numpy", "torch"])
def ragged(request):
    arrays = Ragged(VALUES, OFFSETS)
    return arrays if request.param == "numpy" else arrays.tensors()


def test_a_ragged_is_a_sequence_of_its_samples_arrays(ragged):
    assert len(ragged) == 3
    for result in (list(ragged), [ragged[number] for number in range(3)], [ragged[number] for number in range(-3, 0)]):
        assert all(np.array_equal(output, expected) for output, expected in zip(result, ROWS, strict=True))
    for outside in (3, -4):
        with pytest.raises(IndexError, match=f"sample {outside} .* 3; .* 0 to 2"):
            ragged[outside]


def test_lengths_and_rows_assign_values_to_samples_and_the_repr_shows_sizes(ragged):
    assert ragged.lengths.tolist() == [2, 0, 3]
    assert ragged.rows.tolist() == [0, 0, 2, 2, 2]
    assert type(ragged.lengths) is type(ragged.rows) is type(ragged.values)
    assert repr(ragged).startswith("Ragged(3 samples, values of shape (5, 2), ")


def test_tensors_share_the_arrays_memory():
    tensors = ToTensor().apply(Ragged(VALUES.copy(), OFFSETS))
    assert (tensors.values.dtype, tensors.offsets.dtype) == (torch.float32, torch.int64)
    arrays = Ragged(VALUES.copy(), OFFSETS)
    arrays.tensors().values[0, 0] = 77
    assert arrays.values[0, 0] == 77


def test_moving_takes_the_offsets_along_and_leaves_their_type(ragged):
    moved = ToDevice("meta").apply(ToTensor().apply(ragged))
    assert moved.values.device.type == moved.offsets.device.type == "meta"
    assert Ragged(VALUES, OFFSETS).tensors().to("cpu", torch.float16).offsets.dtype == torch.int64


def test_converting_changes_the_values_alone(ragged):
    converted = (
        Convert("float64").apply(ragged)
        if isinstance(ragged.values, np.ndarray)
        else Convert(torch.float64).apply(ragged)
    )
    assert str(converted.dtype).endswith("float64")
    assert converted.offsets is ragged.offsets


def test_the_tensors_of_a_batch_are_found_inside_too():
    ragged, plain = Ragged(VALUES, OFFSETS).tensors(), torch.zeros(2)
    result = tensors_in([plain, VALUES, ragged, Ragged(VALUES, OFFSETS)])
    assert [id(tensor) for tensor in result] == [id(plain), id(ragged.values), id(ragged.offsets)]


def test_a_clone_may_be_changed(ragged):
    clone = ragged.clone()
    before = ragged.values[0, 0].item(), ragged.offsets[1].item()
    clone.values[0, 0] = 55
    clone.offsets[1] = 1
    assert type(clone.values) is type(ragged.values)
    assert before == (ragged.values[0, 0].item(), ragged.offsets[1].item())
