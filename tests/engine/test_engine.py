from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from gpubeton._bytes.open_files import OpenSources
from gpubeton._engine.batch_plan import Plan
from gpubeton._engine.buffers import ArrayPool
from gpubeton._engine.engine import Engine, EpochConfig
from gpubeton._engine.output_graph import compile_outputs
from gpubeton._engine.prefetch import Prefetcher
from gpubeton._engine.storage import LoadedStorage, MappedStorage
from gpubeton._plan.order import EpochBatches
from gpubeton.errors import BadImageError, NoSuchFieldError, PipelineError, StorageError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.fields.registry import open_index
from gpubeton.pipeline.pipeline_spec import PipelineSpec
from gpubeton.transforms import RandomHorizontalFlip, ToTensor
from tests.fake_worker_pool import FakeWorkerPool, level

CROP = [CenterCropRGBImageDecoder((8, 8), ratio=1), ToTensor()]


@pytest.fixture(scope="module")
def file(photos):
    return open_index(photos)


def levels(file):
    index, _ = file
    content = index.path.read_bytes()
    regions = index.regions("image")
    return [
        level(content[start : start + size])
        for start, size in zip(regions.offset.tolist(), regions.size.tolist(), strict=True)
    ]


class EngineBench:
    """An engine over a file, with everything that it needs."""

    def __init__(
        self, file, pipelines=None, *, samples=range(50), batch_size=8, bad=(), make_pool=FakeWorkerPool, **options
    ):
        index, fields = file
        self.indices = np.array(samples, np.uint64)
        outputs = compile_outputs(index, fields, {"image": CROP} if pipelines is None else pipelines, self.indices)
        self.plan = Plan(outputs, EpochBatches(self.indices, batch_size, drop_last=False), seed=3, epoch=2)
        self.storage = options.pop("storage", MappedStorage)(OpenSources([(index.path, index.files[0].identity)]))
        self.pools = []
        first_batch = options.pop("first_batch", 0)

        def start_pool(*arguments):
            self.pools.append(make_pool(*arguments))
            self.pools[-1].bad = frozenset(bad)
            return self.pools[-1]

        options = {"num_workers": 1, "batches_ahead": 2, "on_error": "raise", **options}
        self.engine = Engine(
            self.plan,
            self.storage,
            start_pool,
            ArrayPool(),
            EpochConfig(self.indices, **options),
            title=str(index.path),
            first_batch=first_batch,
        )

    def __iter__(self):
        return iter(Prefetcher(self.engine, 2))


class RecordedFetch:
    def __init__(self, fetch):
        self.addresses = fetch.addresses
        self.is_ready, self.is_released = True, False

    def release(self):
        self.is_released = True


def recorded(bench):
    """List the fetches of an engine from now on."""
    fetches, fetch = [], bench.storage.fetch
    bench.storage.fetch = lambda *regions: (fetches.append(RecordedFetch(fetch(*regions))), fetches[-1])[1]
    return fetches


@pytest.mark.parametrize("storage", [MappedStorage, LoadedStorage])
@pytest.mark.parametrize("batches_ahead", [1, 2, 5])
def test_the_right_bytes_reach_the_right_rows(file, storage, batches_ahead):
    samples = np.random.default_rng(0).permutation(50)
    received = list(EngineBench(file, samples=samples, storage=storage, batches_ahead=batches_ahead))
    assert [batch.number for batch in received] == list(range(7))
    assert np.concatenate([batch.samples for batch in received]).tolist() == samples.tolist()
    images = torch.cat([batch.outputs[0] for batch in received])
    assert (images == images[:, :1, :1, :1]).all()
    assert images[:, 0, 0, 0].tolist() == [levels(file)[sample] for sample in samples]


