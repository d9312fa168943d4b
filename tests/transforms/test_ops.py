from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.pipeline import State
from gpubeton.transforms import Convert, ModuleWrapper, Squeeze, ToDevice, ToTensor, ToTorchImage, View

CPU = torch.device("cpu")
ARRAY = State(True, CPU, (4, 5, 3), np.dtype("uint8"))
TENSOR = State(False, CPU, (4, 5, 3), torch.uint8)


def declared(operation, state):
    return operation.declare_state_and_memory(state)[0]


def test_totensor_shares_the_memory_and_leaves_a_tensor_alone():
    array = np.zeros(3, np.int64)
    tensor = ToTensor().apply(array)
    array[0] = 7
    assert tensor.tolist() == [7, 0, 0]
    assert declared(ToTensor(), ARRAY) == TENSOR
    assert ToTensor().apply(tensor) is tensor


def test_totorchimage_is_a_view_in_channels_last_memory_or_a_contiguous_copy():
    images = torch.arange(2 * 4 * 5 * 3, dtype=torch.uint8).reshape(2, 4, 5, 3)
    result = ToTorchImage().apply(images)
    assert (result.shape, result.stride()) == ((2, 3, 4, 5), (60, 1, 15, 3))
    assert result.data_ptr() == images.data_ptr()
    assert declared(ToTorchImage(), TENSOR).shape == (3, 4, 5)
    copy = ToTorchImage(channels_last=False).apply(images)
    assert copy.is_contiguous()
    assert torch.equal(copy, result)
    assert copy.data_ptr() != images.data_ptr()


@pytest.mark.parametrize(("convert_back", "expected"), [(True, torch.float16), (False, torch.int16)])
def test_totorchimage_turns_the_bits_of_halves_back(convert_back, expected):
    halves = torch.full((1, 4, 5, 3), 1.5, dtype=torch.float16)
    operation = ToTorchImage(convert_back_int16=convert_back)
    result = operation.apply(halves.view(torch.int16))
    assert result.dtype is expected is declared(operation, State(False, CPU, (4, 5, 3), torch.int16)).dtype
    assert torch.equal(result.view(torch.float16), halves.permute(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("operation", "state", "message"),
    [
        (ToTorchImage(), ARRAY, r"numpy .*ToTensor"),
        (ToDevice("cpu"), ARRAY, r"numpy .*ToTensor"),
        (ModuleWrapper(torch.nn.ReLU()), ARRAY, r"numpy .*ToTensor"),
        (ToTensor(), State(True, CPU, (1,), np.dtype("<U3")), r"ToTensor: .*'str96'"),
        (ToTorchImage(), State(False, CPU, (3, 20, 30), torch.uint8), r"ToTorchImage.*\(3, 20, 30\)"),
        (View(np.float32), ARRAY, r"uint8 .*1 .*float32 .*4"),
        (Convert(torch.bfloat16), ARRAY, "Put ToTensor before"),
        (Squeeze(2), State(False, CPU, (1,), torch.int64), r"dims \(2,\)"),
    ],
)
def test_a_batch_that_an_operation_cannot_take_is_refused_with_the_remedy(operation, state, message):
    with pytest.raises(PipelineError, match=message):
        declared(operation, state)


def test_images_three_pixels_high_are_taken_for_images_with_channels_last():
    assert declared(ToTorchImage(), State(False, CPU, (3, 30, 3), torch.uint8)).shape == (3, 3, 30)


def test_todevice_names_the_device():
    assert ToDevice(torch.device("cpu")).apply(torch.zeros(1)).device == CPU
    assert ToDevice(1).device == torch.device("cuda:1")
    assert declared(ToDevice("meta"), TENSOR).device == torch.device("meta")
    assert ToDevice("meta").apply(torch.zeros(1)).device == torch.device("meta")


@pytest.mark.parametrize(("device", "waits"), [("cuda:0", False), ("cpu", True)])
def test_only_a_copy_to_a_gpu_is_left_running(device, waits):
    """Streams keep readers on a GPU waiting; nothing keeps those on the CPU."""
    asked = []

    class Batch:
        def to(self, device, *, non_blocking):
            asked.append((device, non_blocking))

    ToDevice(device).apply(Batch())
    ToDevice(device, non_blocking=False).apply(Batch())
    assert asked == [(torch.device(device), not waits), (torch.device(device), False)]


@pytest.mark.parametrize(
    ("batch", "state", "target"),
    [
        (np.array([[1.9]]), State(True, CPU, (1,), np.dtype("float64")), np.int32),
        (torch.ones(2, 4), TENSOR, np.float16),
    ],
)
def test_convert_converts_arrays_and_tensors(batch, state, target):
    result = Convert(target).apply(batch)
    assert result.dtype == declared(Convert(target), state).dtype
    assert result.ravel()[0] == 1


def test_view_reads_the_same_bytes():
    assert View(np.float16).apply(np.array([[0x3C00]], np.int16)).tolist() == [[1.0]]
    assert View(torch.float16).apply(torch.tensor([[0x3C00]], dtype=torch.int16)).tolist() == [[1.0]]
    assert declared(View(np.float16), State(True, CPU, (1,), np.dtype("int16"))).dtype == np.float16


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
@pytest.mark.parametrize(
    ("dims", "shape", "expected"),
    [
        ((), (4, 1), (4,)),
        ((), (1, 1), (1,)),
        ((), (4, 1, 3, 1), (4, 3)),
        ((1,), (4, 1, 1), (4, 1)),
        ((-1,), (4, 1, 1), (4, 1)),
        ((2,), (4, 1, 3), (4, 1, 3)),
        ((0,), (1, 1), (1,)),
    ],
)
def test_squeeze_drops_axes_of_length_one_but_keeps_the_batch(make, dims, shape, expected):
    operation = Squeeze(*dims)
    assert operation.apply(make(shape)).shape == expected
    if 0 not in dims:
        assert declared(operation, State(False, CPU, shape[1:], torch.int64)).shape == expected[1:]


def test_a_module_is_called_without_gradients():
    result = ModuleWrapper(torch.nn.Linear(3, 2)).apply(torch.zeros(4, 3))
    assert result.shape == (4, 2)
    assert not result.requires_grad
