from __future__ import annotations

import numba
import numpy as np
import pytest
import torch

from gpubeton.errors import DeviceError, NoSuchFieldError, OptionError, PipelineError
from gpubeton.fields.decoders import (
    CenterCropRGBImageDecoder,
    IntDecoder,
)
from gpubeton.loader import Loader, config
from gpubeton.pipeline import PipelineSpec
from gpubeton.reader import Reader
from gpubeton.transforms import ToDevice, ToTensor
from gpubeton.traversal_order import TraversalOrder
from tests.loader.pipelines import ONLY_IMAGE, ONLY_LABEL, augmented, labels


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; .* at least 1"),
        ({"batch_size": 2.5}, "batch_size is 2.5; .*whole number"),
        ({"batches_ahead": 0}, "batches_ahead is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": "one"}, "seed is 'one'"),
        ({"indices": [3, 50]}, "indices .*50 .* 50 samples; expected 0 to 49"),
        ({"indices": [-1]}, "indices holds -1"),
        ({"indices": [0.5]}, "indices has shape .* float64"),
        ({"indices": [[1, 2]]}, r"indices has shape \(1, 2\)"),
        ({"indices": [True] * 50}, "np.flatnonzero"),
        ({"order": "shuffled"}, "order is 'shuffled'; expected one of OrderOption.SEQUENTIAL"),
        ({"order": "randm"}, "order is 'randm'; .*'sequential', 'random', 'quasi_random'"),
        ({"order": int}, "order is <class 'int'>"),
        ({"on_error": "ignore"}, "on_error is 'ignore'.*'raise', 'skip', 'replace'"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"device": "cuda:first"}, "device is 'cuda:first'"),
        ({"device": "cuda:"}, "device is 'cuda:'"),
        ({"device": True}, "device is True"),
        ({"distributed": True}, "init_process_group"),
    ],
)
def test_an_argument_out_of_its_range_is_refused_with_advice(photos, arguments, message):
    with pytest.raises(OptionError, match=message):
        Loader(photos, **{"batch_size": 4, "pipelines": ONLY_LABEL, "seed": 0, **arguments})


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("shuffle", "order=OrderOption.RANDOM"),
        ("sampler", "indices=.*distributed=True"),
        ("collate_fn", "in your loop"),
        ("pin_memory", "ToDevice"),
        ("timeout", "leave it out"),
        ("custom_field_mapper", "PipelineSpec"),
        ("prefetch_factor", "batches_ahead="),
        ("transform", "pipelines="),
        ("dataset", "the first argument is a path"),
        ("persistent_workers", "kept between epochs"),
        ("worker_init_fn", "seed="),
        ("generator", "seed="),
    ],
)
def test_an_argument_of_a_dataloader_is_refused_with_its_equivalent(photos, name, advice):
    with pytest.raises(TypeError, match=f"{name}: .*{advice}"):
        Loader(photos, 4, **{name: True})


def test_all_arguments_of_a_dataloader_are_named_at_once_and_a_misspelled_one_stays_a_type_error(photos):
    with pytest.raises(TypeError, match=r"pin_memory: .*; shuffle: "):
        Loader(photos, 4, shuffle=True, pin_memory=True, pipelines=ONLY_LABEL)
    with pytest.raises(TypeError, match="unexpected keyword argument 'batchsize'"):
        Loader(photos, batchsize=4)


def test_a_derived_loader_may_have_an_argument_shuffle(photos):
    class Shuffling(Loader):
        def __init__(self, *args, shuffle, **kwargs):
            super().__init__(*args, order="random" if shuffle else "sequential", **kwargs)

    assert Shuffling(photos, 4, shuffle=True, pipelines=ONLY_LABEL).order == "random"


def test_more_workers_than_threads_are_as_many_as_there_are(photos):
    most = numba.config.NUMBA_NUM_THREADS
    with pytest.warns(UserWarning, match=f"num_workers is 10000, .* {most} threads") as caught:
        loader = Loader(photos, 4, num_workers=10_000, pipelines=ONLY_LABEL)
    assert loader.num_workers == most
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="num_workers is 9999") as caught:
        loader.num_workers = 9999
    assert caught[0].filename == __file__
    assert len(list(loader)) == 12


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", 0, torch.device("cuda", 1)])
def test_a_gpu_that_is_asked_for_and_cannot_be_used_is_an_error(photos, device):
    with pytest.raises(DeviceError, match=r"torch"):
        Loader(photos, 4, device=device, pipelines={**ONLY_IMAGE, "image": augmented()})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_a_pipeline_wishes_for_and_cannot_be_used_is_a_warning_and_its_first_batch_an_error(photos):
    pipelines = {**ONLY_IMAGE, "image": [*augmented(), ToDevice("cuda:0")]}
    with pytest.warns(UserWarning, match=r"CPU.* cuda:0"):
        loader = Loader(photos, 4, pipelines=pipelines)
    assert loader.gpu is None
    assert loader.gpu_choice.target is None
    with pytest.raises(DeviceError, match=r"torch .*GPU"):
        next(iter(loader))


