from __future__ import annotations

import csv
import errno
import io
import json
import pickle
import tarfile
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpubeton.conversion import (
    Settings,
    convert,
    convert_shard,
    convert_shards,
    division,
    finish,
    load_plan,
    open_source,
    plan_shards,
    shard_plan,
    sharded,
)
from gpubeton.conversion.parts import Layout, open_part
from gpubeton.conversion.shard_plan import read_part
from gpubeton.errors import OptionError, StorageError, WriteError
from gpubeton.format import Index
from gpubeton.loader import Loader, OrderOption
from gpubeton.reader import Reader
from tests.picture_folders import write_folder, write_picture, write_tars

SETTINGS = Settings(page_size=1 << 21)


def contents(folder: Path) -> dict[str, bytes]:
    # The manifest has the times of the files.
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "index.json"}


def values(*files: Path) -> list[tuple[bytes, int]]:
    """List the images of files as they are stored, and the labels."""
    found = []
    for path in files:
        index, content = Index.open(path), path.read_bytes()
        places = index.regions("image")
        images = [content[start : start + size] for start, size in zip(places.offset, places.size, strict=True)]
        found += zip(images, index.column("label").tolist(), strict=True)
    return found


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.beton"))


def whole(source, tmp_path, **settings) -> list[tuple[bytes, int]]:
    """Convert to one file, and list its samples."""
    made = convert(
        open_source(source), tmp_path / "whole.beton", replace(SETTINGS, **settings), num_workers=1, overwrite=True
    )
    return values(made.path)


@pytest.fixture
def photos(tmp_path):
    return write_folder(tmp_path / "photos", 17)


def test_shards_have_the_samples_of_one_file_in_its_order_and_the_classes_of_the_whole_source(photos, tmp_path):
    done = convert_shards(plan_shards(photos, tmp_path / "out", 4, SETTINGS), num_workers=1)
    files = shards(tmp_path / "out")
    assert [path.name for path in files] == ["00000.beton", "00001.beton", "00002.beton", "00003.beton"]
    assert values(*files) == whole(photos, tmp_path)
    assert [len(values(path)) for path in files] == [4, 4, 4, 5]
    # The first shard has images of one class only.
    assert {Reader(path).class_names for path in files} == {("cat", "dog", "eel")} == {done.class_names}
    assert (done.shards, done.samples, done.bytes) == (4, 17, sum(path.stat().st_size for path in files))


def test_images_are_shuffled_over_all_shards_as_in_one_file(photos, tmp_path):
    settings = replace(SETTINGS, shuffle=True, seed=5, limit=11)
    convert_shards(plan_shards(photos, tmp_path / "out", 3, settings), num_workers=1)
    assert values(*shards(tmp_path / "out")) == whole(photos, tmp_path, shuffle=True, seed=5, limit=11)


def test_any_order_and_number_of_processes_give_the_same_bytes(photos, tmp_path):
    settings = replace(SETTINGS, shuffle=True, write_mode="proportion", max_resolution=20)
    plans = [plan_shards(photos, tmp_path / name, 4, settings) for name in ("loop", "apart", "processes")]
    convert_shards(plans[0], num_workers=1)
    for number in (2, 0, 3, 1):
        # Another machine reads the plan from the target.
        assert convert_shard(pickle.loads(pickle.dumps(load_plan(plans[1].target))), number)
    finish(plans[1])
    convert_shards(plans[2], num_workers=5)
    expected = contents(tmp_path / "loop")
    assert {*expected} == {"conversion.json", "conversion.parts", "converted.json", "index.bin", *plans[0].names}
    assert contents(tmp_path / "apart") == expected
    assert contents(tmp_path / "processes") == expected


def test_whole_tar_files_are_parts_and_a_task_opens_only_its_own(tmp_path):
    tars = write_tars(tmp_path / "tars", 5)
    plan = plan_shards(tars, tmp_path / "out", 2, SETTINGS)
    expected = whole(tars, tmp_path)
    for path in sorted(tars.iterdir())[2:]:
        path.unlink()
    convert_shard(plan, 0)
    assert values(*shards(tmp_path / "out")) == expected[:6]
    with pytest.raises(WriteError, match=r"shard 1 of 2.*002\.tar"):
        convert_shard(plan, 1)


