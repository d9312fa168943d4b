"""Where images lie is what a source gives, for every kind."""

from __future__ import annotations

import pickle

import obstore
import pytest

from gpubeton._bytes import open_bytes
from gpubeton._bytes.object_store import list_tree
from gpubeton._bytes.store_client import REPEATS
from gpubeton.dataset import Settings, Source, convert, convert_shards, open_source
from gpubeton.errors import OptionError, RemoteChangedError, StorageError
from gpubeton.reader import Reader
from tests.picture_folders import write_folder, write_picture, write_tar, write_tars
from tests.sources.samples import contents, placed


def write_table(path, rows):
    path.write_text("\n".join(["path,class", *(f"{name},{label}" for name, label in rows)]))
    return path


@pytest.fixture(params=["folder", "flat", "csv", "tsv", "parquet", "tars"])
def source(request, tmp_path):
    kind, folder = request.param, tmp_path / "photos"
    if kind == "tars":
        return open_source(write_tars(tmp_path / "tars", 3))
    if kind == "flat":
        return open_source(write_folder(folder, 3) / "cat")
    write_folder(folder)
    rows = [(path.relative_to(tmp_path), path.parent.name) for path in sorted(folder.rglob("*.*"), reverse=True)]
    rows += [rows[0], (folder / "cat/0000.jpg", "cat")]
    if kind == "csv":
        return open_source(write_table(tmp_path / "a.csv", rows))
    if kind == "tsv":
        (tmp_path / "tables").mkdir()
        write_table(tmp_path / "tables/a.tsv", rows)
        (tmp_path / "tables/a.tsv").write_text((tmp_path / "tables/a.tsv").read_text().replace(",", "\t"))
        return open_source(tmp_path / "tables/a.tsv", root=tmp_path)
    if kind == "parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = {"path": [str(name) for name, _ in rows], "label": list(range(len(rows)))}
        parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
        return open_source(tmp_path / "a.parquet")
    return open_source(folder)


def test_the_bytes_at_its_places_are_those_of_its_samples(source):
    assert placed(source) == [image for image, *_ in contents(source)]
    again = pickle.loads(pickle.dumps(source))
    assert contents(again) == contents(source)
    assert [container for container, _ in again.places().containers] == [
        container for container, _ in source.places().containers
    ]


def test_loose_files_are_one_container_and_tar_files_are_one_each(source):
    names = [name for name, _ in source.places().containers]
    assert [name.partition("://")[0] for name in names] == ["files"] or all(name.endswith(".tar") for name in names)
    assert len(names) == (3 if source.kind == "webdataset" else 1)


def test_missing_and_empty_images_stay_with_no_bytes(tmp_path):
    write_picture(tmp_path / "x.jpg", 1)
    (tmp_path / "empty.jpg").touch()
    source = open_source(write_table(tmp_path / "a.csv", [("x.jpg", 1), ("empty.jpg", 2), ("none.jpg", 3), ("", 4)]))
    assert source.places().size.tolist() == [(tmp_path / "x.jpg").stat().st_size, 0, 0, 0]
    source = open_source(write_tar(tmp_path / "a.tar", [("1.jpg", b""), ("2.jpg", b"x"), ("3.jpg", b"")]))
    assert placed(source) == [b"", b"x", b""]


def test_a_file_that_changes_after_it_was_listed_is_noticed(tmp_path):
    tars, folder = write_tars(tmp_path / "tars", 2), write_folder(tmp_path / "photos")
    for source, file in ((open_source(tars), tars / "001.tar"), (open_source(folder), folder / "cat/0000.jpg")):
        places = source.places()
        file.write_bytes(file.read_bytes() + b"x")
        with pytest.raises(StorageError, match=str(file)):
            [open_bytes(*container).read(0, 1 << 20) for container in places.containers]


