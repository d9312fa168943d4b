"""Images in containers of object stores and web servers: batches as of the converted file, by few requests."""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from gpubeton import Loader
from gpubeton._bytes import object_store
from gpubeton._bytes.file_list import FileList
from gpubeton.dataset import Settings, convert, index_source, open_source, recognise
from gpubeton.errors import BadImageError, FormatError, OptionError, RemoteChangedError, RemoteMissingError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.transforms import ToTensor
from tests.cli.command import run
from tests.cpu.pictures import jpeg, noise
from tests.loader.test_elastic import global_batches
from tests.loader.test_elastic import run as run_ranks
from tests.loader.test_read_in_place import (
    CLASSES,
    ORDERS,
    converted,
    photos,
    pipelines,
    write_arrow,
    write_tars,
    write_zip,
)
from tests.picture_folders import write_tar

__all__ = ["converted", "photos"]

NAMES = [f"train-{number:03}.tar" for number in range(3)]


def opened(path, **options):
    usual = {"order": "window", "seed": 3, "num_workers": 1, "drop_last": False, "pipelines": pipelines()}
    return Loader(path, 4, **{**usual, **options})


def read(path, **options):
    """Read two epochs: of each, the first batches are decoded without entry points."""
    with opened(path, **options) as loader:
        return [[output.numpy().tobytes() for output in batch] for _ in range(2) for batch in loader]


def indexed(names, path, remote=None):
    """Index containers; give the arguments of a loader."""
    done = index_source(open_source(names, remote=remote), path, num_workers=1)
    assert (done.samples, done.indexed, done.unread) == (30, 30, [])
    return {"containers": done.outside}


@pytest.fixture
def folder(photos, tmp_path):
    """A folder of tar files on this machine, with an index of them."""
    (tmp_path / "tars").mkdir()
    write_tars(photos, tmp_path / "tars")
    assert indexed([tmp_path / "tars" / name for name in NAMES], tmp_path / "tars" / "a.index") == {"containers": []}
    return tmp_path / "tars"


@pytest.fixture
def bucket(folder, s3_server):
    """The URL of that folder in a bucket."""
    for path in folder.iterdir():
        s3_server.put(f"tars/{path.name}", path)
    return s3_server.url("tars/")


@pytest.fixture
def web(folder, fault_server):
    """The URL of that folder on a web server."""
    fault_server.objects |= {f"tars/{path.name}": path.read_bytes() for path in folder.iterdir()}
    return fault_server.url("tars/")


def points_of(loader, samples):
    return [values.tolist() for values in loader._resources.entry_points["image"].of(np.array(samples))[1:3]]


def requests_of(fault_server):
    return [(request.path.rpartition("/")[2], request.start, request.stop) for request in fault_server.gets()]


def forget(fault_server):
    """Forget the requests, and the first bytes of opened objects, which hold all of these small ones."""
    fault_server.forget()
    object_store._CACHED.clear()


def put_all(folder, bucket, prefix):
    """Put the files of a folder into a bucket; give the URL of that folder there."""
    for path in folder.rglob("*"):
        if path.is_file():
            bucket.put(f"{prefix}{path.relative_to(folder)}", path)
    return bucket.url(prefix)


def write_urls(photos, path, folder):
    """Write a table of photos by their names, or with a folder by their paths or URLs there."""
    rows = [f"{folder}{file.relative_to(photos)},{file.parent.name}" for file in sorted(photos.rglob("*.jpg"))]
    path.write_text("\n".join(["path,class", *rows]))
    return path


def write_arrow_file(folder):
    """Write the rows of Arrow streams in the file format, in batches of 8; the names of classes are a dictionary."""
    pyarrow = pytest.importorskip("pyarrow")
    streams = [pyarrow.ipc.open_stream(path.read_bytes()).read_all() for path in sorted(folder.glob("*.arrow"))]
    table = pyarrow.concat_tables(streams).combine_chunks()
    names = pyarrow.array(CLASSES).take(table.column("label").combine_chunks()).dictionary_encode()
    table = table.set_column(table.column_names.index("label"), "label", names)
    table = table.replace_schema_metadata({"huggingface": '{"info": {"features": {"image": {"_type": "Image"}}}}'})
    (folder / "file").mkdir()
    with pyarrow.ipc.new_file(folder / "file" / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=8)
    return folder / "file" / "a.arrow"


