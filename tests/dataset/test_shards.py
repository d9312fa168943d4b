from __future__ import annotations

import csv
import errno
import io
import os
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gpubeton.dataset import Settings, convert, convert_shards, open_source
from gpubeton.dataset import shards as shards_module
from gpubeton.dataset.shards import split_parts
from gpubeton.errors import OptionError, StorageError, WriteError
from gpubeton.reader import Reader
from tests.picture_folders import images_and_labels, write_folder, write_picture, write_tars

SETTINGS = Settings(page_size=1 << 21)
make = partial(convert_shards, num_workers=1)


def contents(folder: Path) -> dict[str, bytes]:
    # The manifest has the times of the files.
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "index.json"}


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.beton"))


def whole(source, tmp_path, **settings) -> list[tuple[bytes, int]]:
    """Convert to one file, and list its samples."""
    conversion = convert(
        open_source(source), tmp_path / "whole.beton", replace(SETTINGS, **settings), num_workers=1, overwrite=True
    )
    return images_and_labels(conversion.path)


@pytest.fixture
def photos(tmp_path):
    return write_folder(tmp_path / "photos", 17)


def test_shards_have_the_samples_of_one_file_in_its_order_and_the_classes_of_the_whole_source(photos, tmp_path):
    done = make(photos, tmp_path / "out", 4, SETTINGS)
    files = shards(tmp_path / "out")
    assert [path.name for path in files] == ["00000.beton", "00001.beton", "00002.beton", "00003.beton"]
    assert images_and_labels(*files) == whole(photos, tmp_path)
    assert [len(images_and_labels(path)) for path in files] == [4, 4, 4, 5]
    # The first shard has images of one class only.
    assert {Reader(path).class_names for path in files} == {("cat", "dog", "eel")} == {done.class_names}
    assert (done.shards, done.samples, done.bytes) == (4, 17, sum(path.stat().st_size for path in files))
    shuffled = {"shuffle": True, "seed": 5, "limit": 11}
    make(photos, tmp_path / "shuffled", 3, replace(SETTINGS, **shuffled))
    assert images_and_labels(*shards(tmp_path / "shuffled")) == whole(photos, tmp_path, **shuffled)


def test_any_order_and_number_of_processes_give_the_same_bytes(photos, tmp_path):
    settings = replace(SETTINGS, shuffle=True, write_mode="proportion", max_resolution=20)
    done = make(photos, tmp_path / "loop", 4, settings)
    for number in (2, 0, 3):
        assert make(photos, tmp_path / "apart", 4, settings, share=(number, 4)) is None
    assert replace(make(photos, tmp_path / "apart", 4, settings, share=(1, 4)), target=done.target) == done
    convert_shards(photos, tmp_path / "processes", 4, settings, num_workers=5)
    expected = contents(tmp_path / "loop")
    assert {*expected} == {"index.bin", *(f"0000{number}.beton" for number in range(4))}
    assert contents(tmp_path / "apart") == expected
    assert contents(tmp_path / "processes") == expected


def test_shards_are_made_of_whole_tar_files_and_open_only_these(tmp_path):
    tars = write_tars(tmp_path / "tars", 5)
    parts = split_parts(str(tars), None, {}, SETTINGS, 2)
    assert [len(part.files) for part in parts] == [2, 3]
    expected = whole(tars, tmp_path)
    for path in sorted(tars.iterdir())[2:]:
        path.unlink()
    source = parts[0].open()
    assert [source[index] for index in range(len(source))] == expected[:6]
    with pytest.raises(OptionError, match=r"002\.tar"):
        parts[1].open()


@pytest.mark.parametrize("trouble", ["no label", "unknown class", "input/output error", "no tar file"])
def test_no_whole_file_is_left_out(tmp_path, monkeypatch, trouble):
    def label(number: int) -> str:
        return "eel" if trouble == "unknown class" and number == 5 else "cat"

    tars = write_tars(tmp_path / "tars", 2, label=label)
    classes = ["cat"]
    if trouble == "no label":
        content = (tars / "001.tar").read_bytes()
        with tarfile.open(fileobj=io.BytesIO(content)) as old, tarfile.open(tars / "001.tar", "w") as tar:
            for member in old.getmembers()[:-1]:
                tar.addfile(member, old.extractfile(member))
    elif trouble == "no tar file":
        (tars / "001.tar").write_bytes(b"no tar file")
    elif trouble == "input/output error":

        def fail(path, *arguments, open_file=os.open, **options):
            if os.fspath(path).endswith("001.tar"):
                raise OSError(errno.EIO, "Input/output error")
            return open_file(path, *arguments, **options)

        monkeypatch.setattr(os, "open", fail)
    with pytest.raises(WriteError, match="shard 0 of 1"):
        make(tars, tmp_path / "out", 1, SETTINGS, on_error="skip", class_names=classes)


