from __future__ import annotations

import copy
from contextlib import nullcontext
from itertools import chain

import numpy as np
import pytest
import torch

from gpubeton.fields.decoders import (
    IntDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.loader import Loader
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import Squeeze, ToTensor
from tests.at_once import run_at_once
from tests.loader.pipelines import ONLY_IMAGE, ONLY_LABEL, augmented, by_sample, equal, labels, same
from tests.small_files import picture


def test_a_batch_is_a_tuple_of_tensors_in_the_order_of_the_file(photos):
    pipelines = {"label": [IntDecoder(), ToTensor(), Squeeze()], "image": augmented(), "note": None}
    (batch, *_) = Loader(photos, 8, num_workers=1, pipelines=pipelines)
    assert isinstance(batch, tuple)
    images, label, weight, info, vector = batch
    assert (images.shape, images.dtype) == ((8, 3, 24, 20), torch.float16)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert label.tolist() == list(range(0, 80, 10))
    assert (weight.shape, weight.dtype) == ((8, 1), torch.float64)
    assert (info.shape[0], info.dtype) == (8, torch.uint8)
    assert (vector.shape, vector.dtype) == ((8, 2, 3), torch.float32)


def test_other_outputs_come_last_in_the_order_of_the_pipelines(photos):
    pipelines = {
        "twice": PipelineSpec("label", transforms=[ToTensor()]),
        **ONLY_LABEL,
        "once more": PipelineSpec("label", decoder=IntDecoder(), transforms=[ToTensor(), Squeeze()]),
    }
    ((label, twice, once_more), *_) = Loader(photos, 4, num_workers=1, pipelines=pipelines)
    assert label.tolist() == once_more.tolist() == twice[:, 0].tolist() == [0, 10, 20, 30]


@pytest.mark.parametrize("pipeline", [[], [ToTensor()], [SimpleRGBImageDecoder(), ToTensor()], (ToTensor(),)])
def test_a_pipeline_without_decoder_gets_the_fields(raw_photos, pipeline):
    loader = Loader(raw_photos, 6, num_workers=1, drop_last=False, pipelines={**ONLY_IMAGE, "image": pipeline})
    images = torch.cat([batch for (batch,) in loader])
    assert (images.shape, images.dtype) == ((20, 48, 64, 3), torch.uint8)
    assert all((images[number].numpy() == picture(number, 48, 64)).all() for number in range(20))


def test_a_pipeline_of_a_decoder_alone_gives_a_numpy_array(raw_photos):
    ((images,), *_) = Loader(raw_photos, 6, num_workers=1, pipelines={**ONLY_IMAGE, "image": [SimpleRGBImageDecoder()]})
    assert isinstance(images, np.ndarray)
    assert images.flags.writeable


def test_a_batch_that_is_kept_is_never_overwritten(photos):
    loader = Loader(photos, 4, num_workers=2, order="random", seed=0, pipelines={"image": augmented()})
    batches, copies = [], []
    for _ in range(3):
        for batch in loader:
            batches.append(batch)
            copies.append([output.clone() for output in batch])
    assert same(batches, copies)


@pytest.mark.parametrize(
    ("batch_size", "whole", "all_of_them"),
    [(3, [3] * 3, [3, 3, 3, 1]), (4, [4, 4], [4, 4, 2]), (10, [10], [10]), (11, [], [10])],
)
def test_a_last_batch_of_fewer_samples_is_dropped_unless_drop_last_is_false(photos, batch_size, whole, all_of_them):
    for drop_last, sizes in [(True, whole), (False, all_of_them)]:
        loader = Loader(photos, batch_size, num_workers=1, indices=range(10), drop_last=drop_last, pipelines=ONLY_LABEL)
        assert len(loader) == len(sizes)
        with nullcontext() if sizes else pytest.warns(UserWarning, match="no batch"):
            assert [len(batch) for (batch,) in loader] == sizes


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 7},
        {"num_workers": 2},
        {"order": "random"},
        {"os_cache": False},
        {"batches_ahead": 1},
        {"indices": [5, 3, 17]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_augmented_image_depends_on_seed_epoch_and_sample_alone(photos, changes):
    same = {
        "batch_size": 10,
        "num_workers": 1,
        "drop_last": False,
        "seed": 5,
        "pipelines": {**ONLY_IMAGE, "image": augmented()},
    }
    expected = by_sample(Loader(photos, **same))
    result = by_sample(Loader(photos, **{**same, **changes}))
    assert equal(result, {sample: expected[sample] for sample in result})
    assert not equal(by_sample(Loader(photos, **{**same, "seed": 6})), expected)


def test_without_a_seed_numpys_global_generator_decides_and_the_seed_is_shown(photos):
    state = np.random.get_state()  # noqa: NPY002  the global generator is the point
    first, second = (Loader(photos, 8, num_workers=1, pipelines=ONLY_LABEL) for _ in range(2))
    np.random.set_state(state)  # noqa: NPY002
    third = Loader(photos, 8, num_workers=1, pipelines=ONLY_LABEL)
    assert first.seed == third.seed != second.seed
    assert f"seed {first.seed}" in repr(first)


def test_the_output_size_may_change_between_epochs(photos):
    decoder = RandomResizedCropRGBImageDecoder((24, 24))
    loader = Loader(photos, 10, num_workers=1, pipelines={**ONLY_IMAGE, "image": [decoder, ToTensor()]})
    assert {batch.shape[1:] for (batch,) in loader} == {(24, 24, 3)}
    sizes = []
    for (batch,) in loader:
        sizes.append(batch.shape[1:])
        decoder.output_size = (32, 16)  # counts from the next epoch on
    assert set(sizes) == {(24, 24, 3)}
    assert {batch.shape[1:] for (batch,) in loader} == {(32, 16, 3)}


def test_two_loaders_may_share_one_pipeline_list_which_stays_as_it_was(photos):
    image, label = augmented(), [IntDecoder(), ToTensor(), torch.nn.Flatten()]
    pipelines = {"image": image, "label": label, "vector": None}
    before = [(type(operation), copy.copy(vars(operation))) for operation in (*image, *label)]
    first = Loader(photos, 8, num_workers=1, seed=0, pipelines=pipelines)
    second = Loader(photos, 8, num_workers=1, seed=0, pipelines=pipelines)
    assert same(first, second)
    assert list(pipelines) == ["image", "label", "vector"]
    assert pipelines["image"] is image
    assert pipelines["label"] is label
    assert [(type(operation), vars(operation)) for operation in (*image, *label)] == before


def test_a_plain_module_in_a_pipeline_is_applied(photos):
    class Double(torch.nn.Module):
        def forward(self, batch):
            return batch * 2

    ((label,), *_) = Loader(photos, 4, num_workers=1, pipelines={**ONLY_LABEL, "label": [ToTensor(), Double()]})
    assert label[:, 0].tolist() == [0, 20, 40, 60]


def test_explain_prints_the_device_of_each_operation(photos, capsys):
    Loader(
        photos,
        8,
        num_workers=1,
        seed=3,
        os_cache=False,
        pipelines={"image": [*augmented(), torch.nn.ReLU()], "note": None},
    ).explain()
    printed = capsys.readouterr().out
    for words in ("6 batches of 8", "seed 3", "Cutout", "fused", "ReLU", "after", "IntDecoder", "numpy", "MiB"):
        assert words in printed
    assert "note" not in printed
    assert "decoded once" not in printed


def test_two_iterators_of_one_loader_are_two_epochs(photos):
    loader = Loader(photos, 10, num_workers=1, order="random", seed=2, pipelines=ONLY_LABEL)
    expected = [labels(loader), labels(loader)]
    loader.set_epoch(0)
    both = list(zip(iter(loader), iter(loader), strict=True))
    assert [[batch[0].tolist() for batch in column] for column in zip(*both, strict=True)] == expected


def test_several_threads_may_iterate_over_several_loaders_at_once(photos, raw_photos):
    pipelines = {**ONLY_IMAGE, "image": augmented()}
    arguments = [(photos, 7, 0), (raw_photos, 3, 1), (photos, 5, 2), (raw_photos, 4, 3)]

    def make(path, batch_size, seed):
        return Loader(
            path, batch_size, num_workers=2, order="random", seed=seed, pipelines=pipelines, os_cache=seed % 2 == 0
        )

    expected = [by_sample(make(*argument)) for argument in arguments]
    result = [None] * len(arguments)

    def run(number):
        result[number] = by_sample(make(*arguments[number]))

    run_at_once(run, range(len(arguments)))
    assert all(equal(output, other) for output, other in zip(result, expected, strict=True))


def test_several_threads_may_share_an_iterator(photos):
    loader = Loader(photos, 2, num_workers=2, pipelines=ONLY_LABEL)
    batches, received = iter(loader), []
    run_at_once(lambda _: received.extend(batch.tolist() for (batch,) in batches), range(3))
    assert sorted(chain(*received)) == list(range(0, 500, 10))
