"""Loaders of files in object stores and on web servers: the batches of the same files here, or an error."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import zlib

import numpy as np
import pytest

from benchmarks.sparse_file import write_sparse_beton
from gpubeton import Loader
from gpubeton._engine import remote_entry_points
from gpubeton.dataset import Settings, convert, open_source
from gpubeton.dataset import verify as verify_file
from gpubeton.errors import (
    BadImageError,
    LoaderClosedError,
    OptionError,
    RemoteChangedError,
    RemoteMissingError,
    RemoteSlowDownError,
    StorageError,
)
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.format.entry_points import find_stored
from gpubeton.format.file_notes import Notes
from gpubeton.format.layout import ALLOCATION_DTYPE
from gpubeton.loader import RemoteOptions
from gpubeton.reader import Reader
from gpubeton.transforms import ToTensor
from tests.bytes.fault_server import Fault
from tests.picture_folders import write_folder

WITHOUT_ENTRIES = 6  # the first batches of an epoch are decoded without entry points


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A file of a converted folder, with notes, class names, checksums and entry points."""
    folder = tmp_path_factory.mktemp("photos")
    write_folder(folder / "source", 24)
    path = folder / "photos.beton"
    convert(open_source(folder / "source"), path, Settings(page_size=1 << 21), num_workers=1)
    return path


def opened(fname, **options):
    image = [RandomResizedCropRGBImageDecoder((16, 16)), ToTensor()]
    return Loader(
        fname, 2, num_workers=1, order="window", seed=3, drop_last=False, pipelines={"image": image}, **options
    )


def batches(fname, **options):
    with opened(fname, **options) as loader:
        return [[output.numpy().tobytes() for output in batch] for _ in range(2) for batch in loader]


def test_a_folder_is_its_files_by_name_and_lists_mix_places(photos, tmp_path, s3_server, fault_server):
    for key in ("data/b.beton", "data/a.beton", "data/notes.txt", "data/deep/c.beton"):
        s3_server.put(key, photos)
    fault_server.objects["w.beton"] = photos.read_bytes()
    reader = Reader(s3_server.url("data/"))
    assert [file.path for file in reader.index.files] == [s3_server.url("data/a.beton"), s3_server.url("data/b.beton")]
    mixed = [photos, fault_server.url("w.beton"), s3_server.url("data/")]
    assert batches(mixed) == batches([photos] * 4)
    assert Reader(mixed).locate(Reader(photos).num_samples)[0] == fault_server.url("w.beton")


def test_a_folder_without_files_lists_its_content_in_the_error(s3_server):
    s3_server.put("data/notes.txt", b"x")
    with pytest.raises(RemoteMissingError, match=r"data/: 1 other objects, .*notes\.txt"):
        Reader(s3_server.url("data/"))
    with pytest.raises(RemoteMissingError, match="none/"):
        Reader(s3_server.url("none/"))


def noted(path, count, raw_side=2):
    """A file of `count` images of zeros with notes and checksums."""
    write_sparse_beton(path, count, 3 * raw_side**2, raw_side=raw_side)
    content, table = path.read_bytes(), count * ALLOCATION_DTYPE.itemsize
    sums = np.full(count, zlib.crc32(bytes(3 * raw_side**2)), np.uint32)
    notes = Notes({"class_names": ["cat", "dog"]}, sums).to_bytes()
    place = len(content) - table
    header = content[:16] + (place + len(notes)).to_bytes(8, "little")
    return header + content[24:place] + notes + content[place:], place


@pytest.mark.parametrize("count", [40_000, 100_000])
def test_opening_takes_two_round_trips(fault_server, tmp_path, count):
    # The metadata begin within the first request and end outside of it.
    fault_server.objects["large.beton"], place = noted(tmp_path / "large.beton", count)
    fault_server.latency = 0.5  # so that requests made together come together
    reader = Reader(fault_server.url("large.beton"))
    index = reader.index
    assert index.num_samples == count
    ranges = [(request.start, request.stop) for request in fault_server.requests]
    assert ranges[0] == (0, 256 << 10)
    assert fault_server.round_trips <= 2
    opening = sum(stop - start for start, stop in ranges)
    needed = count * (index.metadata_type.itemsize + ALLOCATION_DTYPE.itemsize + 4)
    assert needed < opening < needed + (512 << 10)
    fault_server.latency = 0
    with reader.index.files[0].open() as source:
        assert find_stored(source) == (place, place, ())  # without another request
    assert (index.regions("image").checksums == zlib.crc32(bytes(12))).all()
    assert sum(request.stop - request.start for request in fault_server.requests) == opening
    assert reader.class_names == ("cat", "dog")
    assert reader.checksums.tolist() == [zlib.crc32(bytes(12))] * count
    fetched = sum(request.stop - request.start for request in fault_server.requests) - opening
    assert fetched == 0
    damaged = bytearray(fault_server.objects["large.beton"])
    damaged[int(reader.index.regions("image").offset[7]) + 5] ^= 1
    fault_server.objects["large.beton"] = bytes(damaged)
    fault_server.requests.clear()
    assert verify_file(fault_server.url("large.beton")).bad_samples == [7]
    assert len(fault_server.requests) <= 8 + count / 4096