def test_every_field_of_a_batch_is_of_the_same_sample(file):
    for batch in EngineBench(file, {"image": CROP}, samples=[5, 3, 49, 5], batch_size=3):
        _, label, weight, note, info, vector = batch.outputs
        for row, sample in enumerate(batch.samples.tolist()):
            assert label[row].tolist() == [sample * 10]
            assert weight[row].tolist() == [sample / 4]
            assert note[row, sample % 5 :].tolist() == [0] * (4 - sample % 5)
            assert bytes(info[row].tolist()).rstrip(b"\0") == b'{"number": %d}' % sample
            assert (vector[row] == sample).all()


def test_a_file_without_images_needs_no_worker_pool(file):
    bench = EngineBench(file, {"image": None})
    assert [len(batch.outputs) for batch in bench] == [5] * 7
    assert bench.pools == []


def test_only_the_fields_that_are_wanted_are_read(file):
    bench = EngineBench(file, dict.fromkeys(["image", "label", "weight", "note", "vector"]))
    regions = file[0].regions("info")
    read = bench.plan[0].ranges(max_gap=0)
    assert int((read.stop - read.start).sum()) == int(regions.size[:8].sum())
    bench.engine.close()


def test_a_field_with_two_outputs_is_read_once_and_drawn_twice(file):
    crop = [RandomResizedCropRGBImageDecoder((8, 8)), ToTensor()]
    bench = EngineBench(file, {"image": crop, "again": PipelineSpec("image", transforms=crop)})
    assert [source.name for source in bench.plan.sources].count("image") == 1
    plan = bench.plan[0]
    assert (plan.images["image"].draws != plan.images["again"].draws).any()
    for batch in bench:
        assert torch.equal(batch.outputs[0], batch.outputs[-1])


def test_a_plan_is_a_sequence_and_opens_no_file(file, monkeypatch):
    bench = EngineBench(file, {"image": [RandomResizedCropRGBImageDecoder((8, 8))]})
    monkeypatch.setattr("builtins.open", None)
    assert len(bench.plan) == 7
    assert [plan.number for plan in bench.plan] == list(range(7))
    assert bench.plan[-1].samples.tolist() == [48, 49]
    assert [plan.number for plan in bench.plan[2:4]] == [2, 3]
    number, row = divmod(17, 8)
    (draw,) = bench.plan.of(np.array([17], np.uint64), 0).images["image"].draws
    assert (draw == bench.plan[number].images["image"].draws[row]).all()
    with pytest.raises(IndexError):
        bench.plan[7]


def test_an_engine_may_begin_in_the_middle(file):
    assert [batch.number for batch in EngineBench(file, first_batch=5)] == [5, 6]
    assert list(EngineBench(file, first_batch=7)) == []


def test_bytes_are_requested_before_the_worker_pool_has_a_free_slot(file):
    bench = EngineBench(file, batches_ahead=1)
    fetched = []
    fetch = bench.storage.fetch
    bench.storage.fetch = lambda *asked: (fetched.append(len(asked[0])), fetch(*asked))[1]
    assert bench.engine.start(may_wait=True)
    assert not bench.engine.start(may_wait=True)
    assert len(fetched) == 1 + 2
    bench.engine.close()


def test_a_batch_whose_bytes_are_not_there_is_not_waited_for_while_another_is_in_work(file):
    bench = EngineBench(file)
    fetches = recorded(bench)
    assert bench.engine.start(may_wait=True)
    fetches[1].is_ready = False
    assert not bench.engine.start(may_wait=False)
    assert bench.engine.start(may_wait=True)
    bench.engine.close()


def test_every_fetch_is_released_whether_its_batch_was_finished_or_not(file):
    bench = EngineBench(file)
    fetches = recorded(bench)
    for _ in range(2):
        bench.engine.start(may_wait=True)
    bench.engine.complete(bench.engine.collect())
    bench.engine.close()
    assert len(fetches) == 4
    assert all(fetch.is_released for fetch in fetches)


# --- bad images -------------------------------------------------------------------------------------------------------


def bad_levels(file, *samples):
    return {levels(file)[sample] for sample in samples}


def bad_samples(file, *samples):
    """All samples whose level is one of theirs."""
    return [sample for sample in range(50) if levels(file)[sample] in bad_levels(file, *samples)]


