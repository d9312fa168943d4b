"""Assignments to a loader's attributes take effect in the next epoch, or are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from gpubeton.errors import OptionError, StateError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.integrations import DataLoaderAdapter
from gpubeton.loader import Loader
from gpubeton.pipeline.operation import Operation
from gpubeton.transforms import RandomBrightness, ToTensor
from tests.loader.pipelines import ONLY_IMAGE, ONLY_LABEL, augmented, labels


def make(path, **changes):
    arguments = {"num_workers": 1, "order": "quasi_random", "seed": 3, "drop_last": False, "pipelines": ONLY_LABEL}
    return Loader(path, **{"batch_size": 8, **arguments, **changes})


def test_another_batch_size_and_drop_last_count_from_the_next_epoch_on(photos):
    loader = make(photos)
    first = iter(loader)
    assert len(loader) == 7
    loader.batch_size = 20
    assert len(loader) == 3
    loader.drop_last = True
    assert (len(loader), len(first)) == (2, 7)
    assert [batch.tolist() for (batch,) in first] == labels(make(photos))
    other = make(photos, batch_size=20, drop_last=True)
    other.set_epoch(1)
    assert labels(loader) == labels(other)


@pytest.mark.parametrize("os_cache", [False, True])
def test_images_of_larger_and_smaller_batches_are_those_of_a_new_loader(photos, os_cache):
    pipelines = {**ONLY_IMAGE, "image": augmented()}
    loader = make(photos, pipelines=pipelines, os_cache=os_cache, order="random")
    for epoch, batch_size in enumerate((8, 25, 3)):
        loader.batch_size = batch_size
        new = make(photos, batch_size=batch_size, pipelines=pipelines, os_cache=os_cache, order="random")
        new.set_epoch(epoch)
        ours, theirs = [batch for (batch,) in loader], [batch for (batch,) in new]
        assert [len(batch) for batch in ours] == [len(batch) for batch in theirs]
        assert torch.equal(torch.cat(ours), torch.cat(theirs))


def test_a_state_is_of_the_batches_of_the_epoch_that_is_under_way(photos):
    loader = make(photos)
    batches = iter(loader)
    next(batches)
    loader.batch_size = 5
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [batch.tolist() for (batch,) in batches]
    resumed = make(photos)
    resumed.load_state_dict(state)
    assert labels(resumed) == rest
    assert loader.state_dict()["batch_size"] == 5
    with pytest.raises(StateError, match=r"batch_size is 5 .* 8 "):
        loader.load_state_dict(state)


def test_a_loaded_state_fixes_the_batch_size_until_its_epoch_ends(photos):
    loader = make(photos)
    batches = iter(loader)
    next(batches)
    resumed = make(photos)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(OptionError, match=r"batch_size.* 1 .*epoch 0"):
        resumed.batch_size = 5
    assert resumed.batch_size == 8
    assert labels(resumed) == [batch.tolist() for (batch,) in batches]
    resumed.batch_size = 5
    assert len(resumed) == 10


def test_an_assigned_value_is_checked_like_an_argument(photos):
    loader = make(photos)
    for name, value in (("batch_size", 0), ("num_workers", 1.5), ("batches_ahead", "3"), ("on_error", "ignore")):
        before = getattr(loader, name)
        with pytest.raises(OptionError, match=name):
            setattr(loader, name, value)
        assert getattr(loader, name) == before
    loader.num_workers, loader.batches_ahead, loader.on_error = -1, 1, "skip"
    assert loader.num_workers >= 1
    assert labels(loader) == labels(make(photos))


FIXED = (
    "fname os_cache order_kwargs distributed seed pipelines custom_fields device decoder gpu_options remote cache_dir "
    "cache_limit checksums"
)


@pytest.mark.parametrize("name", FIXED.split())
def test_an_assignment_without_effect_is_refused_with_the_alternative(photos, name):
    loader = make(photos)
    before = getattr(loader, name)
    with pytest.raises(OptionError, match=rf"{name} .*Loader\(.*{name}="):
        setattr(loader, name, object())
    setattr(loader, name, before)  # as classes derived from Loader do, which keep their arguments
    assert getattr(loader, name) is before


def test_an_adapter_knows_the_new_batch_size(photos):
    loader = make(photos, order="sequential")
    adapter = DataLoaderAdapter(loader)
    adapter.batch_size, loader.drop_last = 20, True
    assert loader.batch_size == adapter.batch_size == 20
    with pytest.raises(OptionError, match="seed of a loader"):
        adapter.seed = 1
    sampler = adapter.batch_sampler
    assert (sampler.batch_size, sampler.drop_last, [len(ids) for ids in sampler]) == (20, True, [20, 20])
    adapter.indices = range(30)
    assert [len(ids) for ids in sampler] == [20]


class Named(Operation):
    """Of a user's own, where p means something else."""

    p = "p"

    def generate_code(self):
        return lambda batch, _: batch

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False), None


def test_a_probability_that_was_set_to_something_else_is_refused_when_a_loader_is_made_or_goes_on(photos):
    jitter, named = RandomBrightness(0.3, 0.5), Named()
    named.p = 3
    pipelines = {**ONLY_IMAGE, "image": [CenterCropRGBImageDecoder((8, 8), 1), jitter, named, ToTensor()]}
    loader = make(photos, pipelines=pipelines)
    jitter.p = 1.5
    for again in (lambda: iter(loader), lambda: make(photos, pipelines=pipelines)):
        with pytest.raises(OptionError, match=r"RandomBrightness: .*1\.5"):
            again()
    jitter.p = 1
    assert len(list(loader)) == 7