@pytest.mark.filterwarnings("error", "ignore:.*indexing .* took")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "place",
    ["objects", "index of objects", "index beside objects", "urls", "table there", "web urls", "arrow", "arrow file"],
)
def test_single_objects_and_arrow_files_in_a_store_give_the_batches_of_the_converted_file(
    place, order, photos, converted, s3_server, fault_server, tmp_path
):
    objects, more = put_all(photos, s3_server, "a b/photos/"), {}
    fault_server.objects |= {f"photos/{path.relative_to(photos)}": path.read_bytes() for path in photos.rglob("*.jpg")}
    name = objects
    if place == "index of objects":
        name, more = tmp_path / "a.index", indexed(objects, tmp_path / "a.index")
        assert more == {"containers": [objects]}
    elif place == "index beside objects":
        more = indexed(objects, tmp_path / "a.index")
        content = tmp_path.joinpath("a.index").read_bytes()
        name = s3_server.put("b/a.index", content)
    elif place in ("urls", "web urls"):
        name = write_urls(photos, tmp_path / "a.csv", objects if place == "urls" else fault_server.url("photos/"))
    elif place == "table there":
        name = s3_server.put("a b/a.csv", write_urls(photos, tmp_path / "a.csv", "photos/"))
    elif place in ("arrow", "arrow file"):
        folder = write_arrow(photos, tmp_path)
        name = put_all(folder, s3_server, "arrow/")
        if place == "arrow file":
            name = s3_server.put("a.arrow", write_arrow_file(folder)).replace("a.arrow", "*.arrow")
    assert read(name, order=order, **more) == read(converted, order=order)
    with opened(name, **more) as loader, opened(converted) as expected:
        assert loader.reader.index.fingerprint == expected.reader.index.fingerprint
        assert loader.reader.class_names == expected.reader.class_names


@pytest.mark.filterwarnings("error", "ignore:.*indexing .* took")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("place", ["pattern", "folder", "list", "index here", "index there", "web", "zip"])
def test_batches_and_orders_are_those_of_the_converted_file(
    place, order, bucket, web, photos, converted, s3_server, tmp_path, monkeypatch
):
    more = {"remote": s3_server.options}
    pattern = f"{bucket}train-{{000..002}}.tar"
    if place == "index here":
        more |= indexed(pattern, tmp_path / "a.index", s3_server.options)
        assert more["containers"] == [bucket]
    elif place == "zip":
        s3_server.put("photos.zip", write_zip(photos, tmp_path))
    name = {
        "pattern": pattern,
        "folder": bucket,
        "list": [bucket + name for name in NAMES],
        "index here": tmp_path / "a.index",
        "index there": f"{bucket}a.index",
        "web": [f"{web}{name}?version=3" for name in NAMES],
        "zip": s3_server.url("photos.zip"),
    }[place]
    monkeypatch.delenv("AWS_ENDPOINT_URL")  # all requests are made with the options
    assert read(name, order=order, **more) == read(converted, order=order)
    with opened(name, **more) as loader, opened(converted) as expected:
        assert loader.reader.index.fingerprint == expected.reader.index.fingerprint


@pytest.fixture
def urls(photos, fault_server, tmp_path):
    """A table of the photos on a web server, each an object."""
    fault_server.objects |= {f"photos/{path.relative_to(photos)}": path.read_bytes() for path in photos.rglob("*.jpg")}
    return write_urls(photos, tmp_path / "a.csv", fault_server.url("photos/"))


@pytest.mark.parametrize("order", ORDERS)
def test_an_epoch_takes_one_request_for_each_object_in_any_order(urls, fault_server, order):
    with opened(urls, order=order) as loader:
        assert len(fault_server.gets()) == 31  # for their headers, of which one is long
        fault_server.forget()
        list(loader)
        ranges = {(request.path[1:], request.start, request.stop) for request in fault_server.gets()}
        assert ranges == {(name, 0, len(content)) for name, content in fault_server.objects.items()}
        assert loader.stats().requests == 30
        assert loader.stats().fetched_bytes == sum(map(len, fault_server.objects.values()))


def test_objects_that_are_cached_are_requested_once(photos, s3_server, converted, tmp_path):
    objects = put_all(photos, s3_server, "photos/")
    cached = {"cache_dir": tmp_path / "cache", "cache_limit": "1 GB"}
    assert read(objects, **cached) == read(converted)
    with opened(objects, **cached) as loader:
        list(loader)
        assert loader.stats().requests == 0
        loader.explain()