def test_without_a_wish_for_a_gpu_the_cpu_decodes_and_a_decoder_with_nothing_to_do_is_mentioned(photos):
    for device in ("auto", "cpu", torch.device("cpu")):
        loader = Loader(photos, 4, device=device, pipelines=ONLY_LABEL)
        assert (loader.gpu, loader.gpu_choice.target) == (None, None)
    reason = Loader(photos, 4, decoder="nvjpeg", pipelines=ONLY_LABEL).gpu_choice.reason
    assert reason == "no pipeline moves its batches to a GPU, so that decoder='nvjpeg' has nothing to do"


@pytest.mark.parametrize("decoder", ["", "NVJPEG", "dali", None, 3])
def test_an_unknown_decoder_is_refused_with_those_that_exist(photos, decoder):
    with pytest.raises(OptionError, match="'auto', 'entries', 'nvjpeg', 'cpu'"):
        Loader(photos, 4, decoder=decoder)


def test_there_are_as_many_workers_as_cores_and_no_more_than_numba_has_threads(photos, monkeypatch):
    monkeypatch.setattr(config, "count_cores", lambda: 8)
    for limit, workers in ((2, 2), (64, 8)):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", limit)
        for number in (-1, 0):
            assert Loader(photos, 4, num_workers=number, pipelines=ONLY_LABEL).num_workers == workers
    assert Loader(photos, 4, num_workers=3, pipelines=ONLY_LABEL).num_workers == 3


def test_a_loader_does_not_follow_changes_of_the_dicts_that_it_was_given(photos):
    class Stepwise(TraversalOrder):
        def __init__(self, loader, step):
            super().__init__(loader)
            self.step = step

        def sample_order(self, epoch):
            return self.indices[:: self.step]

    pipelines, order_kwargs = dict(ONLY_LABEL), {"step": 20}
    loader = Loader(photos, 3, num_workers=1, order=Stepwise, order_kwargs=order_kwargs, pipelines=pipelines)
    pipelines["weight"], order_kwargs["step"] = (), 1
    loader.indices = range(41)  # the order is made again
    assert labels(loader) == [[0, 200, 400]]
    assert (loader.pipelines, loader.order_kwargs) == (ONLY_LABEL, {"step": 20})


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


@pytest.mark.parametrize(
    ("pipelines", "message"),
    [
        ({"picture": []}, "a pipeline for 'picture', but the file has the fields 'image', 'label'"),
        ({"picture": None}, "a pipeline for 'picture'"),
        ({"again": PipelineSpec("picture")}, "'again' reads 'picture', but the file has 'image', 'label'"),
    ],
)
def test_a_pipeline_of_no_field_is_refused_with_the_names_that_there_are(photos, pipelines, message):
    with pytest.raises(NoSuchFieldError, match=message):
        Loader(photos, 4, pipelines={**ONLY_LABEL, **pipelines})
    with pytest.raises(FileNotFoundError):
        Loader("nowhere.beton", 4, pipelines=pipelines)


@pytest.mark.parametrize(
    ("pipelines", "message"),
    [
        ([[ToTensor()]], "pipelines .*list.*dict"),
        ({}, "SimpleRGBImageDecoder .also the decoder of pipelines that have none. .*constant size"),
        ({"label": IntDecoder()}, r"the pipeline of 'label' is .*IntDecoder.*; expected a list"),
        ({"image": [IntDecoder(), ToTensor()]}, "IntDecoder.* RGBImageField"),
        ({"label": [CenterCropRGBImageDecoder((4, 4), 1)]}, "IntField.* IntDecoder"),
        ({"label": [ToTensor(), CenterCropRGBImageDecoder((4, 4), 1)]}, "field 'label'"),
        ({"label": PipelineSpec("label", CenterCropRGBImageDecoder((4, 4), 1))}, "field 'label': .*'label' has none"),
        ({"label": "CenterCrop"}, "expected a list"),
        ({"label": [3]}, "field 'label': operation 0 of the pipeline is 3"),
    ],
)
def test_pipelines_of_another_form_are_refused_with_the_form_that_is_meant(photos, pipelines, message):
    usual = {**ONLY_LABEL, "image": ()} if not pipelines else ONLY_LABEL
    with pytest.raises(PipelineError, match=message):
        Loader(photos, 4, pipelines={**usual, **pipelines} if isinstance(pipelines, dict) else pipelines)


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


def test_a_loop_that_is_over_at_once_warns(photos):
    with pytest.warns(UserWarning, match="50 .* 60 .*drop_last=False"):
        assert list(Loader(photos, 60, pipelines=ONLY_LABEL)) == []
    assert len(list(Loader(photos, 60, drop_last=False, pipelines=ONLY_LABEL))) == 1
    assert list(Loader(photos, 60, indices=[], pipelines=ONLY_LABEL)) == []
