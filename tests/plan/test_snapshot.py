"""Which operations a pipeline has for each list that a user writes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder
from gpubeton.transforms import Cutout, ToTensor
from tests.apply import explained, load, loader_of

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        ([], ["SimpleRGBImageDecoder", "ToTensor"]),
        ([Cutout(1)], ["SimpleRGBImageDecoder", "Cutout"]),
        ([CenterCropRGBImageDecoder((4, 4), 1)], ["CenterCropRGBImageDecoder"]),
        ([ToTensor(), torch.nn.ReLU()], ["SimpleRGBImageDecoder", "ToTensor", "ModuleWrapper"]),
    ],
)
def test_a_pipeline_gets_a_decoder_if_it_has_none_and_totensor_if_it_is_empty(pipeline, expected):
    assert [name for name, _ in explained(pipeline, IMAGES)] == expected


def test_the_users_list_and_operations_stay_as_they_are_and_serve_several_loaders():
    pipeline = [CenterCropRGBImageDecoder((4, 4), 1), ToTensor(), torch.nn.Identity()]
    copy, representation = list(pipeline), repr(pipeline)
    with loader_of(pipeline, IMAGES) as first, loader_of(pipeline, IMAGES) as second:
        assert [[batch.shape for (batch,) in loader] for loader in (first, second)] == [[(3, 4, 4, 3)]] * 2
    assert pipeline == copy
    assert repr(pipeline) == representation


def of_torchvision(name):
    """A class as torchvision's: callable, and no module of torch."""
    methods = {"__call__": lambda _, image: image, "__repr__": lambda _: f"{name}()"}
    return type(name, (), {"__module__": "torchvision.transforms.transforms", **methods})


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ([of_torchvision("ToTensor")()], "operation 0 .*ToTensor.*, of torchvision.*: gpubeton.transforms.ToTensor"),
        ([of_torchvision("ToTensor")], "operation 0 .*: gpubeton.transforms.ToTensor"),
        ([of_torchvision("Compose")()], "operation 0 .*Write its operations as a list"),
        ([of_torchvision("ToPILImage")()], r"operation 0 .*of torchvision.* PerSample\(function\)"),
        ([lambda image: image], r"operation 0 .*PerSample\(function\)"),
        ([np.flip], r"operation 0 .*PerSample\(function\)"),
        ([ToTensor(), CenterCropRGBImageDecoder((4, 4), 1)], "operation 1 .* decoder"),
        ([ToTensor], r"operation 0 .* Write ToTensor\(\.\.\.\), with brackets"),
        ([np.abs], "operation 0 .* expected an Operation or a torch.nn.Module"),
        (ToTensor(), "expected a list of operations"),
        (of_torchvision("Compose")(), "a Compose, for single images.*gpubeton.recipes"),
    ],
)
def test_other_values_than_operations_are_refused_with_their_replacement(pipeline, message):
    with pytest.raises(PipelineError, match=f"(?s)'image'.*{message}"):
        load(pipeline, IMAGES)