@pytest.mark.parametrize("order", ["sequential", "random", "window"])
def test_the_first_batch_takes_one_round_trip_after_those_that_open_the_file(fault_server, tmp_path, order):
    path = tmp_path / "large.beton"
    fault_server.objects["large.beton"], _ = noted(path, 40_000, raw_side=16)
    fault_server.latency = 0.5  # so that requests made together come together
    pipelines = {"image": [CenterCropRGBImageDecoder((8, 8), 1), ToTensor()], "label": None}
    with Loader(fault_server.url("large.beton"), 64, num_workers=1, order=order, pipelines=pipelines) as loader:
        assert fault_server.round_trips <= 2
        assert len(fault_server.requests) == 3
        iterator = iter(loader)
        next(iterator)
        assert fault_server.round_trips <= 3
        iterator.close()


def test_the_first_batches_wait_for_no_entry_points(photos, fault_server):
    content = photos.read_bytes()
    fault_server.objects["photos.beton"] = content
    fault_server.latency = 0.5  # so that requests made together come together
    with opened(fault_server.url("photos.beton"), indices=range(4)) as loader:
        assert fault_server.round_trips <= 2
        assert len(list(loader)) == 2
    assert fault_server.round_trips <= 3
    assert {request.path for request in fault_server.requests} == {"/photos.beton"}


def test_which_batches_use_entry_points_depends_on_their_number_alone(photos, fault_server):
    fault_server.objects["photos.beton"] = photos.read_bytes()
    with opened(fault_server.url("photos.beton")) as loader, opened(photos) as local:
        for _ in range(2):  # before they are there, and after
            uses = [plan.images["image"].num_entries is not None for plan in loader.plan()]
            assert uses == [False] * WITHOUT_ENTRIES + [True] * (12 - WITHOUT_ENTRIES)
            list(loader)
        assert all(plan.images["image"].num_entries.all() for plan in local.plan())


def made(loader):
    return [[output.numpy().tobytes() for output in batch] for batch in loader]


def test_no_batch_is_lost_where_the_store_fails_while_it_is_asked_for_entry_points(photos, fault_server, monkeypatch):
    fault_server.objects["photos.beton"] = photos.read_bytes()
    expected, received, goes_on = batches(photos), [], threading.Event()

    def fail(*_):
        goes_on.wait()
        raise RemoteSlowDownError("the store is overloaded")

    with opened(fault_server.url("photos.beton")) as loader:
        with monkeypatch.context() as patch:
            patch.setattr("gpubeton._engine.remote_entry_points.open_entry_points", fail)
            iterator = iter(loader)
            received += [next(iterator), next(iterator)]  # while it is silent
            goes_on.set()
            with pytest.raises(RemoteSlowDownError):
                received.extend(iterator)
        assert made(received) == expected[:WITHOUT_ENTRIES]
        assert made(loader) == expected[12:]  # the next epoch asks again


def loop(url, **options):
    with opened(url, remote=RemoteOptions(retry_seconds=1, silence_seconds=60, **options)) as loader:
        yield loader
        for batch in loader:
            yield [output.numpy().tobytes() for output in batch]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(503), RemoteSlowDownError),
        (Fault(cut=-1, is_reset=True), TimeoutError),
        (Fault(403), PermissionError),
        (Fault(replace=b"other"), RemoteChangedError),
        (Fault(404), FileNotFoundError),
    ],
)
def test_an_error_of_the_store_reaches_the_loop(photos, fault_server, fault, error):
    fault_server.objects["photos.beton"] = photos.read_bytes()
    steps = loop(fault_server.url("photos.beton"))
    next(steps)
    fault_server.always = fault
    with pytest.raises(error, match=r"photos\.beton"):
        list(steps)