def test_images_that_lie_in_pages_or_nowhere_are_refused_with_a_command(tmp_path):
    class Grays(Source):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return (b"",)

        def name(self, index):
            return "gray"

    with pytest.raises(OptionError, match=r"custom .*gpubeton convert"):
        Grays().places()
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for images in ([b"x"], [{"bytes": b"x", "path": None}]):
        parquet.write_table(pyarrow.table({"image": images}), tmp_path / "a.parquet")
        with pytest.raises(OptionError, match=r"a\.parquet: .*gpubeton convert"):
            open_source(tmp_path / "a.parquet").places()


# --- object stores


def test_tar_files_in_a_store_give_the_samples_of_those_here(tmp_path, s3_server):
    tars = write_tars(tmp_path / "tars", 3, label=lambda number: f"class {number % 2}")
    for path in tars.iterdir():
        s3_server.put(f"tars/{path.name}", path)
    s3_server.put("tars/notes.txt", b"no tar file")
    expected = open_source(tars)
    for name in ("tars/", "tars/00{0..2}.tar"):
        source = open_source(s3_server.url(name), remote=s3_server.options)
        assert contents(source) == contents(expected)
        assert source.class_names == expected.class_names
        assert placed(source) == placed(expected)
        assert [url for url, _ in source.places().containers] == [s3_server.url(f"tars/00{n}.tar") for n in range(3)]
    before = source.identity(0)
    s3_server.put("tars/000.tar", (tars / "001.tar").read_bytes())
    assert open_source(s3_server.url("tars/000.tar")).identity(0) != before
    with pytest.raises(OptionError, match=r"none/: no images in it"):
        open_source(s3_server.url("none/"))


def test_tar_files_in_a_store_are_converted_to_the_same_file_in_several_processes(tmp_path, s3_server):
    tars = write_tars(tmp_path / "tars", 2)
    for path in tars.iterdir():
        s3_server.put(f"tars/{path.name}", path)
    settings = Settings(page_size=1 << 21)
    here = convert(open_source(tars), tmp_path / "here.beton", settings, num_workers=1, chunksize=3)
    there = convert(open_source(s3_server.url("tars/")), tmp_path / "there.beton", settings, num_workers=2, chunksize=3)
    assert there.path.read_bytes() == here.path.read_bytes()
    options = {"num_workers": 1, "remote": s3_server.options}
    shards = convert_shards(s3_server.url("tars/"), tmp_path / "out", 2, settings, **options)
    assert shards is not None
    assert (shards.shards, shards.samples) == (2, 6)


def put_all(folder, bucket, prefix=""):
    for path in folder.rglob("*.*"):
        bucket.put(f"{prefix}{path.relative_to(folder)}", path)


@pytest.fixture(params=["folder", "flat", "table there", "table here", "parquet there"])
def stored(request, tmp_path, s3_server):
    """A source of objects in a store, and the same one here."""
    kind, folder = request.param, write_folder(tmp_path / "photos", 4)
    (folder / "notes.txt").write_text("no image")
    put_all(tmp_path, s3_server, "a/")
    if kind in ("folder", "flat"):
        part = "" if kind == "folder" else "/cat"
        return open_source(s3_server.url(f"a/photos{part}/")), open_source(f"{folder}{part}")
    rows = [(path.relative_to(tmp_path), path.parent.name) for path in sorted(folder.rglob("*.[jp]*"), reverse=True)]
    here = write_table(tmp_path / "a.csv", rows)
    if kind == "table here":
        urls = [(s3_server.url(f"a/{name}"), label) for name, label in rows]
        return open_source(write_table(tmp_path / "b.csv", urls)), open_source(here)
    if kind == "table there":
        return open_source(s3_server.put("a/a.csv", here)), open_source(here)
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names, labels = zip(*rows, strict=True)
    parquet.write_table(pyarrow.table({"path": [*map(str, names)], "class": labels}), tmp_path / "a.parquet")
    table = s3_server.put("tables/a.parquet", tmp_path / "a.parquet")
    return open_source(table, root=s3_server.url("a")), open_source(tmp_path / "a.parquet")


