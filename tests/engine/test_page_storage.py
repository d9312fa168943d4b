"""Pages that are loaded ahead: the bytes of the file, as many requests and as much memory as the plan promises."""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
import time

import numpy as np
import pytest

from gpubeton._bytes.open_files import SOURCES, OpenSources
from gpubeton._bytes.store_client import REPEATS
from gpubeton._engine.buffers import Staging
from gpubeton._engine.storage import LoadedStorage
from gpubeton._plan.order import EpochBatches
from gpubeton._plan.page_plan import PagePlan
from gpubeton.errors import LoaderClosedError, RemoteSlowDownError, StorageError
from gpubeton.format.regions import Regions
from tests.blocks import Blocks
from tests.bytes.unmapped_source import UnmappedSource, counted, traffic  # noqa: F401  a fixture
from tests.plan.test_page_plan import File
from tests.reference.window_order import window
from tests.waiting import wait_until

PAGE, PER_PAGE, NUM_PAGES = 64 << 10, 16, 60
SIZE = PAGE // PER_PAGE - 7
CONTENT = np.random.default_rng(0).integers(0, 256, (NUM_PAGES + 1) * PAGE, dtype=np.uint8)
PLACES = ((1 + np.arange(NUM_PAGES))[:, None] * PAGE + np.arange(PER_PAGE) * SIZE).reshape(-1).astype(np.uint64)
REGIONS = Regions(PLACES, np.full(len(PLACES), SIZE, np.uint64))
# Eight pages to a request would hide what each page does; a file of large pages has one to each.
FILES = [File(len(CONTENT), PAGE)]
BATCH = 20


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "content"
    path.write_bytes(CONTENT.tobytes())
    return path


@pytest.fixture(autouse=True)
def one_page_a_request(monkeypatch):
    monkeypatch.setattr("gpubeton._plan.page_plan.MAX_REQUEST", PAGE)


@pytest.fixture
def files(path, traffic):  # noqa: F811
    return OpenSources([(counted(path), UnmappedSource.find_identity(counted(path)))])


