"""Files that cannot be mapped: the same batches as from local files, few requests, and errors at their place."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from gpubeton._engine.storage import LoadedStorage, NextEpoch
from gpubeton.errors import BadImageError, LoaderClosedError, StorageError
from gpubeton.fields import BytesField, IntField, RGBImageField
from gpubeton.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, resources
from gpubeton.transforms import Cutout, RandomHorizontalFlip, ToTensor
from gpubeton.traversal_order import TraversalOrder
from tests.bytes.unmapped_source import UnmappedSource, counted, traffic  # noqa: F401  a fixture
from tests.loader.test_elastic import rank_of
from tests.small_files import picture, write

PIPELINES = {
    "image": [RandomResizedCropRGBImageDecoder((16, 16)), RandomHorizontalFlip(), Cutout(3), ToTensor()],
    "label": [IntDecoder(), ToTensor()],
}
ORDERS = ["sequential", "random", "quasi_random", "window"]
PART = 128 << 10  # units of half of it
BATCH = 16


def received(loader, count=None):
    return list(each(loader, count))


def write_pictures(path, first=0, count=700, write_mode="raw"):
    fields = {"image": RGBImageField(write_mode=write_mode), "label": IntField(), "note": BytesField()}
    samples = []
    for number in range(count):
        rng = np.random.default_rng(number)
        shape = rng.integers(30, 60, 2).tolist()
        note = rng.integers(0, 256, number % 9, dtype=np.uint8)
        samples.append((picture(first + number, *shape), first + number, note))
    return str(write(path, fields, samples))


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Two files of about 60 parts each."""
    folder = tmp_path_factory.mktemp("unmapped")
    return [write_pictures(folder / "a.beton"), write_pictures(folder / "b.beton", 700, 300)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("gpubeton._plan.page_plan.MAX_REQUEST", PART)


def loader_of(path, **arguments):
    usual = {"num_workers": 1, "seed": 3, "drop_last": False, "pipelines": PIPELINES, "order": "window"}
    return Loader(path, BATCH, **{**usual, **arguments})


def each(loader, count=None):
    """Samples and bytes of the next batches of a loop."""
    batches = iter(loader)
    for _ in range(len(batches) if count is None else count):
        outputs = next(batches)
        yield batches.samples.tolist(), [np.asarray(output).tobytes() for output in outputs]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("most", [None, 0])
def test_batches_are_those_of_a_local_file(paths, traffic, monkeypatch, order, most):  # noqa: F811
    monkeypatch.setattr(resources, "memory_for_pages", lambda: most)
    with loader_of(paths[0], order=order) as local, loader_of(counted(paths[0]), order=order) as unmapped:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the cost of ranges
            for _ in range(2):
                assert received(unmapped) == received(local)
        assert unmapped.stats().requests > 0


def test_each_byte_comes_once_where_pages_are_whole(paths, traffic):  # noqa: F811
    with loader_of(counted(paths[0])) as loader:
        received(loader)
        stats = loader.stats()
    places = sorted((start, start + size) for _, start, size in traffic.requests[-stats.requests :])
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(places))
    assert stats.fetched_bytes == sum(stop - start for start, stop in places)
    assert 1 <= stats.fetched_bytes / stats.stored_bytes < 1.01
    assert f"{stats.requests} requests" in str(stats)


def test_a_file_without_regions_in_use_makes_no_request(paths, traffic):  # noqa: F811
    pipelines = {"image": None, "note": None}
    with loader_of(paths[0], pipelines=pipelines) as local, loader_of(counted(paths[0]), pipelines=pipelines) as loader:
        assert received(loader) == received(local)
        assert loader.stats().requests == 0


@pytest.mark.parametrize("order", ["random", "window"])
def test_ranks_share_an_epoch_as_they_do_with_local_files(paths, traffic, order):  # noqa: F811
    for rank in range(2):
        with rank_of(rank, 2), loader_of(paths[0], order=order, distributed=True) as local:
            expected = received(local)
        with rank_of(rank, 2), loader_of(counted(paths[0]), order=order, distributed=True) as unmapped:
            assert received(unmapped) == expected


@pytest.mark.parametrize("order", ["sequential", "window"])
def test_an_error_comes_in_place_of_its_batch_after_all_batches_before_it(paths, traffic, order):  # noqa: F811
    arguments = {"order": order}
    if order == "window":
        arguments["order_kwargs"] = {"streams": 1, "width": 1}  # no part of a later page comes early
    with loader_of(paths[0], **arguments) as local:
        expected, plan = received(local), local.plan(0)
        image = plan.outputs[0].source.regions[0]
    failing = int(plan[40].samples[7])
    with loader_of(counted(paths[0]), **arguments) as loader:
        traffic.failing_at = int(image.offset[failing])
        results = []
        with pytest.raises(StorageError, match="planted") as caught:
            results.extend(each(loader))
    asked = next(place for place in traffic.requests if place[1] <= traffic.failing_at < place[1] + place[2])
    is_hit = (image.offset >= asked[1]) & (image.offset < asked[1] + asked[2])
    first_hit = next(number for number in range(len(plan)) if is_hit[plan[number].samples].any())
    assert first_hit > 5
    assert results == expected[:first_hit]
    assert f"batch {first_hit} of epoch 0" in "".join(caught.value.__notes__)