def test_tar_files_that_cannot_be_read_are_left_out_and_listed(tmp_path):
    tars = write_tars(tmp_path / "tars", 4)
    plan = plan_shards(tars, tmp_path / "out", 2, SETTINGS, on_error="skip")
    (tars / "001.tar").write_bytes(b"no tar file")
    (tars / "002.tar").unlink()
    done = convert_shards(plan, num_workers=1)
    assert done.samples == 6
    assert [each.name for each in done.skipped] == [str(tars / "001.tar"), str(tars / "002.tar")]


@pytest.mark.parametrize("trouble", ["no label", "unknown class", "input/output error"])
def test_no_whole_file_is_left_out_for_its_labels_or_for_a_disk(tmp_path, monkeypatch, trouble):
    def label(number: int) -> str:
        return "eel" if trouble == "unknown class" and number == 5 else "cat"

    tars = write_tars(tmp_path / "tars", 2, label=label)
    classes = ["cat"]
    plan = plan_shards(tars, tmp_path / "out", 1, SETTINGS, on_error="skip", class_names=classes)
    if trouble == "no label":
        content = (tars / "001.tar").read_bytes()
        with tarfile.open(fileobj=io.BytesIO(content)) as old, tarfile.open(tars / "001.tar", "w") as tar:
            for member in old.getmembers()[:-1]:
                tar.addfile(member, old.extractfile(member))
    elif trouble == "input/output error":
        original = tarfile.open

        def fail(path, mode):
            if path.name == "001.tar":
                raise OSError(errno.EIO, "Input/output error")
            return original(path, mode)

        monkeypatch.setattr(tarfile, "open", fail)
    with pytest.raises(WriteError, match="shard 0 of 1"):
        convert_shard(plan, 0)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_damaged_files_of_tables_are_left_out_and_listed(tmp_path, ending):
    path = tmp_path / f"damaged.{ending}"
    path.write_bytes(b"no table")
    kind = {"parquet": "table", "arrow": "huggingface"}[ending]
    pytest.importorskip({"parquet": "pyarrow", "arrow": "datasets"}[ending])
    source = open_part(Layout(str(path), kind, {}, {}, None, {}), {"files": [str(path)]}, tmp_path, None)
    assert (len(source), source.name(0)) == (1, str(path))
    with pytest.raises(OSError, match=f"damaged.{ending}"):
        source[0]