def test_tar_files_are_shuffled_and_then_the_samples_of_each_shard(tmp_path):
    tars = write_tars(tmp_path / "tars", 6, 4)
    make(tars, tmp_path / "out", 3, replace(SETTINGS, shuffle=True))
    in_order = whole(tars, tmp_path)
    results = [[in_order.index(value) for value in images_and_labels(path)] for path in shards(tmp_path / "out")]
    assert sorted(number for numbers in results for number in numbers) == list(range(24))
    files = [sorted({number // 4 for number in numbers}) for numbers in results]
    assert [len(file) for file in files] == [2, 2, 2]
    assert files != [[0, 1], [2, 3], [4, 5]]
    assert all(numbers != sorted(numbers) for numbers in results)
    assert len({tuple(np.argsort(numbers)) for numbers in results}) == 3  # different ones


def test_names_of_classes_in_tar_files_are_numbered_over_all_files(tmp_path):
    names = ["dog", "ant", "cat", "bee", "ape"]
    tars = write_tars(tmp_path / "tars", 5, 1, names.__getitem__)
    done = make(tars, tmp_path / "out", 5, SETTINGS)
    assert done.class_names == ("ant", "ape", "bee", "cat", "dog")
    assert [label for _, label in images_and_labels(*shards(tmp_path / "out"))] == [4, 0, 3, 2, 1]


@pytest.mark.parametrize(("names", "is_given"), [("stop 70 30 50", 0), ("stop 70 30 50", 1), ("30 50 70 stop", 1)])
def test_names_of_classes_that_look_like_numbers_are_names_in_each_part(tmp_path, names, is_given):
    names = names.split()
    classes = sorted(names) if is_given else None
    tars = write_tars(tmp_path / "tars", 2, 2, names.__getitem__)
    done = make(tars, tmp_path / "out", 2, SETTINGS, class_names=classes)
    assert done.class_names == ("30", "50", "70", "stop")
    assert images_and_labels(*shards(tmp_path / "out")) == whole(tars, tmp_path)
    assert [label for _, label in images_and_labels(*shards(tmp_path / "out"))] == [
        done.class_names.index(name) for name in names
    ]


@pytest.mark.parametrize(
    ("labels", "options"),
    [([0, 1, "cat", "dog"], {"on_error": "skip", "class_names": ["cat", "dog"]}), ([0, 1, "cat", 1], {})],
)
def test_a_tar_file_with_other_labels_than_the_first_is_named(labels, options, tmp_path):
    tars = write_tars(tmp_path / "tars", 2, 2, labels.__getitem__)
    with pytest.raises(WriteError, match=r"shard 1 of 2.*001\.tar.*--classes") as caught:
        make(tars, tmp_path / "out", 2, SETTINGS, **options)
    assert not options or "names of classes" in str(caught.value)
    assert [path.name for path in shards(tmp_path / "out")] == ["00000.beton"]


def test_numbers_of_the_first_file_decide_the_type_of_labels(tmp_path):
    tars = write_tars(tmp_path / "tars", 2, 2, [0.5, 1, 2, 3].__getitem__)
    make(tars, tmp_path / "out", 2, SETTINGS)
    assert [label for _, label in images_and_labels(*shards(tmp_path / "out"))] == [0.5, 1, 2, 3]


def test_tables_of_paths_and_of_images_are_converted(photos, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files = sorted(photos.glob("*/*"))
    with (photos / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("path", "label"), *((path.relative_to(photos), path.parent.name) for path in files)]
        )
    make(photos / "table.csv", tmp_path / "paths", 3, SETTINGS)
    assert images_and_labels(*shards(tmp_path / "paths")) == whole(photos / "table.csv", tmp_path)
    (tmp_path / "parquet").mkdir()
    for number in range(3):
        rows = {"image": [path.read_bytes() for path in files[number::3]], "label": list(range(len(files[number::3])))}
        parquet.write_table(pyarrow.table(rows), tmp_path / "parquet" / f"{number}.parquet")
    make(tmp_path / "parquet", tmp_path / "images", 3, SETTINGS)
    result = shards(tmp_path / "images")
    assert [len(images_and_labels(path)) for path in result] == [6, 6, 5]
    assert images_and_labels(result[1]) == whole(tmp_path / "parquet" / "1.parquet", tmp_path)
    # One file alone is divided by its rows.
    make(tmp_path / "parquet" / "1.parquet", tmp_path / "rows", 2, SETTINGS)
    assert images_and_labels(*shards(tmp_path / "rows")) == images_and_labels(result[1])


def test_parquet_files_of_several_splits_are_refused(photos, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "training-set"  # a name like a split's, which is that of all
    folder.mkdir()
    rows = {"image": [path.read_bytes() for path in sorted(photos.glob("*/*"))[:2]], "label": [0, 1]}
    for name in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"):
        parquet.write_table(pyarrow.table(rows), folder / f"{name}.parquet")
    with pytest.raises(OptionError, match="several splits by their names: train, validation"):
        make(folder, tmp_path / "out", 2, SETTINGS)
    assert make(f"{folder}/train-0000{{0..1}}-of-00002.parquet", tmp_path / "out", 2, SETTINGS).samples == 4


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_part_of_a_parquet_file_reads_only_its_row_groups(shuffle, photos, tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    files = sorted(photos.glob("*/*"))[:8]
    rows = {"image": [path.read_bytes() for path in files], "label": [f"class {number % 3}" for number in range(8)]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "a.parquet", row_group_size=2)
    parts = split_parts(str(tmp_path / "a.parquet"), None, {}, Settings(shuffle=shuffle, seed=3), 2)
    read, original = [], parquet.ParquetFile.read_row_group
    monkeypatch.setattr(
        parquet.ParquetFile, "read_row_group", lambda self, number: read.append(number) or original(self, number)
    )
    monkeypatch.setattr(parquet, "read_table", None)
    results = []
    for part in parts:
        read.clear()
        source = part.open()
        assert read == sorted({row // 2 for row in part.rows})
        assert [source.name(index) for index in range(4)] == [
            f"row {row} of {tmp_path / 'a.parquet'}" for row in part.rows
        ]
        for index, row in enumerate(part.rows):
            assert source[index] == (files[row].read_bytes(), row % 3)
        results += part.rows
    assert sorted(results) == list(range(8))


def test_a_dataset_of_hugging_face_is_divided_by_rows(photos, tmp_path):
    datasets = pytest.importorskip("datasets")
    files = sorted(photos.glob("*/*"))
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    rows = {"image": [{"bytes": path.read_bytes(), "path": None} for path in files], "label": [0, 1] * 8 + [0]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "hf")
    done = make(tmp_path / "hf", tmp_path / "out", 3, SETTINGS)
    assert done.class_names == ("a", "b")
    assert images_and_labels(*shards(tmp_path / "out")) == whole(tmp_path / "hf", tmp_path)


def test_running_again_makes_only_the_missing_shards(photos, tmp_path, monkeypatch):
    done = make(photos, tmp_path / "out", 3, SETTINGS)
    before = contents(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(shards_module, "convert", None)
        assert make(photos, tmp_path / "out", 3, SETTINGS) == done
    (tmp_path / "out" / "00001.beton").unlink()
    assert make(photos, tmp_path / "out", 3, SETTINGS) == done
    assert contents(tmp_path / "out") == before


def test_a_shard_of_another_conversion_is_noticed(photos, tmp_path):
    make(photos, tmp_path / "out", 3, SETTINGS)
    for count, settings, options in (
        (4, SETTINGS, {}),
        (3, replace(SETTINGS, quality=80), {}),
        (3, SETTINGS, {"on_error": "skip"}),
    ):
        with pytest.raises(OptionError, match=r"0000.\.beton: a file of another conversion"):
            make(photos, tmp_path / "out", count, settings, **options)
    for name in ("other", "00001"):
        (tmp_path / "out" / f"{name}.beton").write_bytes((tmp_path / "out" / "00002.beton").read_bytes())
        with pytest.raises(OptionError, match=rf"{name}\.beton: a file of another conversion"):
            make(photos, tmp_path / "out", 3, SETTINGS)
        (tmp_path / "out" / "other.beton").unlink(missing_ok=True)


def test_a_source_that_has_changed_is_noticed_by_the_task_that_finishes(photos, tmp_path):
    assert make(photos, tmp_path / "out", 3, SETTINGS, share=(0, 3)) is None
    write_picture(photos / "cat" / "0000a.jpg", 99)
    assert make(photos, tmp_path / "out", 3, SETTINGS, share=(1, 3)) is None
    with pytest.raises(OptionError, match=r"00000\.beton: a file of another conversion"):
        make(photos, tmp_path / "out", 3, SETTINGS, share=(2, 3))


def test_bad_samples_are_left_out_and_listed_once_for_all_shards(photos, tmp_path):
    bad = [photos / "cat" / "0006.jpg", photos / "eel" / "0011.jpg"]
    for path in bad:
        path.write_bytes(b"no picture")
    with pytest.raises(WriteError, match=r"shard 0 of 4.*0006\.jpg"):
        make(photos, tmp_path / "out", 4, SETTINGS)
    done = make(photos, tmp_path / "skipped", 4, SETTINGS, on_error="skip")
    assert ([sample.name for sample in done.skipped], done.samples) == ([str(path) for path in bad], 15)
    assert all(sample.reason for sample in done.skipped)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_failed_shard_leaves_the_others(num_workers, photos, tmp_path):
    (photos / "cat" / "0000.jpg").write_bytes(b"no picture")
    assert make(photos, tmp_path / "out", 2, SETTINGS, share=(1, 2)) is None
    with pytest.raises(WriteError, match="shard 0 of 2"):
        convert_shards(photos, tmp_path / "out", 2, SETTINGS, num_workers=num_workers)
    write_picture(photos / "cat" / "0000.jpg", 0)
    assert make(photos, tmp_path / "out", 2, SETTINGS).samples == 17


def test_a_shard_without_a_sound_sample_is_an_error_with_advice(photos, tmp_path):
    for path in (photos / "cat").iterdir():
        path.write_bytes(b"no picture")
    with pytest.raises(WriteError, match=r"shard 0 of 17.*Make fewer shards"):
        make(photos, tmp_path / "out", 17, SETTINGS, on_error="skip")


def test_a_process_waits_for_another_that_makes_the_same_shard(photos, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(shards_module, "temporary_folder", lambda: tmp_path)
    original = shards_module.convert

    def counted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 1:
            raise StorageError(errno.EWOULDBLOCK, "another process is writing this file")
        return original(*arguments, **options)

    monkeypatch.setattr(shards_module, "convert", counted)
    with ThreadPoolExecutor(4) as threads:
        result = threads.map(lambda _: make(photos, tmp_path / "out", 3, SETTINGS, share=(1, 3)), range(4))
        assert list(result) == [None] * 4
    assert list(tmp_path.glob("gpubeton-*")) == []
    assert make(photos, tmp_path / "out", 3, SETTINGS).samples == 17


def test_impossible_numbers_of_shards_are_refused(photos, tmp_path):
    for count in (0, 18):
        with pytest.raises(OptionError, match="expected 1 to 17 shards"):
            make(photos, tmp_path / "out", count, SETTINGS)
    with pytest.raises(OptionError, match=r"32769 shards; .* at most 32768"):
        make(photos, tmp_path / "out", 32_769, SETTINGS)
    tars = write_tars(tmp_path / "tars", 2)
    with pytest.raises(OptionError, match="3 shards of 2 files"):
        make(tars, tmp_path / "out", 3, SETTINGS)
    with pytest.raises(OptionError, match="limit"):
        make(tars, tmp_path / "out", 2, replace(SETTINGS, limit=3))
    with pytest.raises(OptionError, match="N from 0 to M - 1"):
        make(tars, tmp_path / "out", 2, SETTINGS, share=(2, 2))