def test_an_epoch_goes_on_if_nothing_of_the_next_can_be_asked_for(paths, traffic, monkeypatch):  # noqa: F811
    def request(*_):
        raise MemoryError("planted")

    with loader_of(paths[0]) as local, loader_of(counted(paths[0])) as loader:
        monkeypatch.setattr(NextEpoch, "request", request)
        for _ in range(2):  # the first epoch asks for nothing of the second
            assert received(loader) == received(local)


def test_a_bad_image_is_replaced_by_one_that_is_loaded_for_it(tmp_path, traffic):  # noqa: F811
    path = write_pictures(tmp_path / "bad.beton", count=60, write_mode="jpg")
    with loader_of(path) as loader:
        region = loader.plan().outputs[0].source.regions[0]
    with Path(path).open("r+b") as file:
        file.seek(int(region.offset[30]))
        file.write(b"no picture")
    with loader_of(counted(path), on_error="raise") as loader, pytest.raises(BadImageError):
        received(loader)
    results = []
    for name in (path, counted(path)):
        with loader_of(name, on_error="replace", indices=range(20, 50)) as loader:
            results.append(received(loader))
            assert loader.bad_samples[0][1] == 30
    assert results[0] == results[1]


def test_leaving_a_loop_cancels_outstanding_requests(paths, traffic, monkeypatch):  # noqa: F811
    monkeypatch.setattr("gpubeton._engine.storage._PATIENCE_SECONDS", 60)
    traffic.delay = 0.01
    with loader_of(counted(paths[0])) as loader:
        received(loader, 1)
        loader.close()
        result = len(traffic.requests)
    assert traffic.in_flight == 0
    assert len(traffic.requests) == result


@pytest.fixture
def gate(traffic, monkeypatch):  # noqa: F811
    """Holds back requests ahead of an epoch until it is opened."""

    def request(self, loader, count):
        original_request(self, loader, count)  # it begins to plan
        while not is_holding.is_set() and (loader._in_flight or loader._loads or not self.planned.done()):
            time.sleep(0.001)
        is_holding.set()
        original_request(self, loader, count)

    def load(self, start, size):
        if is_holding.is_set() and not gate.is_set():
            gate.wait()
        return original_load(self, start, size)

    gate, is_holding = threading.Event(), threading.Event()
    original_request, original_load = NextEpoch.request, UnmappedSource.load
    with monkeypatch.context() as patched:
        patched.setattr(NextEpoch, "request", request)
        patched.setattr(UnmappedSource, "load", load)
        patched.setattr("gpubeton._engine.storage._PATIENCE_SECONDS", 0.05)
        yield gate
        gate.set()


def test_a_loop_begins_while_another_goes_on(paths, traffic, gate):  # noqa: F811
    with loader_of(paths[0]) as local, loader_of(counted(paths[0]), batches_ahead=1) as loader:
        received(loader)
        first = iter(loader)
        for _ in range(len(first) - 1):
            next(first)
        second = iter(loader)
        assert len(list(first)) == 1  # its storage is closed before the parts have come that it asked for
        gate.set()
        local.set_epoch(2)
        expected = received(local)
        for samples, contents in expected:
            assert [np.asarray(output).tobytes() for output in next(second)] == contents
            assert second.samples.tolist() == samples


def test_closing_does_not_wait_for_the_parts_of_a_loop_before(paths, traffic, gate):  # noqa: F811
    with loader_of(counted(paths[0])) as loader:
        received(loader)
        received(loader)
        batches = iter(loader)
        loader.close()
        assert not gate.is_set()
        with pytest.raises(LoaderClosedError):
            list(batches)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_loads_regions_that_the_parent_has_requested(paths, traffic, gate):  # noqa: F811
    def compare():
        gate.set()
        results.put(received(loader) == expected)

    with loader_of(paths[0]) as local:
        local.set_epoch(2)
        expected = received(local)
    with loader_of(counted(paths[0])) as loader:
        received(loader)
        received(loader)
        context = multiprocessing.get_context("fork")
        results = context.SimpleQueue()
        process = context.Process(target=compare, daemon=True)
        process.start()
        process.join()
        process.kill()
        assert process.exitcode == 0
        assert results.get()
        gate.set()
        assert received(loader) == expected


