from __future__ import annotations

import io
import json
import re
import sys
import tarfile
import tracemalloc
import types

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from gpubeton._sources import find_files
from gpubeton.dataset import Settings, convert, open_source, recognise
from gpubeton.errors import NoSuchFieldError, OptionError
from gpubeton.format.dataset import expand_braces
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from tests.picture_folders import write_folder, write_picture, write_tar
from tests.small_files import picture
from tests.sources.samples import contents


def jpeg(number, height=24, width=32):
    file = io.BytesIO()
    Image.fromarray(picture(number, height, width)).save(file, "JPEG")
    return file.getvalue()


# --- folders


def test_a_folder_of_images_without_classes_has_no_labels_and_one_with_nothing_in_it_is_refused(tmp_path):
    with pytest.raises(OptionError, match=re.escape(str(tmp_path))):
        open_source(tmp_path)
    write_picture(tmp_path / "b.jpg", 1)
    write_picture(tmp_path / "a.png", 2)
    source = open_source(tmp_path)
    assert (len(source), source.fields, source.class_names) == (2, {}, None)
    with pytest.raises(NoSuchFieldError, match=r"the fields 'image'\. .* has labels if each class has its folder"):
        Loader(tmp_path, 1, pipelines={"label": None})
    done = convert(source, tmp_path / "a.beton", Settings(page_size=1 << 21), num_workers=1)
    assert Reader(done.path).field_names == ["image"]


def test_files_that_are_no_samples_are_counted_by_their_endings(tmp_path):
    write_folder(tmp_path / "photos")
    for name in ("cat/a.gif", "cat/b.GIF", "dog/.DS_Store", "dog/deeper/README", "notes.txt"):
        (tmp_path / "photos" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "photos" / name).touch()
    write_picture(tmp_path / "photos" / "lost.png", 1)
    source = open_source(tmp_path / "photos")
    assert len(source) == 9
    assert source.passed_over == {".gif": 2, "": 1, ".txt": 1, ".png": 1, "hidden": 1}
    write_picture(tmp_path / "flat" / "a.png", 1)
    (tmp_path / "flat" / "a.gif").touch()
    assert open_source(tmp_path / "flat").passed_over == {".gif": 1}
    assert open_source(write_table(tmp_path / "a.csv", ["path", "class"], [("flat/a.png", 1)])).passed_over == {}


# --- tables


