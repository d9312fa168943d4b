from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from gpubeton._bytes.open_files import OpenSources
from gpubeton._engine.buffers import ArrayPool
from gpubeton._engine.engine import Engine, EpochConfig
from gpubeton._engine.prefetch import Prefetcher
from gpubeton._engine.storage import MappedStorage
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.format import open_dataset
from gpubeton.loader import Loader
from gpubeton.pipeline.pipeline_spec import PipelineSpec
from gpubeton.transforms import RandomHorizontalFlip, ToTensor
from tests.fake_worker_pool import FakeWorkerPool

CROP = [CenterCropRGBImageDecoder((8, 8), ratio=1), ToTensor()]


@pytest.fixture(scope="module")
def file(photos):
    return photos


class EngineBench:
    """An engine over a file, with everything that it needs."""

    def __init__(self, file, pipelines=None, *, samples=range(50), batch_size=8, make_pool=FakeWorkerPool, **options):
        self.indices = np.array(samples, np.uint64)
        pipelines = {"image": CROP} if pipelines is None else pipelines
        loader = Loader(file, batch_size, seed=3, indices=samples, drop_last=False, pipelines=pipelines)
        index, self.plan = loader.reader.index, loader.plan(2)
        self.storage = MappedStorage(OpenSources([(index.path, index.files[0].identity)]))
        self.pools = []

        def start_pool(*arguments):
            self.pools.append(make_pool(*arguments))
            return self.pools[-1]

        options = {"num_workers": 1, "batches_ahead": 2, "on_error": "raise", **options}
        self.engine = Engine(
            self.plan,
            self.storage,
            start_pool,
            ArrayPool(),
            EpochConfig(self.indices, **options),
            title=str(index.path),
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


def test_every_field_of_a_batch_is_of_the_same_sample(file):
    for batch in EngineBench(file, {"image": CROP}, samples=[5, 3, 49, 5], batch_size=3):
        _, label, weight, note, info, vector = batch.outputs
        for row, sample in enumerate(batch.samples.tolist()):
            assert label[row].tolist() == [sample * 10]
            assert weight[row].tolist() == [sample / 4]
            assert note[row, sample % 5 :].tolist() == [0] * (4 - sample % 5)
            assert bytes(info[row].tolist()).rstrip(b"\0") == b'{"number": %d}' % sample
            assert (vector[row] == sample).all()


def test_only_the_fields_that_are_wanted_are_read(file):
    bench = EngineBench(file, dict.fromkeys(["image", "label", "weight", "note", "vector"]))
    regions = open_dataset(file).regions("info")
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


# --- errors -----------------------------------------------------------------------------------------------------------


def notes_of(error):
    if sys.version_info < (3, 11):
        pytest.skip("notes came with Python 3.11")
    return " / ".join(error.__notes__)


def test_an_error_of_users_draws_or_of_a_pipeline_reaches_the_loop_with_its_type_its_batch_and_the_output(file):
    class BrokenDraws(RandomHorizontalFlip):
        def draw(self, *_):
            raise ZeroDivisionError("planted")

    class Broken(torch.nn.Module):
        def forward(self, batch):
            raise ZeroDivisionError("planted")

    for pipelines, place in (
        ({"image": [CROP[0], BrokenDraws(), ToTensor()]}, "batch 0"),
        ({"image": CROP, "vector": [ToTensor(), Broken()]}, "in the pipeline of 'vector'"),
    ):
        with pytest.raises(ZeroDivisionError, match="planted") as caught:
            list(EngineBench(file, pipelines))
        assert place in notes_of(caught.value)
        assert "batch 0 of epoch 2" in notes_of(caught.value)


@pytest.mark.parametrize(
    ("batch_size", "batch", "listed"),
    [(8, 3, "batch 3 of epoch 2, samples 24, 25, 26, 27, 28, 29, 30, 31"), (50, 0, "5, 6, 7, ... (50 in all)")],
)
def test_an_error_of_a_worker_reaches_the_loop_with_batch_and_samples_and_closes_all(file, batch_size, batch, listed):
    class DyingPool(FakeWorkerPool):
        def collect(self):
            if self.num_collected == batch:
                raise MemoryError("planted")
            return super().collect()

    bench = EngineBench(file, make_pool=DyingPool, batch_size=batch_size)
    with pytest.raises(MemoryError, match="planted") as caught:
        list(bench)
    assert bench.pools[0].is_closed.is_set()
    assert listed in notes_of(caught.value)
