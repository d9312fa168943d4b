from __future__ import annotations

import copy
import json
import threading
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from gpubeton.errors import DeviceError, NoSuchFieldError, OptionError, PipelineError
from gpubeton.fields.decoders import (
    CenterCropRGBImageDecoder,
    IntDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.loader import Loader, OrderOption
from gpubeton.pipeline import PipelineSpec
from gpubeton.reader import Reader
from gpubeton.transforms import Cutout, NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
from gpubeton.traversal_order import TraversalOrder
from tests.small_files import picture

pytestmark = pytest.mark.timeout(180)

ONLY_IMAGE = dict.fromkeys(["label", "weight", "note", "info", "vector"])
ONLY_LABEL = {
    "label": [IntDecoder(), ToTensor(), Squeeze()],
    **dict.fromkeys(["image", "weight", "note", "info", "vector"]),
}


def augmented(size=(24, 20)):
    return [
        RandomResizedCropRGBImageDecoder(size),
        RandomHorizontalFlip(),
        Cutout(4),
        NormalizeImage([120] * 3, [60] * 3, np.float16),
        ToTensor(),
        ToTorchImage(),
    ]


def labels(loader):
    return [batch.tolist() for (batch,) in loader]


def by_sample(loader):
    """The first output of each sample of the next epoch."""
    batches = iter(loader)
    return {sample: row for batch in batches for sample, row in zip(batches.samples.tolist(), batch[0], strict=True)}


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


# --- batches ----------------------------------------------------------------------------------------------------------


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
    assert all(
        torch.equal(ours, theirs)
        for pair in zip(batches, copies, strict=True)
        for ours, theirs in zip(*pair, strict=True)
    )


def test_memory_of_batches_that_nobody_holds_is_used_again(photos):
    pipelines = {**ONLY_IMAGE, "image": augmented((128, 128))}
    loader = Loader(photos, 10, num_workers=1, batches_ahead=2, pipelines=pipelines)
    places = [batch.data_ptr() for _ in range(6) for (batch,) in loader]
    assert len(places) == 30
    assert len(set(places)) <= 6


@pytest.mark.parametrize(
    ("batch_size", "whole", "all_of_them"),
    [(3, [3] * 3, [3, 3, 3, 1]), (4, [4, 4], [4, 4, 2]), (10, [10], [10]), (11, [], [10])],
)
def test_a_last_batch_of_fewer_samples_is_dropped_unless_told_otherwise(photos, batch_size, whole, all_of_them):
    for drop_last, sizes in [(True, whole), (False, all_of_them)]:
        loader = Loader(photos, batch_size, num_workers=1, indices=range(10), drop_last=drop_last, pipelines=ONLY_LABEL)
        assert len(loader) == len(sizes)
        assert [len(batch) for (batch,) in loader] == sizes


# --- order ------------------------------------------------------------------------------------------------------------


GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "orders.json").read_text())["cases"]


@pytest.mark.parametrize("order", ["SEQUENTIAL", "RANDOM"])
def test_orders_are_ffcvs(photos, order):
    cases = [case for case in GOLDEN if case["order"] == order and case["world"] == 1 and case["num_samples"] <= 50]
    assert len(cases) >= 5
    for case in cases:
        indices = range(case["num_samples"]) if case["indices"] is None else case["indices"]
        if max(indices, default=0) >= 50:
            continue
        loader = Loader(photos, 1, order=OrderOption[order], seed=case["seed"], indices=indices, pipelines=ONLY_LABEL)
        plan = loader.plan(case["epoch"])
        assert [int(batch.samples[0]) for batch in plan] == case["result"]


def test_epochs_are_counted_from_0_and_may_be_chosen(photos):
    loader = Loader(photos, 10, num_workers=1, order=OrderOption.RANDOM, seed=7, pipelines=ONLY_LABEL)
    epochs = []
    for epoch in range(3):
        assert loader.next_epoch == epoch
        epochs.append(labels(loader))
    assert epochs[0] != epochs[1] != epochs[2]
    loader.next_epoch = 1
    assert labels(loader) == epochs[1]
    assert loader.next_epoch == 2
    loader.set_epoch(0)
    assert labels(loader) == epochs[0]
    with pytest.raises(OptionError, match="epoch is -1"):
        loader.set_epoch(-1)


@pytest.mark.parametrize("order", [OrderOption.RANDOM, "random", "RANDOM"])
def test_an_order_may_be_given_by_its_name(photos, order):
    loader = Loader(photos, 50, num_workers=1, order=order, seed=7, pipelines=ONLY_LABEL)
    assert labels(loader) == [(np.random.default_rng(7).permutation(50) * 10).tolist()]