def test_tar_files_are_shuffled_and_then_the_samples_of_each_shard(tmp_path):
    tars = write_tars(tmp_path / "tars", 6, 4)
    convert_shards(plan_shards(tars, tmp_path / "out", 3, replace(SETTINGS, shuffle=True)), num_workers=1)
    in_order = whole(tars, tmp_path)
    found = [[in_order.index(each) for each in values(path)] for path in shards(tmp_path / "out")]
    assert sorted(number for numbers in found for number in numbers) == list(range(24))
    files = [sorted({number // 4 for number in numbers}) for numbers in found]
    assert [len(each) for each in files] == [2, 2, 2]
    assert files != [[0, 1], [2, 3], [4, 5]]
    assert all(numbers != sorted(numbers) for numbers in found)
    assert len({tuple(np.argsort(numbers)) for numbers in found}) == 3  # different ones


def test_names_of_classes_in_tar_files_are_numbered_over_all_files(tmp_path):
    names = ["dog", "ant", "cat", "bee", "ape"]
    tars = write_tars(tmp_path / "tars", 5, 1, names.__getitem__)
    done = convert_shards(plan_shards(tars, tmp_path / "out", 5, SETTINGS), num_workers=1)
    assert done.class_names == ("ant", "ape", "bee", "cat", "dog")
    assert [label for _, label in values(*shards(tmp_path / "out"))] == [4, 0, 3, 2, 1]


@pytest.mark.parametrize(("names", "is_given"), [("stop 70 30 50", 0), ("stop 70 30 50", 1), ("30 50 70 stop", 1)])
def test_names_of_classes_that_look_like_numbers_are_names_in_each_part(tmp_path, names, is_given):
    names = names.split()
    classes = sorted(names) if is_given else None
    tars = write_tars(tmp_path / "tars", 2, 2, names.__getitem__)
    done = convert_shards(plan_shards(tars, tmp_path / "out", 2, SETTINGS, class_names=classes), num_workers=1)
    assert done.class_names == ("30", "50", "70", "stop")
    assert values(*shards(tmp_path / "out")) == whole(tars, tmp_path)
    assert [label for _, label in values(*shards(tmp_path / "out"))] == [done.class_names.index(name) for name in names]


def test_names_of_classes_after_a_file_of_numbers_are_refused(tmp_path):
    tars = write_tars(tmp_path / "tars", 2, 2, lambda number: [0, 1, "cat", "dog"][number])
    plan = plan_shards(tars, tmp_path / "out", 2, SETTINGS, on_error="skip", class_names=["cat", "dog"])
    convert_shard(plan, 0)
    with pytest.raises(WriteError, match=r"shard 1 of 2.*001\.tar.*names of classes.*--classes"):
        convert_shard(plan, 1)


def test_a_tar_file_with_other_labels_than_the_first_is_named(tmp_path):
    tars = write_tars(tmp_path / "tars", 2, 2, lambda number: [0, 1, "cat", 1][number])
    plan = plan_shards(tars, tmp_path / "out", 2, SETTINGS)
    assert convert_shard(plan, 0)
    with pytest.raises(WriteError, match=r"shard 1 of 2.*001\.tar.*--classes"):
        convert_shard(plan, 1)


def test_numbers_of_the_first_file_decide_the_type_of_labels(tmp_path):
    tars = write_tars(tmp_path / "tars", 2, 2, lambda number: [0.5, 1, 2, 3][number])
    convert_shards(plan_shards(tars, tmp_path / "out", 2, SETTINGS), num_workers=1)
    assert [label for _, label in values(*shards(tmp_path / "out"))] == [0.5, 1, 2, 3]


def test_tables_of_paths_and_of_images_are_converted(photos, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files = sorted(photos.glob("*/*"))
    with (photos / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("path", "label"), *((path.relative_to(photos), path.parent.name) for path in files)]
        )
    convert_shards(plan_shards(photos / "table.csv", tmp_path / "paths", 3, SETTINGS), num_workers=1)
    assert values(*shards(tmp_path / "paths")) == whole(photos / "table.csv", tmp_path)
    (tmp_path / "parquet").mkdir()
    for number in range(3):
        rows = {"image": [path.read_bytes() for path in files[number::3]], "label": list(range(len(files[number::3])))}
        parquet.write_table(pyarrow.table(rows), tmp_path / "parquet" / f"{number}.parquet")
    convert_shards(plan_shards(tmp_path / "parquet", tmp_path / "images", 3, SETTINGS), num_workers=1)
    made = shards(tmp_path / "images")
    assert [len(values(path)) for path in made] == [6, 6, 5]
    assert values(made[1]) == whole(tmp_path / "parquet" / "1.parquet", tmp_path)
    # One file alone is divided by its rows.
    convert_shards(plan_shards(tmp_path / "parquet" / "1.parquet", tmp_path / "rows", 2, SETTINGS), num_workers=1)
    assert values(*shards(tmp_path / "rows")) == values(made[1])


def test_parquet_files_of_several_splits_are_refused(photos, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "training-set"  # a name like a split's, which is that of all
    folder.mkdir()
    rows = {"image": [path.read_bytes() for path in sorted(photos.glob("*/*"))[:2]], "label": [0, 1]}
    for name in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"):
        parquet.write_table(pyarrow.table(rows), folder / f"{name}.parquet")
    with pytest.raises(OptionError, match="several splits by their names: train, validation"):
        plan_shards(folder, tmp_path / "out", 2, SETTINGS)
    plan = plan_shards(f"{folder}/train-0000{{0..1}}-of-00002.parquet", tmp_path / "out", 2, SETTINGS)
    assert convert_shards(plan, num_workers=1).samples == 4


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_part_of_a_parquet_file_reads_only_its_row_groups(shuffle, photos, tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    files = sorted(photos.glob("*/*"))[:8]
    rows = {"image": [path.read_bytes() for path in files], "label": [f"class {number % 3}" for number in range(8)]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "a.parquet", row_group_size=2)
    settings = Settings(shuffle=shuffle, seed=3)
    plan = plan_shards(tmp_path / "a.parquet", tmp_path / "shards", 2, settings)
    read, original = [], parquet.ParquetFile.read_row_group
    monkeypatch.setattr(
        parquet.ParquetFile, "read_row_group", lambda self, number: read.append(number) or original(self, number)
    )
    monkeypatch.setattr(parquet, "read_table", None)
    found = []
    for number in range(2):
        read.clear()
        part = read_part(plan, number)
        source = open_part(plan.layout, part, tmp_path, None)
        assert read == sorted({row // 2 for row in part["rows"]})
        assert [source.name(index) for index in range(4)] == [
            f"row {row} of {tmp_path / 'a.parquet'}" for row in part["rows"]
        ]
        for index, row in enumerate(part["rows"]):
            assert source[index] == (files[row].read_bytes(), row % 3)
        found += part["rows"]
    assert sorted(found) == list(range(8))


def test_a_dataset_of_hugging_face_is_divided_by_rows(photos, tmp_path):
    datasets = pytest.importorskip("datasets")
    files = sorted(photos.glob("*/*"))
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    rows = {"image": [{"bytes": path.read_bytes(), "path": None} for path in files], "label": [0, 1] * 8 + [0]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "hf")
    done = convert_shards(plan_shards(tmp_path / "hf", tmp_path / "out", 3, SETTINGS), num_workers=1)
    assert done.class_names == ("a", "b")
    assert values(*shards(tmp_path / "out")) == whole(tmp_path / "hf", tmp_path)


def test_running_again_makes_what_is_missing_and_does_not_look_at_the_source(photos, tmp_path, monkeypatch):
    plan = plan_shards(photos, tmp_path / "out", 3, SETTINGS)
    done = convert_shards(plan, num_workers=1)
    before = contents(tmp_path / "out")
    monkeypatch.setattr(sharded, "convert", None)
    monkeypatch.setattr(sharded, "read_notes", None)
    assert convert_shards(plan_shards(photos, tmp_path / "out", 3, SETTINGS), num_workers=1) == done
    monkeypatch.undo()
    (tmp_path / "out" / "00001.beton").unlink()
    write_picture(photos / "cat" / "9999.jpg", 99)  # not in the plan
    plan = plan_shards(photos, tmp_path / "out", 3, SETTINGS)
    assert plan.missing() == [1]
    assert convert_shards(plan, num_workers=1) == done
    assert contents(tmp_path / "out") == before


def test_another_conversion_into_the_same_target_is_refused(photos, tmp_path):
    plan_shards(photos, tmp_path / "out", 3, SETTINGS)
    with pytest.raises(OptionError, match="shards is 3, and not 4"):
        plan_shards(photos, tmp_path / "out", 4, SETTINGS)
    with pytest.raises(OptionError, match=r"quality=90.*quality=80"):
        plan_shards(photos, tmp_path / "out", 3, replace(SETTINGS, quality=80))
    with pytest.raises(OptionError, match="on_error is 'raise', and not 'skip'"):
        plan_shards(photos, tmp_path / "out", 3, SETTINGS, on_error="skip")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 99}', b"[1]"])
def test_a_damaged_plan_is_an_error_that_names_it(photos, tmp_path, content):
    plan_shards(photos, tmp_path / "out", 3, SETTINGS)
    (tmp_path / "out" / "conversion.json").write_bytes(content)
    with pytest.raises(OptionError, match=r"conversion\.json"):
        load_plan(tmp_path / "out")


def test_parts_of_another_plan_are_noticed(photos, tmp_path):
    plan = plan_shards(photos, tmp_path / "out", 3, SETTINGS)
    path = tmp_path / "out" / "conversion.parts"
    path.write_bytes(path.read_bytes().replace(b"0000.jpg", b"0003.jpg"))
    with pytest.raises(WriteError, match=r"shard 0.*conversion\.parts"):
        convert_shard(plan, 0)


def test_a_plan_takes_the_memory_of_one_part_besides_the_list_of_images(photos, tmp_path, monkeypatch):
    images = [f"/data/train/n{number % 1000:08}/{number:010}.jpg" for number in range(100_000)]
    monkeypatch.setattr(division, "_list_samples", lambda *_: division._Samples(len(images), {}, None, images))
    tracemalloc.start()
    plan_shards(photos, tmp_path / "out", 50, Settings(shuffle=True))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (tmp_path / "out" / "conversion.parts").stat().st_size / 2


def test_bad_samples_are_left_out_and_listed_once_for_all_shards(photos, tmp_path):
    bad = [photos / "cat" / "0006.jpg", photos / "eel" / "0011.jpg"]
    for path in bad:
        path.write_bytes(b"no picture")
    plan = plan_shards(photos, tmp_path / "out", 4, SETTINGS)
    with pytest.raises(WriteError, match=r"shard 0 of 4.*0006\.jpg"):
        convert_shards(plan, num_workers=1)
    plan = plan_shards(photos, tmp_path / "skipped", 4, SETTINGS, on_error="skip")
    done = convert_shards(plan, num_workers=1)
    assert ([each.name for each in done.skipped], done.samples) == ([str(path) for path in bad], 15)
    listed = json.loads((tmp_path / "skipped" / "converted.json").read_text())["skipped"]
    assert [each["name"] for each in listed] == [str(path) for path in bad]
    assert all(each["reason"] for each in listed)


def test_a_failed_shard_leaves_the_others(photos, tmp_path):
    (photos / "cat" / "0000.jpg").write_bytes(b"no picture")
    plan = plan_shards(photos, tmp_path / "out", 2, SETTINGS)
    assert convert_shard(plan, 1)
    with pytest.raises(WriteError):
        convert_shards(plan, num_workers=1)
    with pytest.raises(WriteError, match="1 of 2 shards are missing: 0"):
        finish(plan)
    write_picture(photos / "cat" / "0000.jpg", 0)
    assert convert_shards(plan, num_workers=1).samples == 17


@pytest.mark.parametrize("name", ["00000.beton", "other.beton", "00001.empty"])
def test_a_target_with_files_of_another_conversion_is_refused(photos, tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(b"old")
    with pytest.raises(OptionError, match=f"{name}.*another conversion"):
        plan_shards(photos, tmp_path / "out", 3, SETTINGS)


def test_a_plan_that_another_process_writes_at_the_same_time_is_no_other_conversion(photos, tmp_path, monkeypatch):
    plan = plan_shards(photos, tmp_path / "out", 3, SETTINGS)
    convert_shard(plan, 1)
    original, calls = shard_plan.load_plan, []

    def late(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise FileNotFoundError
        return original(*arguments)

    monkeypatch.setattr(shard_plan, "load_plan", late)
    assert plan_shards(photos, tmp_path / "out", 3, SETTINGS) == plan


def test_another_kind_than_that_of_the_plan_is_refused(photos, tmp_path):
    plan_shards(photos, tmp_path / "out", 3, SETTINGS, kind="folder")
    with pytest.raises(OptionError, match="kind is 'folder', and not 'table'"):
        plan_shards(photos, tmp_path / "out", 3, SETTINGS, kind="table")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_shard_of_which_all_samples_are_bad_leaves_a_list_of_them(tmp_path, num_workers):
    tars = write_tars(tmp_path / "tars", 3)
    (tars / "001.tar").write_bytes(b"no tar file")
    plan = plan_shards(tars, tmp_path / "out", 3, SETTINGS, on_error="skip")
    done = convert_shards(plan, num_workers=num_workers)
    assert (done.shards, done.samples, [each.name for each in done.skipped]) == (2, 6, [str(tars / "001.tar")])
    assert plan.missing() == []
    assert not convert_shard(plan, 1)
    assert Reader(tmp_path / "out").num_samples == 6
    assert not list((tmp_path / "out").glob(".*"))
    assert convert_shards(plan, num_workers=1) == done
    assert finish(plan) == done


def test_nothing_but_bad_samples_is_an_error(tmp_path):
    tars = write_tars(tmp_path / "tars", 2)
    plan = plan_shards(tars, tmp_path / "out", 2, SETTINGS, on_error="skip")
    for path in tars.iterdir():
        path.write_bytes(b"no tar file")
    with pytest.raises(WriteError, match="all samples of the source were left out"):
        convert_shards(plan, num_workers=1)


def test_a_shard_that_was_made_again_is_in_the_result_though_nothing_finished_it_then(photos, tmp_path):
    (photos / "dog" / "0001.jpg").write_bytes(b"no picture")
    plan = plan_shards(photos, tmp_path / "out", 3, SETTINGS, on_error="skip")
    assert len(convert_shards(plan, num_workers=1).skipped) == 1
    write_picture(photos / "dog" / "0001.jpg", 1)
    for number in range(3):
        (tmp_path / "out" / plan.names[number]).unlink()
        convert_shard(plan, number)  # and is killed before it calls `finish`
    done = convert_shards(plan, num_workers=1)
    assert (done.samples, done.skipped) == (17, [])
    assert Reader(tmp_path / "out").num_samples == 17


def test_a_process_waits_for_another_that_makes_the_same_shard(photos, tmp_path, monkeypatch):
    plan = plan_shards(photos, tmp_path / "out", 3, SETTINGS)
    scratch = tmp_path / "scratch"
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: convert_shard(plan, 1, scratch), range(4)))
    assert sorted(made) == [False, False, False, True]
    assert list(scratch.iterdir()) == []
    # Another machine: it has the unfinished file.
    original = sharded.convert

    def locked(*arguments, **options):
        monkeypatch.setattr(sharded, "convert", original)
        raise StorageError(errno.EWOULDBLOCK, "another process is writing this file")

    monkeypatch.setattr(sharded, "convert", locked)
    assert convert_shard(plan, 0, scratch)


def test_impossible_numbers_of_shards_are_refused(photos, tmp_path):
    for count in (0, 18):
        with pytest.raises(OptionError, match="expected 1 to 17 shards"):
            plan_shards(photos, tmp_path / "out", count, SETTINGS)
    with pytest.raises(OptionError, match=r"32769 shards; .* at most 32768"):
        plan_shards(photos, tmp_path / "out", 32_769, SETTINGS)
    tars = write_tars(tmp_path / "tars", 2)
    with pytest.raises(OptionError, match="3 shards of 2 files"):
        plan_shards(tars, tmp_path / "out", 3, SETTINGS)
    with pytest.raises(OptionError, match="limit"):
        plan_shards(tars, tmp_path / "out", 2, replace(SETTINGS, limit=3))
    with pytest.raises(OptionError, match="expected 0 to 1"):
        convert_shard(plan_shards(tars, tmp_path / "out", 2, SETTINGS), 2)


def test_a_loader_gives_every_sample_of_the_shards_once(photos, tmp_path):
    convert_shards(plan_shards(photos, tmp_path / "out", 3, SETTINGS), num_workers=1)
    assert (tmp_path / "out" / "index.json").exists()
    loader = Loader(tmp_path / "out", 4, order=OrderOption.SEQUENTIAL, pipelines={"image": None}, drop_last=False)
    labels = [int(label) for (batch,) in loader for label in batch.ravel()]
    assert labels == [label for _, label in whole(photos, tmp_path)]