def test_a_bad_image_is_named_after_the_batches_before_it(file):
    bad = bad_samples(file, 19)
    batches = iter(EngineBench(file, bad=bad_levels(file, 19)))
    assert [next(batches).number for _ in range(bad[0] // 8)] == list(range(bad[0] // 8))
    with pytest.raises(
        BadImageError, match=rf"batch {bad[0] // 8} of epoch 2: sample {bad[0]}: image: level"
    ) as caught:
        next(batches)
    assert caught.value.samples == tuple(sample for sample in bad if sample // 8 == bad[0] // 8)
    assert len(caught.value.reasons) == len(caught.value.samples)
    assert list(batches) == []


def test_a_skipped_sample_is_missing_in_all_outputs_and_the_rest_arrives(file):
    bad = bad_samples(file, 19, 20, 47)
    received = list(EngineBench(file, bad=bad_levels(file, *bad), on_error="skip"))
    good = [sample for sample in range(50) if sample not in bad]
    assert np.concatenate([batch.samples for batch in received]).tolist() == good
    for batch in received:
        assert {len(output) for output in batch.outputs} == {len(batch.samples)}
        assert batch.outputs[0][:, 0, 0, 0].tolist() == [levels(file)[sample] for sample in batch.samples]
        assert batch.outputs[1][:, 0].tolist() == (batch.samples * 10).tolist()
    assert [entry.sample for batch in received for entry in batch.bad] == bad


def test_a_batch_of_which_nothing_is_left_has_no_outputs(file):
    bad = bad_samples(file, 8)
    (batch,) = EngineBench(file, samples=bad, bad=bad_levels(file, 8), on_error="skip")
    assert batch.outputs is None
    assert len(batch.samples) == 0
    assert [entry.sample for entry in batch.bad] == bad


@pytest.mark.parametrize("storage", [MappedStorage, LoadedStorage])
def test_a_bad_sample_is_replaced_by_the_next_good_one_in_all_outputs(file, storage):
    bad = bad_samples(file, 19, 20, 47)
    samples = [*range(40), 47]  # 47 is followed by the first
    bench = EngineBench(file, samples=samples, bad=bad_levels(file, *bad), on_error="replace", storage=storage)
    for batch in bench:
        for row, planned in enumerate(samples[batch.number * 8 : batch.number * 8 + 8]):
            expected = planned
            while expected in bad:
                expected = samples[(samples.index(expected) + 1) % len(samples)]
            assert int(batch.samples[row]) == expected
            assert int(batch.outputs[0][row, 0, 0, 0]) == levels(file)[expected]
            assert int(batch.outputs[1][row, 0]) == expected * 10
            assert (batch.outputs[5][row] == expected).all()
    assert bench.indices.tolist() == samples  # the plan stays as it was


def test_the_replacement_of_a_sample_does_not_depend_on_the_batch(file):
    bad = bad_samples(file, 19, 20)

    def replaced(batch_size):
        bench = EngineBench(
            file, samples=range(40), bad=bad_levels(file, *bad), on_error="replace", batch_size=batch_size
        )
        return np.concatenate([batch.samples for batch in bench]).tolist()

    assert replaced(1) == replaced(7) == replaced(40)


def test_if_nothing_can_replace_a_sample_it_is_named(file):
    bench = EngineBench(file, bad=range(256), on_error="replace")
    with pytest.raises(BadImageError, match="16 samples") as caught:
        list(bench)
    assert caught.value.samples == (0,)
    assert bench.pools[0].num_decoded <= 3 * 8 + 16


def test_a_sample_whose_image_is_bad_in_two_views_is_named_once_with_one_reason(file):
    bench = EngineBench(
        file, {"image": CROP, "again": PipelineSpec("image", transforms=CROP)}, samples=[19], bad=range(256)
    )
    with pytest.raises(BadImageError) as caught:
        list(bench)
    assert caught.value.samples == (19,)
    (reason,) = caught.value.reasons
    assert reason.count("level") == reason.count("image: level") == 1


# --- errors -----------------------------------------------------------------------------------------------------------


def notes_of(error):
    if sys.version_info < (3, 11):
        pytest.skip("notes came with Python 3.11")
    return " / ".join(error.__notes__)


def test_an_error_of_a_users_draws_reaches_the_loop_with_its_batch(file):
    class Broken(RandomHorizontalFlip):
        def draw(self, *_):
            raise ValueError("planted")

    with pytest.raises(ValueError, match="planted") as caught:
        list(EngineBench(file, {"image": [CROP[0], Broken(), ToTensor()]}))
    assert "batch 0 of epoch 2" in notes_of(caught.value)


def test_an_error_of_a_worker_reaches_the_loop_with_batch_and_samples_and_closes_everything(file):
    class DyingPool(FakeWorkerPool):
        def collect(self):
            if self.num_collected == 3:
                raise MemoryError("planted")
            return super().collect()

    bench = EngineBench(file, make_pool=DyingPool)
    with pytest.raises(MemoryError, match="planted") as caught:
        list(bench)
    assert bench.pools[0].is_closed.is_set()
    assert "batch 3 of epoch 2, samples 24, 25, 26, 27, 28, 29, 30, 31" in notes_of(caught.value)


def test_an_error_of_a_pipeline_reaches_the_loop_with_the_output_and_its_own_type(file):
    class Broken(torch.nn.Module):
        def forward(self, batch):
            raise ZeroDivisionError("planted")

    bench = EngineBench(file, {"image": CROP, "vector": [ToTensor(), Broken()]})
    with pytest.raises(ZeroDivisionError, match="planted") as caught:
        list(bench)
    assert "in the pipeline of 'vector'" in notes_of(caught.value)
    assert "batch 0 of epoch 2" in notes_of(caught.value)


def test_an_error_of_the_disk_reaches_the_loop(file):
    class BrokenStorage(MappedStorage):
        num_fetches = 0

        def fetch(self, offset, size, batch=None):
            self.num_fetches += 1
            if self.num_fetches == 4:
                raise StorageError("planted")
            return super().fetch(offset, size, batch)

    bench = EngineBench(file, storage=BrokenStorage)
    with pytest.raises(StorageError, match="planted"):
        list(bench)
    assert bench.pools[0].is_closed.is_set()


def test_long_batches_are_not_listed_in_full(file):
    class DyingPool(FakeWorkerPool):
        def collect(self):
            raise MemoryError

    with pytest.raises(MemoryError) as caught:
        list(EngineBench(file, make_pool=DyingPool, batch_size=50))
    assert "5, 6, 7, ... (50 in all)" in notes_of(caught.value)


# --- pipelines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pipelines", "message"),
    [
        ({"image": "CenterCrop"}, "expected a list of operations"),
        ({"image": ToTensor()}, "expected a list of operations"),
        ({"image": [3]}, "field 'image': operation 0 of the pipeline is 3"),
        ({"image": None, "label": [ToTensor(), CROP[0]]}, "field 'label'"),
        ({"image": None, "label": PipelineSpec("label", decoder=CROP[0])}, "field 'label': .*'label' has none"),
        ({}, "field 'image': SimpleRGBImageDecoder only supports images of constant size"),
    ],
)
def test_a_pipeline_that_cannot_be_planned_is_refused_with_its_field(file, pipelines, message):
    with pytest.raises(PipelineError, match=message):
        EngineBench(file, pipelines)


@pytest.mark.parametrize(
    ("pipelines", "message"),
    [
        ({"picture": []}, "a pipeline for 'picture', but the file has the fields 'image', 'label'"),
        ({"picture": None}, "a pipeline for 'picture'"),
        ({"again": PipelineSpec("picture")}, "'again' reads 'picture', but the file has 'image', 'label'"),
    ],
)
def test_a_pipeline_of_no_field_is_refused_with_the_names_that_there_are(file, pipelines, message):
    with pytest.raises(NoSuchFieldError, match=message):
        EngineBench(file, pipelines)