@pytest.mark.parametrize("is_indexed", [False, True])
def test_an_object_that_is_replaced_or_deleted_is_named(photos, s3_server, tmp_path, is_indexed):
    objects, more = put_all(photos, s3_server, "photos/"), {"on_error": "skip"}
    name = tmp_path / "a.index" if is_indexed else objects
    if is_indexed:
        more |= indexed(objects, name)
    content = (photos / "dog/0011.jpg").read_bytes()
    for change in (bytes(len(content)), content[:-1], b"", content + b"x"):
        with opened(name, **more) as loader:
            s3_server.put("photos/dog/0011.jpg", change)
            with pytest.raises(RemoteChangedError, match=r"photos/dog/0011\.jpg: .*gpubeton index"):
                list(loader)
        s3_server.put("photos/dog/0011.jpg", content)
    with opened(name, **more) as loader:
        assert len(list(loader)) == 8  # the same bytes again
        s3_server.delete("photos/dog/0011.jpg")
        with pytest.raises(RemoteMissingError, match=r"photos/dog/0011\.jpg"):
            list(itertools.chain(loader, loader))


def test_objects_that_are_missing_in_a_table_are_bad_images(urls, fault_server):
    del fault_server.objects["photos/cat/0004.jpg"]
    with pytest.warns(UserWarning, match=r"1 of 30 images have no header .*cat/0004\.jpg \(row 4 of"):
        loader = opened(urls, on_error="skip", order="sequential")
    with loader:
        assert sum(len(images) for images, _ in loader) == 29
        assert [sample for _, sample, _ in loader.bad_samples] == [4]


def test_an_index_names_no_objects_elsewhere_unless_they_are_allowed(photos, s3_server, tmp_path):
    objects = put_all(photos, s3_server, "photos/")
    indexed(objects, tmp_path / "a.index")
    with pytest.raises(FormatError, match=rf"files://{objects}, which does not lie in its folder"):
        opened(tmp_path / "a.index")
    for allowed in (s3_server.url("photo/"), s3_server.url("photos/cat/"), "s3://other/photos/", tmp_path):
        with pytest.raises(FormatError, match="does not lie in its folder"):
            opened(tmp_path / "a.index", containers=[allowed])
    opened(tmp_path / "a.index", containers=[s3_server.url("")]).close()
    for name in ("../other/x.jpg", "cat/../../x.jpg", "/etc/passwd"):
        content = FileList.of(objects, [name], s3_server.options, np.array([[5, 5]])).to_bytes()
        assert FileList.from_bytes(content).outside == [name]


def test_kinds_of_folders_in_a_store_are_recognised_by_their_objects(s3_server):
    for key, kind in (("a/1.tar", "webdataset"), ("b/1.arrow", "huggingface"), ("c/dataset_dict.json", "huggingface")):
        s3_server.put(key, b"x")
        assert recognise(s3_server.url(key[:2]), s3_server.options) == kind
    s3_server.put("d/cat/1.jpg", b"x")
    assert recognise(s3_server.url("d/"), s3_server.options) == "folder"


def test_a_folder_without_any_samples_is_named(s3_server, fault_server):
    s3_server.put("none/notes.txt", b"x")
    with pytest.raises(OptionError, match=r"none/: no images in it"):
        Loader(s3_server.url("none/"), 4)
    with pytest.raises(OptionError, match="web servers have no standard way to list files"):
        Loader(fault_server.url("none/"), 4)


def test_entry_points_of_an_index_in_a_store_come_with_one_request_for_each_tar(
    web, folder, fault_server, tmp_path, capsys
):
    indexed([web + name for name in NAMES], tmp_path / "a.index")
    fault_server.objects["tars/a.index"] = (tmp_path / "a.index").read_bytes()
    forget(fault_server)
    with opened(f"{web}a.index") as loader:
        assert requests_of(fault_server) == [("a.index", 0, object_store.FIRST_READ)]
        places = [("a.index", file.entry_place.start, file.entry_place.stop) for file in loader.reader.index.files]
        forget(fault_server)
        list(loader)
        with opened(folder / "a.index") as local:
            assert points_of(loader, range(30)) == points_of(local, range(30))
        requests = [request for request in requests_of(fault_server) if request[0] == "a.index"]
        assert len(requests) <= len(places)
        assert len(fault_server.requests) == len(fault_server.gets())  # none that asks for a version
        assert sum(stop - start for _, start, stop in requests) == sum(stop - start for _, start, stop in places)
        loader.explain()
    assert "30 JPEGs with entry points" in capsys.readouterr().out


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """300 images of some 35 kB in three tar files, and converted."""
    root = tmp_path_factory.mktemp("large")
    files = [jpeg(noise(200, 180, number), 90) for number in range(20)]
    samples = [(f"{number:04}", files[number % 20], b"%d" % (number % 7)) for number in range(300)]
    for start, name in zip(range(0, 300, 100), NAMES, strict=True):
        members = [
            (f"{key}.{ending}", content)
            for key, image, label in samples[start : start + 100]
            for ending, content in (("jpg", image), ("cls", label))
        ]
        write_tar(root / name, members)
    convert(open_source(root), root / "a.beton", Settings(page_size=1 << 21), num_workers=1)
    index_source(open_source(root), root / "a.index", num_workers=1)
    return root