def write_table(path, header, rows):
    path.write_text("\n".join([",".join(header), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_a_table_of_paths_and_names_of_classes(tmp_path):
    folder = write_folder(tmp_path / "photos", 4, ("dog", "cat"))
    rows = [(path.relative_to(tmp_path), path.parent.name) for path in sorted(folder.rglob("*.*"))]
    source = open_source(write_table(tmp_path / "a.csv", ["path", "class"], rows))
    assert source.class_names == ("cat", "dog")
    assert contents(source) == [((tmp_path / path).read_bytes(), int(name == "dog")) for path, name in rows]


def test_numbers_with_a_column_of_names_beside_them_keep_their_numbers(tmp_path):
    write_picture(tmp_path / "x.jpg", 1)
    rows = [("x.jpg", 2, "owl"), ("x.jpg", 0, "zebra")]
    source = open_source(write_table(tmp_path / "a.csv", ["image", "label", "class"], rows))
    assert [source[index][1] for index in range(2)] == [2, 0]
    assert source.class_names == ("zebra", "1", "owl")


def test_numbers_that_are_not_whole_are_floats(tmp_path):
    write_picture(tmp_path / "x.jpg", 1)
    source = open_source(write_table(tmp_path / "a.csv", ["image", "y"], [("x.jpg", 0.5), ("x.jpg", 2)]))
    done = convert(source, tmp_path / "a.beton", Settings(page_size=1 << 21), num_workers=1)
    assert Reader(done.path).index.column("label").tolist() == [0.5, 2.0]


def test_columns_are_chosen_and_missing_ones_and_a_row_of_another_length_are_named(tmp_path):
    write_picture(tmp_path / "x.jpg", 1)
    table = write_table(tmp_path / "a.csv", ["where", "what", "other"], [("x.jpg", 3, "q")])
    assert contents(open_source(table, image="where", label="what")) == [((tmp_path / "x.jpg").read_bytes(), 3)]
    with pytest.raises(OptionError, match="'where', 'what', 'other'"):
        open_source(table)
    with pytest.raises(OptionError, match="'zap'"):
        open_source(table, image="where", label="zap")
    table.write_text("image,label\nx.jpg,1\ny.jpg\n")
    with pytest.raises(OptionError, match=r"row 1 .* 1 .* 2"):
        open_source(table)


def test_parquet_may_hold_paths_or_the_files_themselves(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = write_picture(tmp_path / "x.jpg", 1)
    for name, images in (("paths", ["x.jpg"]), ("files", [{"bytes": jpeg(1), "path": None}]), ("bytes", [jpeg(1)])):
        parquet.write_table(pyarrow.table({"image": images, "label": [5]}), tmp_path / f"{name}.parquet")
        samples = contents(open_source(tmp_path / f"{name}.parquet"))
        assert samples == [(path.read_bytes() if name == "paths" else jpeg(1), 5)]


# --- tar files


def test_tar_files_give_images_and_labels_of_one_key(tmp_path):
    for shard in range(2):
        members = [
            member
            for number in range(3)
            for member in (
                (f"a/{shard}{number}.cls", str(number).encode()),
                (f"a/{shard}{number}.seg.png", b"a mask"),
                (f"a/{shard}{number}.jpg", jpeg(number)),
            )
        ]
        write_tar(tmp_path / f"t-{shard:03}.tar", members)
    source = open_source(f"{tmp_path}/t-{{000..001}}.tar")
    assert contents(source) == [(jpeg(number), number) for number in range(3)] * 2
    assert source.name(4).endswith("t-001.tar: a/11.jpg")
    assert contents(open_source(tmp_path)) == contents(source)


def test_a_label_may_be_in_a_json_file_and_one_of_too_many_levels_is_named(tmp_path):
    members = [("1.jpg", jpeg(1)), ("1.json", json.dumps({"species": "owl"}).encode())]
    source = open_source(write_tar(tmp_path / "a.tar", members), label="json:species")
    assert (contents(source), source.class_names) == ([(jpeg(1), 0)], ("owl",))
    with pytest.raises(OptionError, match=r"'label'.*--label json:"):
        open_source(tmp_path / "a.tar", label="json")
    path = write_tar(tmp_path / "b.tar", [("1.jpg", jpeg(1)), ("1.json", b"[" * 20_000)])
    with pytest.raises(OptionError, match=r"1\.json"):
        open_source(path, label="json:species")


def test_tar_files_of_webdataset_are_read(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        for number in range(3):
            writer.write({"__key__": f"{number:05}", "jpg": jpeg(number), "cls": number})
    assert contents(open_source(tmp_path / "a.tar")) == [(jpeg(number), number) for number in range(3)]


def test_tar_files_that_are_missing_compressed_or_without_images_are_named(tmp_path):
    with pytest.raises(OptionError, match=r"b\.tar: .*1 of 1"):
        open_source(tmp_path / "b.tar")
    with tarfile.open(tmp_path / "c.tar", "w:gz"):
        pass
    with pytest.raises(OptionError, match=r"c\.tar: compressed.*gunzip"):
        open_source(tmp_path / "c.tar")
    with pytest.raises(OptionError, match="--image ENDING"):
        open_source(write_tar(tmp_path / "d.tar", [("1.txt", b"x")]))


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 4))
def test_braces_count_with_as_many_digits_as_are_written(first, count, digits):
    text = f"s-{{{first:0{digits}}..{first + count}}}.tar"
    assert expand_braces(text) == [f"s-{number:0{digits}}.tar" for number in range(first, first + count + 1)]


@pytest.mark.parametrize("braces", ["{0..99999999999}", "{000..999}{000..999}{000..999}", "{0..9}" * 12, "{0..32768}"])
def test_braces_for_more_files_than_a_dataset_may_have_are_refused_and_not_expanded(braces):
    tracemalloc.start()
    for read in (open_source, Reader):
        with pytest.raises(OptionError, match="names more than 32768 files; expected at most so many"):
            read(f"train-{braces}.tar" if read is open_source else f"train-{braces}.beton")
    assert tracemalloc.get_traced_memory()[1] < 50 << 20
    tracemalloc.stop()


# --- Hugging Face


@pytest.fixture
def huggingface():
    return pytest.importorskip("datasets")


def test_a_dataset_of_hugging_faces_gives_its_files_and_class_names(huggingface, tmp_path):
    features = huggingface.Features(
        {"image": huggingface.Image(), "label": huggingface.ClassLabel(names=["owl", "cat"])}
    )
    columns = {"image": [{"bytes": jpeg(number), "path": None} for number in range(3)], "label": [1, 0, 1]}
    dataset = huggingface.Dataset.from_dict(columns, features=features)
    dataset.save_to_disk(tmp_path / "one")
    huggingface.DatasetDict({"train": dataset, "test": dataset.select([2])}).save_to_disk(tmp_path / "two")
    source = open_source(tmp_path / "one")
    assert contents(source) == [(jpeg(number), label) for number, label in enumerate([1, 0, 1])]
    assert source.class_names == ("owl", "cat")
    assert contents(open_source(tmp_path / "two", split="test")) == [(jpeg(2), 1)]
    with pytest.raises(OptionError, match=r"'train', 'test', .*--split"):
        open_source(tmp_path / "two")
    done = convert(source, tmp_path / "a.beton", Settings(page_size=1 << 21), num_workers=2)
    assert Reader(done.path).class_names == ("owl", "cat")


# --- torchvision


class Digits:
    """A fake of a torchvision dataset in memory."""

    classes = ("zero", "one")

    def __init__(self, root, train=True, transform=None, download=False):
        Digits.asked = root, train, download
        self.targets = [0, 1, 1] if train else [1]

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return Image.fromarray(picture(index, 8, 8)), self.targets[index]


class Flowers:
    """Imitates a dataset that lists files, and has another argument for its split."""

    def __init__(self, root, split="train"):
        self.samples = [(f"{root}/{split}/0.jpg", 0), (f"{root}/{split}/1.jpg", 1)]
        self.targets = [0, 1]

    def __len__(self):
        return 2


class Made(Digits):
    """Has no root, as FakeData."""

    def __init__(self, size=2, transform=None):
        assert size == 2
        self.targets = [0, 1]


class Wanting:
    """Needs an argument that the caller does not pass."""

    def __init__(self, root, loader):
        raise AssertionError


@pytest.fixture
def torchvision(monkeypatch):
    module = types.ModuleType("torchvision.datasets")
    module.__all__ = ["Digits", "Flowers"]
    module.Digits, module.Flowers, module.Made, module.Wanting = Digits, Flowers, Made, Wanting
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", module)


def test_a_dataset_of_torchvisions_is_made_by_name(torchvision, tmp_path):
    source = open_source("torchvision:Digits", root=tmp_path, split="test", download=True)
    assert Digits.asked == (str(tmp_path), False, True)
    assert (len(source), source.class_names) == (1, ("zero", "one"))
    done = convert(open_source("torchvision:Digits"), tmp_path / "a.beton", Settings("raw"), num_workers=1)
    index, content = Reader(done.path).index, done.path.read_bytes()
    assert index.column("label").tolist() == [0, 1, 1]
    start = int(index.regions("image").offset[1])
    assert content[start : start + 192] == np.asarray(picture(1, 8, 8)).tobytes()


def test_a_dataset_of_torchvisions_without_a_root_is_made_and_one_that_wants_more_is_refused(torchvision):
    assert len(open_source("torchvision:Made")) == 2
    with pytest.raises(OptionError, match=r"torchvision:Wanting .*'loader'.*from_indexed_dataset"):
        open_source("torchvision:Wanting")


def test_files_of_torchvisions_folders_are_not_decoded_and_a_replaced_one_is_another_sample(torchvision, tmp_path):
    for number in range(2):
        write_picture(tmp_path / "val" / f"{number}.jpg", number)
    source = open_source("torchvision:Flowers", root=tmp_path, split="val")
    assert source[1] == (f"{tmp_path}/val/1.jpg", 1)
    assert source.name(1).endswith("val/1.jpg")
    before = source.identity(0), source.identity(1)
    (tmp_path / "val" / "0.jpg").write_bytes(b"x")
    assert (source.identity(0) == before[0], source.identity(1) == before[1]) == (False, True)


def test_an_unknown_dataset_of_torchvision_and_a_missing_torchvision_are_reported(torchvision, monkeypatch):
    with pytest.raises(OptionError, match=r"'Digit'.* Digits, Flowers"):
        open_source("torchvision:Digit")
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(OptionError, match="pip install torchvision"):
        open_source("torchvision:Digits")


# --- all of them


def test_a_source_is_recognised_by_its_files(tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "dataset_info.json").touch()
    write_tar(tmp_path / "a.tar", [])
    for source, kind in (
        ("torchvision:CIFAR10", "torchvision"),
        ("a.CSV", "table"),
        ("a.parquet", "table"),
        ("a-{0..3}.tar", "webdataset"),
        ("s3://bucket/a-{0..3}.tar", "webdataset"),
        ("https://host/a.TAR?signature=1.csv", "webdataset"),
        ("a.zip", "zip"),
        ("a-{0..3}.arrow", "huggingface"),
        (tmp_path / "hf", "huggingface"),
        (tmp_path, "folder"),
    ):
        assert recognise(source) == kind
    with pytest.raises(OptionError, match="--from KIND"):
        recognise(tmp_path / "nowhere")


def test_options_of_another_kind_are_refused(tmp_path):
    write_picture(tmp_path / "a.jpg", 1)
    with pytest.raises(OptionError, match=r"split: .* folder"):
        open_source(tmp_path, split="train")
    with pytest.raises(OptionError, match="kind is 'rar'"):
        open_source(tmp_path, "rar")


def labels_of(path, values, **options):
    """Open a table with these labels, as text or in a column of Parquet; its labels and the names of its classes."""
    columns = {"path": [f"{number}.jpg" for number in range(len(values))], "label": values}
    if path.suffix == ".parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table(columns), path)
    else:
        write_table(path, columns, zip(*columns.values(), strict=True))
    source = open_source(path, **options)
    return list(source.columns["label"]), source.class_names


@given(values=st.lists(st.integers(-(2**62), 2**62), min_size=1), ending=st.sampled_from(["csv", "parquet"]))
def test_whole_numbers_do_not_change_even_as_text(tmp_path, values, ending):
    assert labels_of(tmp_path / f"a.{ending}", values) == (values, None)


@given(values=st.lists(st.text(st.characters(categories=["L"]), min_size=1), min_size=1))
@example(values=["nan", "x"])
def test_names_become_their_place_among_all_sorted(tmp_path, values):
    numbers, names = labels_of(tmp_path / "a.parquet", values)
    if names is not None:
        assert [names[number] for number in numbers] == values
        assert list(names) == sorted(set(values))


def test_text_among_the_given_names_is_a_name_though_it_looks_like_a_number_and_another_is_reported(tmp_path):
    names = ["30", "50", "stop"]
    assert labels_of(tmp_path / "a.csv", ["30", "50"], class_names=names)[0] == [0, 1]
    assert labels_of(tmp_path / "a.csv", ["0", "1"], class_names=["1", "2"])[0] == [0, 1]
    assert labels_of(tmp_path / "a.parquet", [30, 50], class_names=names)[0] == [30, 50]
    with pytest.raises(OptionError, match=r"table\.csv: .*'eel'.* 1 "):
        labels_of(tmp_path / "table.csv", ["eel"], class_names=["owl"])


def num_images_of(path, column):
    return len(open_source(path, image=column))


def test_images_of_a_parquet_file_are_no_objects_of_python_before_they_are_used(tmp_path, memory_of):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files = [bytes([number]) * 1_000_000 for number in range(8)]
    rows = {"image": [{"bytes": file, "path": None} for file in files], "jpg": files, "label": list(range(8))}
    parquet.write_table(pyarrow.table(rows), tmp_path / "table.parquet")
    for column in ("image", "jpg"):
        source = open_source(tmp_path / "table.parquet", image=column)
        assert memory_of(num_images_of, tmp_path / "table.parquet", column).peak < 2_000_000
        assert [source[number] for number in range(8)] == [(file, number) for number, file in enumerate(files)]


def test_tar_files_are_found_by_wildcards_and_by_names_with_brackets(tmp_path):
    for name in ("b-1.tar", "a-2.tar", "a-1.tar", "a[1].tar"):
        (tmp_path / name).touch()
    assert find_files(f"{tmp_path}/a-*.tar", ".tar") == [f"{tmp_path}/a-{number}.tar" for number in (1, 2)]
    assert find_files(f"{tmp_path}/a[1].tar", ".tar") == [f"{tmp_path}/a[1].tar"]
    with pytest.raises(OptionError, match=r"c-\*\.tar"):
        find_files(f"{tmp_path}/c-*.tar", ".tar")


def test_compressed_tar_files_beside_others_are_warned_of(tmp_path):
    for name in ("a.tar", "a.tar.index", "b.tar.gz", "c.tgz"):
        (tmp_path / name).write_bytes(b"")
    with pytest.warns(UserWarning, match=r"b\.tar\.gz: left out with 1 more"):
        assert find_files(str(tmp_path), ".tar") == [str(tmp_path / "a.tar")]
    assert find_files(str(tmp_path / "*.tar"), ".tar") == [str(tmp_path / "a.tar")]