def window_order(streams=4, width=3, epoch=0):
    return window(np.arange(len(PLACES)), np.arange(len(PLACES)) // PER_PAGE, streams, width, 0, epoch)


def plan_of(order, in_work=0, first_batch=0, most_bytes=None):
    batches = EpochBatches(np.asarray(order, np.uint64), BATCH, drop_last=False)
    return PagePlan(batches, [REGIONS], FILES, first_batch=first_batch, in_work=in_work, most_bytes=most_bytes)


def content_of(samples):
    return [CONTENT[start : start + SIZE].tobytes() for start in PLACES[samples].tolist()]


def content_at(fetch):
    return [ctypes.string_at(address, SIZE) for address in fetch.addresses().tolist()]


def go_through(storage, order, in_work=0, first=0, on_batch=None):
    """Fetch all batches, some of them at a time; return those whose bytes are wrong."""
    fetches, wrong = [], []
    order = np.asarray(order)

    def finish():
        number, samples, fetch = fetches.pop(0)
        if content_at(fetch) != content_of(samples):
            wrong.append(number)
        fetch.release()

    for number in range(first, -(-len(order) // BATCH)):
        samples = order[number * BATCH : (number + 1) * BATCH]
        fetches.append((number, samples, storage.fetch(PLACES[samples], REGIONS.size[samples], number)))
        if on_batch is not None:
            on_batch(fetches[-1][-1])
        if len(fetches) > in_work:
            finish()
    while fetches:
        finish()
    return wrong


@pytest.mark.parametrize("most_bytes", [None, 0])
@pytest.mark.parametrize("first", [0, 17])
def test_every_batch_has_the_bytes_of_its_samples(files, traffic, first, most_bytes):  # noqa: F811
    order = window_order()
    plan = plan_of(order, first_batch=first, most_bytes=most_bytes)
    storage = LoadedStorage(files, plan)
    assert go_through(storage, order, first=first) == []
    assert storage.transfer.requests == len(traffic.requests) == plan.cost.requests
    assert storage.transfer.nbytes == traffic.nbytes == plan.cost.fetched_bytes
    storage.close()


def test_each_page_is_asked_for_once_in_the_order_of_need(files, traffic):  # noqa: F811
    order = window_order()
    storage = LoadedStorage(files, plan_of(order), most_requests=1)
    assert go_through(storage, order) == []
    storage.close()
    asked = [start // PAGE - 1 for _, start, _ in traffic.requests]
    assert sorted(asked) == list(range(NUM_PAGES))
    first_use = [int(np.flatnonzero(order // PER_PAGE == page)[0]) // BATCH for page in asked]
    assert first_use == sorted(first_use)


@pytest.mark.parametrize("requests", [1, 4, 16])
@pytest.mark.parametrize("in_work", [0, 3])
def test_the_memory_is_that_of_the_plan(files, traffic, requests, in_work):  # noqa: F811
    order = window_order(streams=4, width=5)
    plan = plan_of(order, in_work)
    storage = LoadedStorage(files, plan, most_requests=requests)
    assert go_through(storage, order, in_work, on_batch=lambda fetch: wait_until(lambda: fetch.is_ready)) == []
    storage.close()
    assert traffic.most_live_parts <= plan.in_use[0] + requests
    assert traffic.most_live_parts >= plan.in_use[0] - 1
    del storage
    gc.collect()
    wait_until(lambda: traffic.live == 0)  # the threads let go of the last parts


def test_pages_are_asked_for_ahead_and_no_further(files, traffic):  # noqa: F811
    storage = LoadedStorage(files, plan_of(range(len(PLACES))), first_requests=5)
    wait_until(lambda: len(traffic.requests) == 5)
    fetch = storage.fetch(PLACES[:BATCH], REGIONS.size[:BATCH], 0)  # two pages
    wait_until(lambda: fetch.is_ready and len(traffic.requests) == 7)
    time.sleep(0.05)
    assert len(traffic.requests) == 7
    storage.close()


def test_more_requests_are_made_at_once_only_if_pages_are_late(files, traffic):  # noqa: F811
    traffic.delay = 0.02
    order = range(len(PLACES))
    storage = LoadedStorage(files, plan_of(order), first_requests=2, most_requests=6)
    assert go_through(storage, order) == []
    assert storage.at_once == 6
    assert traffic.most_in_flight <= 6
    storage.close()
    traffic.delay, traffic.most_in_flight = 0.0, 0
    storage = LoadedStorage(files, plan_of(order), first_requests=2, most_requests=6)

    assert go_through(storage, order, in_work=1, on_batch=lambda fetch: wait_until(lambda: fetch.is_ready)) == []
    assert traffic.most_in_flight <= 2
    storage.close()


def test_an_error_is_raised_by_the_batch_that_needs_the_page_and_by_no_other(files, traffic):  # noqa: F811
    traffic.failing_at = 10 * PAGE
    storage = LoadedStorage(files, plan_of(range(len(PLACES))))
    for number in range(len(PLACES) // BATCH):
        samples = np.arange(number * BATCH, (number + 1) * BATCH)
        fetch = storage.fetch(PLACES[samples], REGIONS.size[samples], number)
        if 9 in samples // PER_PAGE:
            with pytest.raises(StorageError, match="planted"):
                fetch.addresses()
            assert not fetch.is_ready
        else:
            assert content_at(fetch) == content_of(samples)
        fetch.release()
    storage.close()


@pytest.mark.parametrize("is_pinned", [False, True])
def test_samples_of_no_batch_are_loaded_by_themselves(files, traffic, is_pinned):  # noqa: F811
    storage = LoadedStorage(files, plan_of(range(len(PLACES))), Staging(is_pinned=True) if is_pinned else None)
    before = storage.fetch(PLACES[:BATCH], REGIONS.size[:BATCH], 0)
    alone = storage.fetch(PLACES[[700, 3]], REGIONS.size[[700, 3]])
    assert content_at(alone) == content_of([700, 3])
    alone.release()
    assert content_at(before) == content_of(range(BATCH))
    before.release()
    assert go_through(storage, range(len(PLACES)), first=1) == []
    assert storage.transfer.requests == NUM_PAGES + 2
    storage.close()


@pytest.mark.parametrize("is_pinned", [False, True])
def test_closing_ends_all_waiting_and_all_threads(files, traffic, is_pinned, monkeypatch):  # noqa: F811
    monkeypatch.setattr("gpubeton._engine.storage._PATIENCE_SECONDS", 60)
    threads = set(threading.enumerate())
    with traffic.lock:  # no request goes on until the storage is being closed
        storage = LoadedStorage(
            files, plan_of(range(len(PLACES))), Staging(is_pinned=True) if is_pinned else None, most_requests=2
        )
        fetches = [
            storage.fetch(PLACES[start : start + BATCH], REGIONS.size[:BATCH], start // BATCH)
            for start in range(0, 400, BATCH)
        ]
        for fetch in fetches[:-1]:
            fetch.release()
        closing = threading.Thread(target=storage.close)
        closing.start()
        wait_until(lambda: storage._loader._is_closed)
    closing.join()
    storage.close()
    with pytest.raises(LoaderClosedError):
        fetches[-1].addresses()
    with pytest.raises(LoaderClosedError):
        storage.fetch(PLACES[:1], REGIONS.size[:1])
    assert set(threading.enumerate()) <= threads
    assert len(traffic.requests) <= 2


def test_regions_without_bytes_need_no_page(files, traffic):  # noqa: F811
    storage = LoadedStorage(files, plan_of(range(len(PLACES))), first_requests=1)
    size = REGIONS.size[:BATCH].copy()
    size[::2] = 0
    assert len(storage.fetch(PLACES[:BATCH], size, 0).addresses()) == BATCH
    assert len(storage.fetch(PLACES[BATCH : 2 * BATCH], np.zeros(BATCH, np.uint64), 1).addresses()) == BATCH
    assert len(storage.fetch(PLACES[:0], size[:0]).addresses()) == 0
    storage.close()


def test_pinned_memory_holds_the_same_bytes_and_is_given_back(files, traffic):  # noqa: F811
    blocks, order = Blocks(), window_order()
    staging = Staging(blocks, is_pinned=True)
    storage = LoadedStorage(files, plan_of(order, 2), staging)
    assert storage.is_pinned
    assert go_through(storage, order, in_work=2) == []
    storage.close()
    assert 1 <= len(blocks.alive()) <= 4
    del storage, staging
    gc.collect()
    assert blocks.alive() == []


def test_an_error_reaches_a_batch_whose_bytes_go_to_pinned_memory(files, traffic):  # noqa: F811
    traffic.failing_at = PAGE
    storage = LoadedStorage(files, plan_of(range(len(PLACES))), Staging(is_pinned=True))
    fetch = storage.fetch(PLACES[:BATCH], REGIONS.size[:BATCH], 0)
    with pytest.raises(StorageError, match="planted"):
        fetch.addresses()
    assert not fetch.is_ready
    fetch.release()
    storage.close()


def test_a_store_that_is_overloaded_gets_half_as_many_requests_at_once(files, traffic, monkeypatch):  # noqa: F811
    overloaded = set(range(5, 11))  # the requests that are made again, in one storm
    numbers, together = itertools.count(), threading.Barrier(8)

    class Overloaded(UnmappedSource):
        def load(self, start, size):
            content = super().load(start, size)
            if next(numbers) < 8:
                together.wait()  # all are begun before the first one slows the others down
            if len(traffic.requests) in overloaded:
                REPEATS.add(RemoteSlowDownError("planted"))
            return content

    monkeypatch.setitem(SOURCES, "counted", Overloaded)
    traffic.delay = 0.005
    storage = LoadedStorage(files, plan_of(range(len(PLACES))), first_requests=8, most_requests=8)
    wait_until(lambda: len(traffic.requests) == 8 and traffic.in_flight == 0)
    wait_until(lambda: storage.at_once < 8)
    assert storage.at_once == 4  # once for all requests that were in flight together
    traffic.most_in_flight = 0
    assert go_through(storage, range(200), on_batch=lambda fetch: wait_until(lambda: fetch.is_ready)) == []
    assert traffic.most_in_flight <= 4
    storage.close()


def go_through_two_epochs(files, guessed):
    """Go through epoch 0, during which the first parts of epoch `guessed` are asked for, then begin epoch 1."""
    orders = [window_order(epoch=epoch) for epoch in (0, 1, guessed)]
    first = LoadedStorage(files, plan_of(orders[0]), most_requests=8, plan_next=lambda: plan_of(orders[2]))

    def wait_for_the_plan(_):
        # A thread plans, when no part of this epoch is left to ask for; the batches after that ask for its parts.
        if (planned := first._pages._next.planned) is not None:
            planned.result()

    assert go_through(first, orders[0], on_batch=wait_for_the_plan) == []
    first.close()
    prefetched = first.take_prefetched()
    assert 1 <= len(prefetched) <= 8
    return LoadedStorage(files, plan_of(orders[1]), most_requests=8, prefetched=prefetched), orders[1]


def test_pages_requested_ahead_of_an_epoch_are_not_requested_again(files, traffic):  # noqa: F811
    second, order = go_through_two_epochs(files, guessed=1)
    assert go_through(second, order) == []
    second.close()
    assert second.transfer.requests == NUM_PAGES
    assert len(traffic.requests) == 2 * NUM_PAGES


def test_pages_requested_ahead_of_another_epoch_are_released(files, traffic):  # noqa: F811
    second, order = go_through_two_epochs(files, guessed=5)
    gc.collect()
    wait_until(lambda: traffic.in_flight == 0 and traffic.live_parts == 8)
    assert go_through(second, order) == []
    second.close()