def test_an_epoch_takes_as_many_requests_as_of_the_converted_file(large, fault_server, monkeypatch):
    monkeypatch.setattr("gpubeton._plan.page_plan.MAX_REQUEST", 256 << 10)
    fault_server.objects |= {path.name: path.read_bytes() for path in large.iterdir()}
    counts = {}
    for name in ("a.beton", "a.index"):
        with opened(fault_server.url(name)) as loader:
            list(loader)
            stats = loader.stats()
        counts[name] = stats.requests
        assert stats.fetched_bytes / stats.stored_bytes < (1.01 if name == "a.beton" else 1.08)  # with headers of tars
    assert counts["a.beton"] > 30
    assert counts["a.index"] <= 1.08 * counts["a.beton"] + len(NAMES)


@pytest.mark.parametrize(("size", "most"), [(20_000, 40), (110_000, 130), (600_000, 1050)])
def test_a_tar_is_listed_by_few_requests_if_its_images_are_small(fault_server, tmp_path, size, most):
    count = 40
    write_tar(tmp_path / "a.tar", [(f"{number:04}.jpg", bytes([number]) * size) for number in range(count)])
    fault_server.objects["a.tar"] = (tmp_path / "a.tar").read_bytes()
    source = open_source(fault_server.url("a.tar"))
    assert source.places().offset.tolist() == open_source(tmp_path / "a.tar").places().offset.tolist()
    assert 1000 * (len(fault_server.gets()) - 2) / count <= most  # two look at the first sample


def test_tars_that_are_cached_are_requested_once(web, folder, fault_server, tmp_path):
    cached = {"cache_dir": tmp_path / "cache", "cache_limit": "1 GB"}
    expected = read(folder / "a.index")
    index_source(open_source([web + name for name in NAMES]), tmp_path / "a.index", num_workers=1)
    for name, more in ((f"{web}a.index", {}), (tmp_path / "a.index", {"containers": web})):
        for is_first in (True, False):
            forget(fault_server)
            assert read(name, **cached, **more) == expected
            is_tar = [request[0] in NAMES for request in requests_of(fault_server)]
            assert any(is_tar) == (is_first and not more)


def test_ranks_go_on_with_an_epoch_of_tars_in_the_converted_file_and_back(bucket, converted):
    options = {"pipelines": pipelines(), "indices": range(24)}
    whole = [images for _, images in global_batches(run_ranks(converted, 4, 2, **options)[0])]
    for first, second in ((f"{bucket}a.index", str(converted)), (str(converted), bucket)):
        begun, state = run_ranks(first, 4, 2, None, 2, **options)
        rest, _ = run_ranks(second, 2, 4, state, **options)
        results = [images for _, images in global_batches([*begun, *rest])]
        assert len(results) == len(whole)
        for images, expected in zip(results, whole, strict=True):  # rows of other ranks
            assert {row.numpy().tobytes() for row in images} == {row.numpy().tobytes() for row in expected}


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_tar_that_is_replaced_is_named(bucket, folder, s3_server, is_indexed, monkeypatch):
    monkeypatch.setattr(object_store, "FIRST_READ", 1 << 10)  # not all of these small tars
    loader = opened(f"{bucket}a.index" if is_indexed else bucket, order="sequential", batches_ahead=1)
    with loader:
        list(loader)
        s3_server.put("tars/train-001.tar", (folder / "train-000.tar").read_bytes())
        with pytest.raises(RemoteChangedError, match=r"tars/train-001\.tar: .*gpubeton index"):
            list(itertools.chain(loader, loader))
    if is_indexed:  # it was made of the earlier tar
        with pytest.raises(FormatError, match=r"train-001\.tar .*gpubeton index"):
            read(f"{bucket}a.index")
    else:
        assert len(read(bucket)) == 2 * 8