def test_an_order_that_makes_many_requests_warns_once_with_their_number(paths, traffic, monkeypatch):  # noqa: F811
    monkeypatch.setattr(resources, "memory_for_pages", lambda: 1 << 20)
    monkeypatch.setattr("gpubeton._plan.page_plan.MAX_GAP", 0)
    monkeypatch.setattr("gpubeton._plan.page_plan._SAMPLES_AHEAD", BATCH)
    with loader_of(counted(paths[0]), order="random") as loader:
        with pytest.warns(UserWarning, match=r"requests for each 1000 images.*order=\"window\".*cache_dir") as caught:
            received(loader)
        assert len(caught) == 1
        promised = float(str(caught[0].message).split("an epoch makes ")[1].split()[0])
        assert 1000 * loader.stats().requests / 700 == pytest.approx(promised, rel=0.05)
        received(loader)  # without a warning
    with loader_of(counted(paths[0]), order="sequential") as loader:
        received(loader)


@pytest.mark.parametrize("order", ["random", "window"])
def test_explain_prints_requests_and_the_memory_that_is_taken(
    paths,
    traffic,  # noqa: F811
    monkeypatch,
    capsys,
    order,
):
    if order == "random":  # ranges
        monkeypatch.setattr(resources, "memory_for_pages", lambda: 0)
        monkeypatch.setattr(resources, "_LEAST_REQUESTS", 10_000)
    kwargs = {"streams": 2, "width": 1} if order == "window" else {}
    with loader_of(counted(paths[0]), order=order, order_kwargs=kwargs) as loader:
        loader.explain()
        lines = capsys.readouterr().out.splitlines()
        requests = float(next(line for line in lines if line.startswith("requests")).split()[1])
        memory = next(line for line in lines if line.startswith("memory for pages"))
        in_use = int(memory.split("at most ")[1].split()[0])
        traffic.most_live_parts = traffic.live_parts
        received(loader)
        stats = loader.stats()
    assert 1000 * stats.requests / stats.images == pytest.approx(requests, abs=0.05)
    assert in_use / 2 <= traffic.most_live_parts <= in_use + 64
    assert stats.fetched_bytes < 2 << 20 or not memory.startswith("memory for pages: 0 MiB")
    assert "loaded ahead, page by page" in lines[1]


@pytest.mark.parametrize("order", ["random", "window"])
def test_the_first_pages_of_the_next_epoch_come_before_it_begins(paths, traffic, order, monkeypatch):  # noqa: F811
    def request(self, loader, count):
        original_request(self, loader, count)  # it begins to plan
        self.planned.result()

    original_request = NextEpoch.request
    monkeypatch.setattr(NextEpoch, "request", request)
    with loader_of(paths[0], order=order) as local, loader_of(counted(paths[0]), order=order) as loader:
        received(loader)
        alone = len(traffic.requests)
        assert loader.stats().requests == alone - opening(traffic)
        received(loader)
        while len(traffic.requests) <= alone + loader.stats().requests:
            time.sleep(0.001)  # until the threads reach the requests
        local.set_epoch(2)
        assert received(loader) == received(local)
        requests = loader.stats().requests
        loader.set_epoch(7)  # another epoch than the one that was guessed
        local.set_epoch(7)
        assert received(loader) == received(local)
        assert loader.stats().requests == pytest.approx(requests, abs=2)
    assert traffic.in_flight == 0


def opening(traffic):  # noqa: F811
    """Requests that only read the metadata of the file."""
    return sum(start < 2 << 20 for _, start, _ in traffic.requests)


def test_a_loop_over_an_order_of_the_users_asks_for_nothing_of_the_next_epoch(paths, traffic):  # noqa: F811
    class Backwards(TraversalOrder):
        epochs = ()

        def sample_order(self, epoch):
            type(self).epochs += (epoch,)
            return self.indices[::-1]

    with loader_of(counted(paths[0]), order=Backwards) as loader:
        for _ in range(3):
            received(loader)
    assert set(Backwards.epochs) == {0, 1, 2}


@pytest.mark.parametrize("order", ORDERS)
def test_an_epoch_goes_on_where_another_loader_left_it(paths, traffic, order):  # noqa: F811
    with loader_of(paths[0], order=order) as local:
        expected = received(local)
    with loader_of(counted(paths[0]), order=order) as first, loader_of(counted(paths[0]), order=order) as second:
        assert received(first, 20) == expected[:20]
        second.load_state_dict(first.state_dict())
        assert received(second) == expected[20:]


def test_batches_before_one_that_cannot_be_begun_all_arrive(paths, traffic, monkeypatch):  # noqa: F811
    def fetch(self, offset, size, batch=None):
        if batch == 10:
            raise MemoryError("planted")
        return original(self, offset, size, batch)

    original, results = LoadedStorage.fetch, []
    monkeypatch.setattr(LoadedStorage, "fetch", fetch)
    with loader_of(paths[0]) as local, loader_of(counted(paths[0])) as loader:
        with pytest.raises(MemoryError, match="planted"):
            results.extend(each(loader))
        assert results == received(local, 10)