def test_single_objects_in_a_store_give_the_samples_of_files_here(stored, tmp_path):
    there, here = stored
    assert (there.kind, there.class_names, there.passed_over) == (here.kind, here.class_names, here.passed_over)
    assert contents(there) == contents(here)
    assert placed(there) == placed(here)
    assert contents(pickle.loads(pickle.dumps(there))) == contents(here)
    settings = Settings(page_size=1 << 21)
    done = [convert(source, tmp_path / f"{source is there}.beton", settings, num_workers=1) for source in stored]
    assert done[0].path.read_bytes() == done[1].path.read_bytes()


def test_a_folder_in_a_store_is_converted_in_several_processes_and_to_shards(tmp_path, s3_server):
    folder = write_folder(tmp_path / "photos", 4)
    put_all(folder, s3_server, "photos/")
    settings, url = Settings(page_size=1 << 21), s3_server.url("photos/")
    here = convert(open_source(folder), tmp_path / "here.beton", settings, num_workers=1, chunksize=3)
    there = convert(open_source(url), tmp_path / "there.beton", settings, num_workers=2, chunksize=3)
    assert there.path.read_bytes() == here.path.read_bytes()
    for place in (url, folder):
        assert convert_shards(place, tmp_path / f"{place is url}", 2, settings, num_workers=1).samples == 4
    for name in ("00000.beton", "00001.beton"):
        first, second = (Reader(tmp_path / f"{is_url}" / name) for is_url in (True, False))
        assert (first.metadata.tobytes(), list(first.checksums)) == (second.metadata.tobytes(), list(second.checksums))


def test_an_object_that_is_replaced_is_another_sample_and_is_not_read(tmp_path, s3_server):
    put_all(write_folder(tmp_path / "photos", 2), s3_server, "photos/")
    source, places = open_source(s3_server.url("photos/")), open_source(s3_server.url("photos/")).places()
    before = [source.identity(index) for index in range(len(source))]
    assert before == [open_source(s3_server.url("photos/")).identity(index) for index in range(len(source))]
    key = source.name(1).removeprefix(s3_server.url(""))
    s3_server.put(key, b"x" * int(places.size[1]))
    after = open_source(s3_server.url("photos/"))
    assert [after.identity(index) == before[index] for index in range(len(source))] == [True, False]
    with pytest.raises(RemoteChangedError, match=key):
        source[1]
    with pytest.raises(RemoteChangedError, match=key):
        open_bytes(*places.containers[0]).read(int(places.offset[1]), 5)


def test_a_large_folder_in_a_store_is_listed_by_few_requests_that_go_on_after_an_error(s3_server, monkeypatch):
    store, before, offsets = {f"b/{n % 3}/{n:05}.jpg": n for n in range(2500)}, REPEATS.count, []

    def list_some(_store, prefix, *, offset=None, chunk_size):
        offsets.append(offset)
        names = sorted(name for name in store if name > (offset or prefix))
        for start in range(0, len(names), chunk_size):
            if start == chunk_size and len(offsets) == 1:
                raise OSError("status code: 503")
            yield [
                {"path": name, "size": store[name], "e_tag": f'"{name}"'} for name in names[start : start + chunk_size]
            ]

    monkeypatch.setattr(obstore, "list", list_some)
    names, states = list_tree(s3_server.url("b/"), s3_server.options)
    assert names == [name.removeprefix("b/") for name in sorted(store)]
    assert states[:, 0].tolist() == [store[name] for name in sorted(store)]
    assert len(set(states[:, 1].tolist())) == 2500
    assert (offsets, REPEATS.count) == ([None, f"b/{names[999]}"], before + 1)


def test_urls_of_several_buckets_are_refused(tmp_path):
    for urls in (["s3://one/a.jpg", "s3://other/a.jpg"], ["s3://a/a.jpg", "https://a/a.jpg"]):
        with pytest.raises(OptionError, match=r"a\.csv: URLs of several buckets or servers"):
            open_source(write_table(tmp_path / "a.csv", [(url, "cat") for url in urls]))