def test_an_order_of_ones_own_decides(photos):
    class Backwards(TraversalOrder):
        def __init__(self, loader, step=1):
            super().__init__(loader)
            self.step = step

        def sample_order(self, epoch):
            return [int(index) for index in self.indices[:: -self.step]][epoch:]

    loader = Loader(
        photos,
        3,
        num_workers=1,
        order=Backwards,
        order_kwargs={"step": 2},
        pipelines=ONLY_LABEL,
        drop_last=False,
        indices=range(10),
    )
    assert labels(loader) == [[90, 70, 50], [30, 10]]
    assert len(loader) == 2
    assert labels(loader) == [[70, 50, 30], [10]]


def test_an_order_that_gives_what_is_no_sample_is_refused(photos):
    class Wrong(TraversalOrder):
        def sample_order(self, epoch):
            return [0, 50]

    loader = Loader(photos, 1, num_workers=1, order=Wrong, pipelines=ONLY_LABEL)
    with pytest.raises(OptionError, match=r"the order holds 50 .* the file has 50 samples"):
        iter(loader)


def test_a_quasi_random_epoch_holds_every_sample_once(photos):
    loader = Loader(
        photos, 7, num_workers=1, order=OrderOption.QUASI_RANDOM, seed=1, drop_last=False, pipelines=ONLY_LABEL
    )
    first, second = labels(loader), labels(loader)
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(0, 500, 10))
    assert first != second


# --- randomness -------------------------------------------------------------------------------------------------------


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
    found = by_sample(Loader(photos, **{**same, **changes}))
    assert equal(found, {sample: expected[sample] for sample in found})
    assert not equal(by_sample(Loader(photos, **{**same, "seed": 6})), expected)


def test_without_a_seed_numpys_global_generator_decides_and_the_seed_is_shown(photos):
    state = np.random.get_state()  # noqa: NPY002  the global generator is the point
    first, second = (Loader(photos, 8, num_workers=1, pipelines=ONLY_LABEL) for _ in range(2))
    np.random.set_state(state)  # noqa: NPY002
    third = Loader(photos, 8, num_workers=1, pipelines=ONLY_LABEL)
    assert first.seed == third.seed != second.seed
    assert f"seed {first.seed}" in repr(first)


# --- pipelines --------------------------------------------------------------------------------------------------------


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
    for ours, theirs in zip(first, second, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
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


def test_explain_prints_what_runs_where(photos, capsys):
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


# --- filter -----------------------------------------------------------------------------------------------------------


def test_filter_keeps_the_samples_that_meet_the_condition_also_with_indices(photos):
    loader = Loader(
        photos, 2, num_workers=1, order="random", seed=1, indices=range(48, 3, -5), pipelines=ONLY_LABEL, drop_last=True
    )
    seen = []
    kept = loader.filter("label", lambda value: (seen.append(value), int(value) % 20 == 10)[1])
    assert [int(value) for value in seen] == list(range(480, 30, -50))
    assert kept.indices.tolist() == [43, 33, 23, 13]
    assert sorted(chain(*labels(kept))) == [130, 230, 330, 430]
    assert (kept.order, kept.seed, kept.drop_last, kept.batch_size) == ("random", 1, True, 2)
    assert loader.next_epoch == 0


def test_filter_gives_a_row_of_the_pipelines_result(photos):
    shapes = set()
    loader = Loader(photos, 7, num_workers=1, pipelines={"image": augmented()})
    loader.filter("label", lambda value: shapes.add((type(value), tuple(value.shape))))
    loader.filter("image", lambda value: shapes.add((type(value), tuple(value.shape))))
    assert shapes == {(torch.Tensor, (1,)), (torch.Tensor, (3, 24, 20))}


def test_filter_works_on_fields_that_are_switched_off_and_may_keep_nothing(photos):
    loader = Loader(photos, 7, num_workers=1, pipelines=ONLY_LABEL, on_error="skip")
    assert loader.filter("weight", lambda value: value > 12).indices.tolist() == [49]
    nothing = loader.filter("weight", lambda value: value > 13)
    assert len(nothing) == 0
    assert list(nothing) == []
    with pytest.raises(NoSuchFieldError, match="no field 'picture'; there are 'image', 'label'"):
        loader.filter("picture", bool)


# --- several at once --------------------------------------------------------------------------------------------------


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

    expected = [by_sample(make(*own)) for own in arguments]
    found = [None] * len(arguments)

    def run(number):
        found[number] = by_sample(make(*arguments[number]))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(equal(one, other) for one, other in zip(found, expected, strict=True))


def test_several_threads_may_share_an_iterator(photos):
    loader = Loader(photos, 2, num_workers=2, pipelines=ONLY_LABEL)
    batches, received = iter(loader), []
    threads = [
        threading.Thread(target=lambda: received.extend(batch.tolist() for (batch,) in batches)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(chain(*received)) == list(range(0, 500, 10))


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; expected at least 1"),
        ({"batch_size": 2.5}, "batch_size is 2.5; expected a whole number"),
        ({"num_workers": 10_000}, "num_workers is 10000, but this process may use .*-1 uses all"),
        ({"batches_ahead": 0}, "batches_ahead is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": "one"}, "seed is 'one'"),
        ({"indices": [3, 50]}, "indices holds 50 .* the file has 50 samples; expected 0 to 49"),
        ({"indices": [-1]}, "indices holds -1"),
        ({"indices": [0.5]}, "indices has shape .* float64"),
        ({"indices": [[1, 2]]}, r"indices has shape \(1, 2\)"),
        ({"indices": [True] * 50}, "np.flatnonzero"),
        ({"order": "shuffled"}, "order is 'shuffled'; expected one of OrderOption.SEQUENTIAL"),
        ({"order": int}, "order is <class 'int'>"),
        ({"on_error": "ignore"}, "on_error is 'ignore'; expected one of 'raise', 'skip', 'replace'"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"distributed": True}, "init_process_group"),
    ],
)
def test_an_argument_out_of_its_range_is_refused_with_what_to_try(photos, arguments, message):
    with pytest.raises(OptionError, match=message):
        Loader(photos, **{"batch_size": 4, "pipelines": ONLY_LABEL, "seed": 0, **arguments})


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda", 1)])
def test_a_gpu_is_refused_with_what_to_do_instead(photos, device):
    with pytest.raises(DeviceError, match=r"does not exist yet.*ToDevice"):
        Loader(photos, 4, device=device, pipelines=ONLY_LABEL)


