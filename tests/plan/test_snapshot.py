from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._plan.snapshot import snapshot
from gpubeton.errors import PipelineError
from gpubeton.fields.image_decoders import CenterCropRGBImageDecoder, SimpleRGBImageDecoder
from gpubeton.transforms import Cutout, ModuleWrapper, ToTensor


def kinds(operations):
    return [type(operation) for operation in operations]


def test_an_empty_pipeline_is_the_decoder_and_totensor():
    assert kinds(snapshot([], SimpleRGBImageDecoder)) == [SimpleRGBImageDecoder, ToTensor]


def test_a_pipeline_without_decoder_gets_one_and_nothing_else():
    assert kinds(snapshot([Cutout(1)], SimpleRGBImageDecoder)) == [SimpleRGBImageDecoder, Cutout]


def test_any_decoder_of_the_fields_kind_may_be_first():
    crop = CenterCropRGBImageDecoder((4, 4), 1)
    assert kinds(snapshot((crop,), SimpleRGBImageDecoder)) == [CenterCropRGBImageDecoder]


def test_operations_after_a_decoder_do_not_change():
    assert snapshot([]) == []


def test_the_users_list_and_operations_stay_as_they_are():
    pipeline = [CenterCropRGBImageDecoder((4, 4), 1), torch.nn.ReLU()]
    copy = list(pipeline)
    copies = snapshot(pipeline, SimpleRGBImageDecoder)
    copies[0].output_size = (8, 8)
    assert pipeline == copy
    assert pipeline[0].output_size == (4, 4)


def test_a_torch_module_is_wrapped():
    module = torch.nn.ReLU()
    (wrapper,) = snapshot([module])
    assert isinstance(wrapper, ModuleWrapper)
    assert wrapper.module is module


def of_torchvision(name):
    """A class as torchvision's: callable, and no module of torch."""
    methods = {"__call__": lambda _, image: image, "__repr__": lambda _: f"{name}()"}
    return type(name, (), {"__module__": "torchvision.transforms.transforms", **methods})


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (of_torchvision("ToTensor")(), "ToTensor.*, of torchvision.*: gpubeton.transforms.ToTensor"),
        (of_torchvision("ToTensor"), ": gpubeton.transforms.ToTensor"),
        (of_torchvision("Compose")(), "Write its operations as a list"),
        (of_torchvision("ToPILImage")(), r"of torchvision.* PerSample\(function\)"),
        (lambda image: image, r"PerSample\(function\)"),
        (np.flip, r"PerSample\(function\)"),
    ],
)
def test_an_operation_of_another_library_is_refused_with_its_replacement(operation, message):
    with pytest.raises(PipelineError, match=f"(?s)operation 0 .*{message}"):
        snapshot([operation], SimpleRGBImageDecoder)


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([ToTensor(), CenterCropRGBImageDecoder((4, 4), 1)], "operation 1 .* decoder"),
        ([ToTensor], r"operation 0 .* Write ToTensor\(\.\.\.\), with brackets"),
        ([np.abs], "operation 0 .* expected an Operation or a torch.nn.Module"),
        (ToTensor(), "a pipeline is a list"),
    ],
)
def test_other_values_than_a_pipeline_are_refused(operations, message):
    with pytest.raises(PipelineError, match=message):
        snapshot(operations, SimpleRGBImageDecoder)