def test_a_flipped_bit_is_noticed(photos, fault_server):
    content = photos.read_bytes()
    fault_server.objects["photos.beton"] = content
    regions = Reader(photos).index.regions("image")
    position = int(regions.offset[5] + regions.size[5] // 2)
    right = [step for step in loop(fault_server.url("photos.beton")) if isinstance(step, list)]
    # Once: the part is asked for again.
    steps = loop(fault_server.url("photos.beton"))
    next(steps)
    fault_server.faults.append(Fault(flip=position))
    assert list(steps) == right
    # Each time: the object itself is damaged.
    steps = loop(fault_server.url("photos.beton"))
    next(steps)
    fault_server.always = Fault(flip=position)
    with pytest.raises(BadImageError, match=r"photos\.beton: .*sample 5: image: .* CRC-32 .*gpubeton verify") as raised:
        list(steps)
    assert raised.value.samples == (5,)


def test_options_are_checked():
    wrong = {"requests": 0, "endpoint": "minio:9000", "retry_seconds": -1, "region": ""}
    for name, value in wrong.items():
        with pytest.raises(OptionError, match=name):
            RemoteOptions(**{name: value})
    with pytest.raises(OptionError, match="RemoteOptions"):
        Loader("s3://bucket/x.beton", 4, remote={"endpoint": "http://minio:9000"})


def read_again(url, results):
    try:
        Reader(url)
    except StorageError as error:
        results.put(str(error))
    else:
        results.put("read")


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_gets_an_error_and_others_read(photos, fault_server, method):
    fault_server.objects["photos.beton"] = photos.read_bytes()
    Reader(fault_server.url("photos.beton"))
    context = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    process = context.Process(target=read_again, args=(fault_server.url("photos.beton"), results))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert ("forked" in results.get()) == (method == "fork")


@pytest.mark.parametrize("kind", ["plain", "cached"])
def test_a_closed_loader_makes_no_further_requests(kind, photos, fault_server, tmp_path):
    fault_server.objects["a.beton"] = photos.read_bytes()
    options = RemoteOptions(retry_seconds=1000)
    cache = {"cache_dir": tmp_path / "cache", "cache_limit": "1 GB"} if kind == "cached" else {}
    before = set(threading.enumerate())
    loader = opened(fault_server.url("a.beton"), remote=options, **cache)
    fault_server.always = Fault(503)
    errors = []

    def loop():
        try:
            list(loader)
        except (LoaderClosedError, StorageError) as error:
            errors.append(error)

    threading.Thread(target=loop, name="gpubeton-loop").start()  # which may wait for the last pages of a cache
    while len([request for request in fault_server.requests if request.start]) < 2:
        time.sleep(0.01)
    loader.close()
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith(("gpubeton-load", "gpubeton-fill", "gpubeton-prefetch", "gpubeton-loop")):
            thread.join()  # they repeat nothing
    assert errors


def test_no_description_of_a_loader_shows_a_signature(photos, fault_server, capsys):
    fault_server.objects["w.beton"] = photos.read_bytes()
    url = fault_server.url("w.beton") + "?X-Amz-Signature=secret"
    loader = Loader(url, 8, order="window", num_workers=1, pipelines={"image": None})
    loader.explain()
    index = loader.reader.index
    texts = [capsys.readouterr().out, index.title, repr(index), index.origin(0)]
    assert not [text for text in texts if "secret" in text]


class DelayedSearch:
    """Replaces the search for entry points: waits, and fails for the first `faults` calls."""

    def __init__(self, monkeypatch, faults=0):
        self.faults, self.may_go_on, self.began = faults, threading.Event(), threading.Event()
        self._look = remote_entry_points.open_entry_points
        monkeypatch.setattr(remote_entry_points, "open_entry_points", self)

    def __call__(self, index):
        self.began.set()
        self.may_go_on.wait()
        self.faults -= 1
        if self.faults >= 0:
            raise RemoteSlowDownError("the store is overloaded")
        return self._look(index)


def test_a_loop_that_ends_early_does_not_wait_for_entry_points(photos, fault_server, monkeypatch):
    fault_server.objects["photos.beton"] = photos.read_bytes()
    expected, looking, is_needed = batches(photos), DelayedSearch(monkeypatch), threading.Event()
    load = remote_entry_points._EntryLoader.load

    def noting(*arguments):
        is_needed.set()
        return load(*arguments)

    monkeypatch.setattr(remote_entry_points._EntryLoader, "load", noting)
    with opened(fault_server.url("photos.beton"), batches_ahead=9) as loader:
        iterator = iter(loader)
        next(iterator)
        looking.began.wait()
        is_needed.wait()
        iterator.close()
        looking.may_go_on.set()
        assert made(loader) == expected[12:]


def test_entry_points_are_looked_for_again_in_a_forked_process(photos, fault_server, monkeypatch):
    fault_server.objects["photos.beton"] = photos.read_bytes()
    looking, number = DelayedSearch(monkeypatch), os.getpid()
    with opened(fault_server.url("photos.beton")) as loader:
        points = loader._resources.entry_points["image"]
        points.prepare(np.arange(2))
        looking.began.wait()
        monkeypatch.setattr(remote_entry_points, "open_entry_points", looking._look)
        monkeypatch.setattr(os, "getpid", lambda: number + 1)  # whose threads are not there
        assert points.of(np.arange(24))[1].all()
        monkeypatch.undo()
        looking.may_go_on.set()


def test_a_loader_that_is_given_up_ends_while_its_store_is_silent(photos, fault_server):
    fault_server.objects["photos.beton"] = photos.read_bytes()
    loader = opened(fault_server.url("photos.beton"), remote=RemoteOptions(retry_seconds=1000))
    fault_server.always = Fault(503)
    iterator = iter(loader)
    loader.close()
    with pytest.raises(LoaderClosedError):
        list(iterator)
