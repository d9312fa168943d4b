"""Outputs that continue other outputs, and operations shared by several of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import AllocationQuery, Compiler, Operation, PipelineSpec
from gpubeton.transforms import (
    Convert,
    Cutout,
    NormalizeImage,
    RandomHorizontalFlip,
    ToTensor,
    ToTorchImage,
)

NOTHING_ELSE = dict.fromkeys(["image", "label", "weight", "note", "info", "vector"])


class Add(Operation):
    """Adds a number in place."""

    def __init__(self, number):
        self.number = number

    def generate_code(self):
        number = self.number

        def add(batch, _):
            batch += number
            return batch

        return add

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=True), None


class Dice(Operation):
    """Fills each row with numbers that are thrown once for each batch: one, or the difference of two."""

    def __init__(self, *, jit_mode=True, count=1):
        self.jit_mode = jit_mode
        self.count = count

    def declare_shared_memory(self, previous_state):
        query = AllocationQuery((), np.dtype("int64"))
        return query if self.count == 1 else [query] * self.count

    def generate_code_for_shared_state(self):
        def throw(shared):
            for row in range(shared.shape[0]):
                shared[row] = np.random.randint(0, 1 << 40)  # noqa: NPY002  (what Numba knows)

        def throw_all(shared):
            for memory in shared:
                throw(memory)

        return throw if self.count == 1 else throw_all

    def generate_code(self):
        def fill(batch, memory, shared):
            for row in range(batch.shape[0]):
                batch[row] = shared[row]
            return batch

        def subtract(_batch, _memory, shared):
            return shared[0].reshape(-1, 1) - shared[1].reshape(-1, 1)

        return fill if self.count == 1 else subtract

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=self.jit_mode), None


def rows(path, pipelines, **arguments):
    with_others = {**NOTHING_ELSE, **pipelines}
    loader = Loader(path, 20, num_workers=1, drop_last=False, seed=3, pipelines=with_others, **arguments)
    return [torch.cat([torch.as_tensor(part) for part in parts]) for parts in zip(*loader, strict=True)]


def test_outputs_may_go_on_from_a_decoder_a_tensor_and_each_other(photos):
    decoder, tensor, added = IntDecoder(), ToTensor(), Add(1)
    first, second, third, fourth = rows(
        photos,
        {
            # Continuations come first here, and a batch has them in this order.
            "fourth": PipelineSpec(added, transforms=[Add(2), ToTensor()]),
            "third": PipelineSpec(decoder, transforms=[added, ToTensor()]),
            "second": PipelineSpec(tensor, transforms=[Convert(torch.float32)]),
            "first": PipelineSpec("label", decoder=decoder, transforms=[tensor]),
        },
    )[::-1]
    samples = torch.arange(50)[:, None] * 10
    assert torch.equal(first, samples)
    assert torch.equal(second, samples.float())
    assert torch.equal(third, samples + 1)
    assert torch.equal(fourth, samples + 3)


def test_a_branch_shares_the_crop_and_has_separate_later_draws(photos):
    flip = RandomHorizontalFlip()
    plain = [RandomResizedCropRGBImageDecoder((12, 12)), flip]
    normalize = [NormalizeImage([120] * 3, [60] * 3, np.float32), ToTensor(), ToTorchImage()]
    alone = rows(photos, {"image": [*plain, ToTensor()]})[0]
    image, view = rows(
        photos,
        {"image": [*plain, Cutout(6), *normalize], "view": PipelineSpec(flip, transforms=[Cutout(6), ToTensor()])},
    )
    assert torch.equal(torch.where(view == 0, 0, alone), view)
    levels = (image * 60 + 120).round().permute(0, 2, 3, 1).to(torch.uint8)
    assert torch.equal(torch.where(levels == 0, 0, alone), levels)
    assert not torch.equal(levels == 0, view == 0)  # other holes


def test_channels_last_memory_stays_so_after_a_branch(photos):
    image = ToTorchImage()
    crop = CenterCropRGBImageDecoder((8, 6), 1)
    loader = Loader(
        photos,
        10,
        num_workers=1,
        pipelines={
            **NOTHING_ELSE,
            "image": [crop, ToTensor(), image],
            "again": PipelineSpec(image),
            "twice": PipelineSpec(image),
            "label": [IntDecoder(), ToTensor()],
            "more": PipelineSpec("label"),
        },
    )
    for image, _, *views, _ in loader:
        outputs = (image, *views)
        assert [output.is_contiguous(memory_format=torch.channels_last) for output in outputs] == [True] * 3
        assert len({output.data_ptr() for output in outputs}) == 3
        assert torch.equal(outputs[0], outputs[1])
        assert torch.equal(outputs[0], outputs[2])


@pytest.mark.parametrize(
    ("pipelines", "message"),
    [
        ({"more": PipelineSpec(Add(1))}, "'more' .*Add"),
        ({"label": [Add(1)], "more": PipelineSpec(Add(1))}, "'more' .*Add"),
        ({"more": PipelineSpec(IntDecoder(), decoder=IntDecoder())}, "has a decoder, too"),
    ],
)
def test_a_branch_of_an_unknown_operation_is_refused(photos, pipelines, message):
    with pytest.raises(PipelineError, match=message):
        Loader(photos, 4, num_workers=1, pipelines=pipelines)


def test_an_ambiguous_operation_and_a_circle_are_refused(photos):
    add, other = Add(1), Add(2)
    with pytest.raises(PipelineError, match=r"'label', 'label'"):
        Loader(photos, 4, num_workers=1, pipelines={"label": [add, add], "more": PipelineSpec(add)})
    circle = {"a": PipelineSpec(other, transforms=[add]), "b": PipelineSpec(add, transforms=[other])}
    with pytest.raises(PipelineError, match=r"'a', 'b', 'a'"):
        Loader(photos, 4, num_workers=1, pipelines=circle)


def test_an_operation_that_does_not_fit_after_a_branch_is_named(photos):
    tensor = ToTensor()
    pipelines = {**NOTHING_ELSE, "label": [tensor], "more": PipelineSpec(tensor, transforms=[Add(1)])}
    with pytest.raises(PipelineError, match=r"'more': Add .*compiled"):
        Loader(photos, 4, num_workers=1, pipelines=pipelines)


@pytest.mark.parametrize(
    ("dice", "is_enabled"),
    [(Dice(), True), (Dice(), False), (Dice(jit_mode=False), True), (Dice(jit_mode=False, count=2), True)],
    ids=["compiled", "compilation off", "plain", "several arrays"],
)
def test_one_object_in_two_pipelines_has_one_memory_which_is_filled_once_for_each_batch(
    photos, monkeypatch, dice, is_enabled
):
    monkeypatch.setattr(Compiler, "is_enabled", is_enabled)
    pipelines = {"label": [dice, ToTensor()], "again": PipelineSpec("label", transforms=[Add(7), dice, ToTensor()])}
    label, again = rows(photos, pipelines)
    assert torch.equal(label, again)
    assert len(set(label.flatten().tolist())) == 50


def test_two_objects_share_nothing(photos):
    label, again = rows(
        photos, {"label": [Dice(), ToTensor()], "again": PipelineSpec("label", transforms=[Dice(), ToTensor()])}
    )
    assert not torch.equal(label, again)
