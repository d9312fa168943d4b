"""Where images lie is what a source gives, for every kind."""

from __future__ import annotations

import pickle

import pytest

from gpubeton._bytes import open_bytes
from gpubeton.dataset import Settings, Source, convert, convert_shards, open_source
from gpubeton.errors import OptionError, StorageError
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
