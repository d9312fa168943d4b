"""Shards in an object store, of sources here and there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gpubeton.conversion import Settings, convert_shard, convert_shards, finish, load_plan, plan_shards, sharded
from gpubeton.conversion.division import divide
from gpubeton.conversion.parts import copy_files, copy_object
from gpubeton.errors import OptionError, WriteError
from gpubeton.files.object_store import list_objects, read_object
from tests.picture_folders import write_folder, write_picture, write_tars

SETTINGS = Settings(page_size=1 << 21, shuffle=True)


def objects(bucket, prefix: str) -> dict[str, bytes]:
    """Read all objects of a prefix, by their names in it."""
    url = bucket.url(prefix)
    found = [name for name, *_ in list_objects(url, bucket.options)]
    return without_manifest({name.removeprefix(url): read_object(name, bucket.options) for name in found})


def files(folder: Path) -> dict[str, bytes]:
    return without_manifest({path.name: path.read_bytes() for path in folder.iterdir()})


def without_manifest(contents: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out the file that has the times or the versions of the shards."""
    assert contents.pop("index.json")
    return contents


def upload(bucket, folder: Path, prefix: str) -> str:
    """Put the files of a folder into a bucket; give the prefix's URL."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            bucket.put(f"{prefix}/{path.relative_to(folder)}", path)
    return bucket.url(f"{prefix}/")


def test_an_object_store_gets_the_bytes_that_a_folder_gets_and_nothing_stays_here(s3_server, tmp_path):
    photos = write_folder(tmp_path / "photos", 13)
    here = convert_shards(plan_shards(photos, tmp_path / "out", 3, SETTINGS), num_workers=1)
    (tmp_path / "scratch").mkdir()
    # Without the slash at its end, and with processes.
    plan = plan_shards(photos, s3_server.url("out"), 3, SETTINGS, remote=s3_server.options)
    there = convert_shards(plan, tmp_path / "scratch", num_workers=2)
    assert replace(there, target=here.target) == here
    assert objects(s3_server, "out/") == files(tmp_path / "out")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_finished_dataset_is_only_listed(s3_server, tmp_path, monkeypatch):
    photos = write_folder(tmp_path / "photos", 6)
    arguments = (photos, s3_server.url("out/"), 2, SETTINGS)
    done = convert_shards(plan_shards(*arguments), num_workers=1)
    monkeypatch.setattr(sharded, "convert", None)
    monkeypatch.setattr(sharded, "read_notes", None)
    assert convert_shards(plan_shards(*arguments), num_workers=1) == done
    assert not convert_shard(load_plan(s3_server.url("out/")), 1)


def test_tar_files_in_a_store_are_parts_that_are_copied_for_the_shard_that_needs_them(s3_server, tmp_path):
    tars = write_tars(tmp_path / "tars", 4)
    url = upload(s3_server, tars, "tars")
    expected = tmp_path / "expected"
    convert_shards(plan_shards(tars, expected, 2, SETTINGS), num_workers=1)
    plan = plan_shards(url, tmp_path / "out", 2, SETTINGS)
    scratch = tmp_path / "scratch"
    assert convert_shard(plan, 1, scratch)
    assert list(scratch.iterdir()) == []
    convert_shard(plan, 0, scratch)
    for name in plan.names:
        assert (tmp_path / "out" / name).read_bytes() == (expected / name).read_bytes()
    # The same by the pattern of their names.
    plan = plan_shards(f"{url}{{000..003}}.tar", s3_server.url("out/"), 2, SETTINGS)
    convert_shards(plan, scratch, num_workers=1)
    assert objects(s3_server, "out/")["00001.beton"] == (expected / "00001.beton").read_bytes()


def test_images_below_a_prefix_have_the_classes_and_the_order_of_a_folder(s3_server, tmp_path):
    photos = write_folder(tmp_path / "photos", 9)
    (photos / "cat" / "deep").mkdir()
    (photos / "cat" / "0000.jpg").rename(photos / "cat" / "deep" / "0000.jpg")
    (photos / "cat" / "notes.txt").touch()
    (photos / "without-class.jpg").write_bytes(b"")
    for hidden in (".cache/1.jpg", "cat/._0003.jpg", "dog/.old/1.jpg", "dog/.old/2.jpg", ".DS_Store"):
        write_picture(photos / "one.jpg", 1).rename(photos / "one")
        (photos / hidden).parent.mkdir(exist_ok=True)
        (photos / "one").rename(photos / hidden)
    url = upload(s3_server, photos, "photos")
    done = convert_shards(plan_shards(url, tmp_path / "there", 2, SETTINGS), tmp_path, num_workers=1)
    here = convert_shards(plan_shards(photos, tmp_path / "here", 2, SETTINGS), num_workers=1)
    assert (done.class_names, done.passed_over) == (here.class_names, here.passed_over)
    for name in ("00000.beton", "00001.beton"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_a_table_of_paths_in_a_store_and_parquet_files_of_images(s3_server, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    photos = write_folder(tmp_path / "photos", 6)
    names = sorted(str(path.relative_to(photos)) for path in photos.glob("*/*"))
    (photos / "table.csv").write_text("path,label\n" + "".join(f"{name},{name[:3]}\n" for name in names))
    upload(s3_server, photos, "photos")
    table = plan_shards(s3_server.url("photos/table.csv"), tmp_path / "there", 2, SETTINGS)
    convert_shards(table, tmp_path, num_workers=1)
    convert_shards(plan_shards(photos / "table.csv", tmp_path / "here", 2, SETTINGS), num_workers=1)
    for name in table.names:
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    (tmp_path / "parquet").mkdir()
    for number in range(2):
        rows = {"image": [(photos / name).read_bytes() for name in names[number::2]], "label": [number] * 3}
        parquet.write_table(pyarrow.table(rows), tmp_path / "parquet" / f"{number}.parquet")
    plan = plan_shards(upload(s3_server, tmp_path / "parquet", "parquet"), tmp_path / "images", 2, SETTINGS)
    assert convert_shards(plan, tmp_path, num_workers=1).samples == 6


def test_files_of_a_hugging_face_dataset_in_a_store_are_parts(s3_server, tmp_path):
    datasets = pytest.importorskip("datasets")
    photos = write_folder(tmp_path / "photos", 6)
    images = [{"bytes": path.read_bytes(), "path": None} for path in sorted(photos.glob("*/*"))]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    made = datasets.Dataset.from_dict({"image": images, "label": [0, 0, 1, 1, 2, 2]}, features=features)
    made.save_to_disk(tmp_path / "hf", num_shards=3)
    for name in ("cache-0123.arrow", "data-other.arrow"):  # results of its methods
        shutil.copy(tmp_path / "hf" / "data-00000-of-00003.arrow", tmp_path / "hf" / name)
    url = upload(s3_server, tmp_path / "hf", "hf")
    in_order = replace(SETTINGS, shuffle=False)
    done = convert_shards(plan_shards(url, tmp_path / "there", 3, in_order), tmp_path, num_workers=1)
    assert (done.samples, done.class_names) == (6, ("a", "b", "c"))
    here = plan_shards(tmp_path / "hf", tmp_path / "here", 3, in_order)
    convert_shards(here, num_workers=1)
    for name in here.names:
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    (tmp_path / "hf" / "state.json").unlink()
    (tmp_path / "hf" / "data-other.arrow").unlink()
    url = upload(s3_server, tmp_path / "hf", "without-state")
    assert sum(len(part["files"]) for part in divide(url, None, {}, in_order, 3, s3_server.options)[1]) == 3


def test_bad_and_missing_images_are_named_by_their_urls_in_the_same_bytes_everywhere(s3_server, tmp_path):
    photos = write_folder(tmp_path / "photos", 8)
    (photos / "dog" / "0001.jpg").write_bytes(b"no picture")
    names = [*sorted(str(path.relative_to(photos)) for path in photos.glob("*/*")), "cat/gone.jpg"]
    names += names[:2]  # an image may occur more than once
    (photos / "table.csv").write_text("path\n" + "".join(f"{name}\n" for name in names))
    url = upload(s3_server, photos, "photos")
    with pytest.raises(WriteError, match=rf"shard . of 2.*{url}.*\.jpg"):
        convert_shards(plan_shards(f"{url}table.csv", tmp_path / "raised", 2, SETTINGS), tmp_path, num_workers=1)
    plans = [plan_shards(f"{url}table.csv", tmp_path / name, 2, SETTINGS, on_error="skip") for name in ("a", "b")]
    results = [convert_shards(plan, tmp_path / f"scratch-{plan.target[-1]}", num_workers=1) for plan in plans]
    assert {each.name for each in results[0].skipped} == {f"{url}dog/0001.jpg", f"{url}cat/gone.jpg"}
    assert results[0].samples == len(names) - 2
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_scratch_folder_that_was_removed_is_no_missing_image(s3_server, tmp_path):
    url = upload(s3_server, write_folder(tmp_path / "photos", 3), "photos")
    with pytest.raises(FileNotFoundError):
        copy_files([f"{url}cat/0000.jpg"], tmp_path / "removed", s3_server.options)
    assert copy_files([f"{url}gone.jpg"], tmp_path / "removed", s3_server.options) == [f"{url}gone.jpg"]


def test_a_copy_that_is_too_short_is_made_again(s3_server, tmp_path):
    url = upload(s3_server, write_folder(tmp_path / "photos", 3), "photos")
    copy = copy_object(f"{url}cat/0000.jpg", tmp_path, s3_server.options)
    content = copy.read_bytes()
    copy.write_bytes(content[:-1])
    assert copy_object(f"{url}cat/0000.jpg", tmp_path, s3_server.options).read_bytes() == content


def test_bad_images_of_tar_files_are_named_by_their_urls(s3_server, tmp_path):
    tars = write_tars(tmp_path / "tars", 2)
    content = (tars / "001.tar").read_bytes()
    (tars / "001.tar").write_bytes(content.replace(b"\xff\xd8\xff\xe0", b"\0\0\0\0", 1))
    url = upload(s3_server, tars, "tars")
    plan = plan_shards(url, s3_server.url("out/"), 2, replace(SETTINGS, shuffle=False), on_error="skip")
    done = convert_shards(plan, tmp_path, num_workers=1)
    assert [(each.name, "no picture" in each.reason) for each in done.skipped] == [(f"{url}001.tar: 00003.jpg", False)]


def test_a_plan_of_a_prefix_with_nothing_in_it_is_refused(s3_server, tmp_path):
    with pytest.raises(OptionError, match="0 objects"):
        plan_shards(s3_server.url("nothing/"), tmp_path / "out", 2)


def test_shards_that_are_missing_in_a_store_are_named(s3_server, tmp_path):
    photos = write_folder(tmp_path / "photos", 6)
    plan = plan_shards(photos, s3_server.url("out/"), 3, SETTINGS)
    convert_shard(plan, 1, tmp_path)
    with pytest.raises(WriteError, match="2 of 3 shards are missing: 0, 2"):
        finish(plan)