@pytest.mark.parametrize("device", ["auto", "cpu", torch.device("cpu")])
def test_the_cpu_is_what_there_is(photos, device):
    assert Loader(photos, 4, device=device, pipelines=ONLY_LABEL).device == "cpu"


@pytest.mark.parametrize("number", [-1, 0])
def test_by_default_there_is_a_worker_for_each_core(photos, number):
    import os

    assert Loader(photos, 4, num_workers=number, pipelines=ONLY_LABEL).num_workers == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("value", "expected"), [("0", True), ("1", False), ("", True)])
def test_ffcvs_environment_variable_decides_how_files_are_read(photos, monkeypatch, value, expected):
    monkeypatch.setenv("FFCV_DEFAULT_CACHE_PROCESS", value)
    assert Loader(photos, 4, pipelines=ONLY_LABEL).os_cache is expected
    assert Loader(photos, 4, os_cache=True, pipelines=ONLY_LABEL).os_cache


@pytest.mark.parametrize(
    "indices", [torch.tensor([3, 1]), np.array([3, 1], np.int8), (3, 1), [np.uint64(3), np.uint64(1)]]
)
def test_indices_may_be_given_in_many_ways(photos, indices):
    assert labels(Loader(photos, 2, num_workers=1, indices=indices, pipelines=ONLY_LABEL)) == [[30, 10]]


def test_an_unknown_field_or_an_impossible_pipeline_is_told_when_the_loader_is_made(photos):
    with pytest.raises(NoSuchFieldError, match="'picture'"):
        Loader(photos, 4, pipelines={"picture": []})
    with pytest.raises(PipelineError, match="constant size"):
        Loader(photos, 4)
    with pytest.raises(FileNotFoundError):
        Loader("nowhere.beton", 4)


def test_the_reader_and_the_order_are_at_hand(photos):
    loader = Loader(photos, 4, pipelines=ONLY_LABEL)
    assert isinstance(loader.reader, Reader)
    assert loader.reader.field_names == ["image", "label", "weight", "note", "info", "vector"]
    assert loader.traversal_order.sample_order(0).tolist() == loader.indices.tolist() == list(range(50))


def test_a_constant_size_is_asked_for_among_the_chosen_samples_only(photos):
    sizes = Reader(photos).metadata["f0"]
    (same,) = np.flatnonzero((sizes["height"] == sizes["height"][5]) & (sizes["width"] == sizes["width"][5]))[:1]
    ((image,),) = Loader(photos, 1, num_workers=1, indices=[same], pipelines=ONLY_IMAGE)
    assert image.shape == (1, sizes["height"][5], sizes["width"][5], 3)


def test_center_crops_of_the_last_smaller_batch_are_those_of_a_whole_one(photos):
    pipelines = {**ONLY_IMAGE, "image": [CenterCropRGBImageDecoder((16, 16), 1), ToTensor()]}
    whole, parts = (
        torch.cat([batch for (batch,) in Loader(photos, size, num_workers=2, drop_last=False, pipelines=pipelines)])
        for size in (50, 8)
    )
    assert torch.equal(whole, parts)