def test_an_index_that_is_replaced_gives_no_entry_points_of_other_tars(web, folder, converted, fault_server):
    with opened(f"{web}a.index") as loader:
        content = fault_server.objects["tars/a.index"]
        fault_server.objects["tars/a.index"] = content[::-1]
        object_store._CACHED.clear()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result = [[output.numpy().tobytes() for output in batch] for _ in range(2) for batch in loader]
    assert result == read(converted)
    assert all("decoded without them" in str(warning.message) for warning in warned)
    assert warned


def damage(path, member, *, is_header):
    """Overwrite the middle of a file in a tar, or its beginning."""
    content = bytearray(path.read_bytes())
    start = content.index(member.encode()) + 512
    start += 0 if is_header else 300
    content[start : start + 200] = b"\xff\xc4" * 100
    path.write_bytes(content)


@pytest.mark.parametrize("is_header", [False, True])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.filterwarnings("ignore:.*have no header", "ignore:.*damaged JPEG")
def test_bad_images_are_skipped_or_replaced(folder, fault_server, tmp_path, on_error, is_header):
    whole = {"image": [CenterCropRGBImageDecoder((24, 24), 1), ToTensor()]}
    expected = next(iter(Loader(folder / "a.index", 30, num_workers=1, pipelines=whole)))
    damage(folder / "train-001.tar", "0017.jpg", is_header=is_header)
    for name in NAMES:
        fault_server.objects[name] = (folder / name).read_bytes()
    urls = [fault_server.url(name) for name in NAMES]
    index_source(open_source(urls), tmp_path / "a.index", num_workers=1)
    index_source(open_source(folder), folder / "a.index", num_workers=1, overwrite=True)
    rows = [n for n in range(30) if n != 17] if on_error == "skip" else [18 if n == 17 else n for n in range(30)]
    for path, more in (
        (folder, {}),
        (folder / "a.index", {}),
        (urls, {}),
        (tmp_path / "a.index", {"containers": urls}),
    ):
        options = {"order": "sequential", "pipelines": whole, **more}
        with pytest.raises(
            BadImageError, match=r"sample 5 of .*train-001\.tar, from byte [0-9,]+ on: image: "
        ) as raised:
            list(opened(path, **options))
        assert raised.value.samples == (17,)
        with opened(path, on_error=on_error, **options) as loader:
            images, labels = (torch.cat(parts) for parts in zip(*loader, strict=True))
            assert [sample for _, sample, _ in loader.bad_samples] == [17]
        assert torch.equal(images, expected[0][rows])
        assert torch.equal(labels, expected[1][rows])


def test_the_commands_know_an_index_here_and_there(folder, web, fault_server, tmp_path):
    shown, verified, tables = [], [], []
    for number, path in enumerate((str(folder / "a.index"), f"{web}a.index")):
        shown.append({**json.loads(run("info", path, "--json", code=0).stdout), "path": ""})
        verified.append({**json.loads(run("verify", path, "--json", code=0).stdout), "path": ""})
        run("extract", path, tmp_path / f"{number}", "--indices", "11:14", code=0)
        tables.append([file.read_bytes() for file in sorted((tmp_path / f"{number}").rglob("*.*"))])
        quick = ["--seconds", "0.01", "--size", "16", "--batch-size", "4", "--workers", "1"]
        (measured,) = json.loads(run("doctor", path, *quick, "--json").stdout)["loaders"]
        assert measured["loader"]["files"] == [path]
        done = run("subset", path, tmp_path / "part.beton", "--count", 3, code=2)
        assert "an index of images in other files; expected a .beton file" in " ".join(done.output.split())
        assert "an index of images in other files" in " ".join(run("index", path, code=2).output.split())
    assert shown[0] == shown[1]
    assert (shown[0]["samples"], shown[0]["pages"], shown[0]["has_checksums"]) == (30, 0, True)
    assert verified[0] == verified[1]
    assert (verified[0]["sound"], verified[0]["checksums"], verified[0]["entry_points"] > 30) == (True, 30, True)
    assert tables[0] == tables[1]
    assert len(tables[0]) == 4
    content = bytearray(fault_server.objects["tars/train-001.tar"])
    content[content.index(b"0017.jpg") + 700] ^= 1
    fault_server.objects["tars/train-001.tar"] = bytes(content)
    again = Path(folder / "train-001.tar")
    again.write_bytes(content)
    assert run("verify", folder / "a.index").exit_code == 1
