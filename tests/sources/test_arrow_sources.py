from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gpubeton.dataset import Settings, convert, open_source
from gpubeton.errors import FormatError, GpubetonError, OptionError
from gpubeton.reader import Reader
from tests.bytes.fault_server import Fault
from tests.bytes.versioned_source import put
from tests.small_files import picture
from tests.sources.samples import contents, placed

pyarrow = pytest.importorskip("pyarrow")

IMAGES = [np.random.default_rng(number).bytes(20 + 7 * number) for number in range(11)]


def write(path, columns, *, is_file=False, batch=4, compression=None, schema=None):
    """Write an Arrow file with batches of so many rows."""
    table = pyarrow.table(columns, schema=schema)
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    new = pyarrow.ipc.new_file if is_file else pyarrow.ipc.new_stream
    with new(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=batch)
    return path


def structs(images, paths=None):
    return [
        image if image is None else {"bytes": image, "path": path}
        for image, path in zip(images, paths or [None] * len(images), strict=True)
    ]


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize("kind", ["struct", "binary", "large_binary"])
def test_the_bytes_at_the_places_are_the_images(tmp_path, is_file, kind):
    binary = pyarrow.large_binary() if kind == "large_binary" else pyarrow.binary()
    images = [*IMAGES, b"", None, b"last"]
    for number, part in enumerate((images[:6], images[6:])):
        column = pyarrow.array(part, binary)
        if kind == "struct":
            paths = pyarrow.nulls(len(part), pyarrow.string())
            column = pyarrow.StructArray.from_arrays([column, paths], ["bytes", "path"], mask=column.is_null())
        write(tmp_path / f"a-{number}.arrow", {"jpg": column, "label": list(range(len(part)))}, is_file=is_file)
    source = open_source(f"{tmp_path}/a-{{0..1}}.arrow", image="jpg")
    assert placed(source) == [image or b"" for image in images]
    assert [source[index][0] for index in range(len(source))] == [image or b"" for image in images]
    assert source.columns["label"] == [*range(6), *range(8)]
    assert len(source.places().containers) == 2
    assert placed(pickle.loads(pickle.dumps(source))) == placed(source)


@pytest.fixture
def huggingface():
    return pytest.importorskip("datasets")


def jpeg(number):
    file = io.BytesIO()
    Image.fromarray(picture(number, 24, 32)).save(file, "JPEG")
    return file.getvalue()


def dataset_of(huggingface, count=7):
    features = {"image": huggingface.Image(), "label": huggingface.ClassLabel(names=["owl", "cat"])}
    columns = {"image": structs([jpeg(n) for n in range(count)]), "label": [n % 2 for n in range(count)]}
    return huggingface.Dataset.from_dict(columns, features=huggingface.Features(features))


def test_datasets_that_were_chosen_and_shuffled_are_read_in_place(huggingface, tmp_path):
    dataset = dataset_of(huggingface).select([5, 1, 4, 1]).shuffle(seed=3)
    dataset.save_to_disk(tmp_path / "a", num_shards=2)
    source = open_source(tmp_path / "a")
    assert (source.class_names, source.columns["label"]) == (("owl", "cat"), dataset["label"][:])
    images = [row["bytes"] for row in dataset.cast_column("image", huggingface.Image(decode=False))["image"]]
    assert placed(source) == images == [image for image, _ in contents(source)]
    assert len(source.places().containers) == 2


def test_files_of_the_cache_are_read_and_those_of_several_splits_are_refused(huggingface, tmp_path):
    from datasets.arrow_writer import ArrowWriter

    folder = tmp_path / "cache"
    folder.mkdir()
    dataset = dataset_of(huggingface)
    rows = dataset.cast_column("image", huggingface.Image(decode=False)).to_list()
    for name, part in (
        ("my-set-train-00000-of-00002", rows[:2]),
        ("my-set-train-00001-of-00002", rows[2:5]),
        ("my-set-test", rows[5:]),
        ("cache-0123456789abcdef", rows),
    ):
        with ArrowWriter(features=dataset.features, path=str(folder / f"{name}.arrow")) as writer:
            for row in part:
                writer.write(row)
            writer.finalize()
    source = open_source(f"{folder}/my-set-train*.arrow")
    assert (source.kind, source.class_names) == ("huggingface", ("owl", "cat"))
    assert contents(source) == [(jpeg(number), number % 2) for number in range(5)]
    assert placed(source) == [jpeg(number) for number in range(5)]
    assert contents(open_source(folder / "my-set-test.arrow")) == [(jpeg(5), 1), (jpeg(6), 0)]
    with pytest.raises(OptionError, match=r"cache: 4 files, .*splits.*train"):
        open_source(folder)


def test_a_dataset_is_converted_without_its_library_in_several_processes(huggingface, tmp_path, monkeypatch):
    dataset_of(huggingface).save_to_disk(tmp_path / "a")
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    done = convert(open_source(tmp_path / "a"), tmp_path / "a.beton", Settings(page_size=1 << 21), num_workers=2)
    assert Reader(done.path).class_names == ("owl", "cat")


def test_compressed_batches_and_images_that_are_paths_are_refused(tmp_path):
    for compression in ("lz4", "zstd"):
        path = write(tmp_path / "a.arrow", {"image": structs(IMAGES)}, compression=compression)
        source = open_source(path, image="image")
        assert [image for (image,) in contents(source)] == IMAGES
        with pytest.raises(OptionError, match=r"a\.arrow: the column 'image' is compressed.*gpubeton convert"):
            source.places()
    path = write(tmp_path / "a.arrow", {"image": [{"bytes": b"x", "path": None}, {"bytes": None, "path": "cat/1.jpg"}]})
    with pytest.raises(OptionError, match=r"a\.arrow: .*cat/1\.jpg.*save_to_disk"):
        open_source(path, image="image").places()
    path = write(tmp_path / "a.arrow", {"image": ["1.jpg"]})
    with pytest.raises(OptionError, match=r"a\.arrow: .*string"):
        open_source(path, image="image").places()


def test_descriptions_that_are_damaged_are_named(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    write(folder / "data.arrow", {"image": structs(IMAGES)})
    for state in (
        b"{",
        b"[]",
        b'{"_data_files": []}',
        b'{"_data_files": [1]}',
    ):
        (folder / "state.json").write_bytes(state)
        (folder / "dataset_info.json").write_bytes(b"{}")
        with pytest.raises(FormatError, match=str(folder)):
            open_source(folder, image="image")
    (folder / "state.json").write_bytes(b'{"_data_files": [{"filename": "../../data.arrow"}]}')
    assert placed(open_source(folder, image="image")) == IMAGES
    with pytest.raises(OptionError, match="--image COLUMN"):
        open_source(folder / "data.arrow")
    (folder / "other.arrow").write_bytes(b"no Arrow file")
    with pytest.raises(FormatError, match=r"other\.arrow"):
        open_source(folder / "other.arrow")
    write(folder / "other.arrow", {"picture": [b"x"]})
    with pytest.raises(FormatError, match=r"data\.arrow: the other files have other columns"):
        open_source(f"{folder}/{{data,other}}.arrow", image="image")


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=4),
    st.integers(0, 1 << 20) | st.just(0),
)
@settings(max_examples=300)
def test_a_damaged_arrow_file_is_a_named_error_or_has_places_in_it(tmp_path, is_file, flips, cut):
    path = write(tmp_path / "a.arrow", {"image": structs(IMAGES)}, is_file=is_file)
    content = bytearray(path.read_bytes())
    for place, flip in flips:
        content[place % len(content)] ^= flip
    path.write_bytes(content[: len(content) - cut % len(content)])
    try:
        places = open_source(path, image="image").places()
    except GpubetonError as error:
        damage = str(error)
        assert str(path) in damage
        return
    assert (places.offset + places.size <= path.stat().st_size).all()


# --- object stores


@pytest.mark.parametrize("is_file", [False, True])
def test_of_arrow_files_in_a_store_only_headers_offsets_and_labels_are_requested(fault_server, tmp_path, is_file):
    images = [np.random.default_rng(number).bytes(400_000 + number) for number in range(12)]
    names = pyarrow.array(["eel", "cat", "dog"] * 4).dictionary_encode()
    column = pyarrow.array(structs([*images[:5], None, *images[6:]], [f"{number}.jpg" for number in range(12)]))
    column = column.filter(pyarrow.array([True] * 12))
    path = write(tmp_path / "a.arrow", {"image": column, "more": images, "label": names}, is_file=is_file)
    fault_server.objects["a.arrow"] = path.read_bytes()
    here, there = (open_source(place, image="image") for place in (path, fault_server.url("a.arrow")))
    requests = [(request.start, request.stop) for request in fault_server.gets()[1:]]  # the first one opens it
    assert sum(stop - start for start, stop in requests) < 3 * 4 * (1 << 16)
    assert len(requests) <= 3 * 3 + 3
    assert placed(there) == placed(here)
    assert contents(pickle.loads(pickle.dumps(there))) == contents(here)
    assert there.class_names == ("cat", "dog", "eel")


def test_datasets_in_a_store_are_read_by_their_descriptions(huggingface, s3_server, tmp_path):
    dataset = dataset_of(huggingface)
    huggingface.DatasetDict({"train": dataset, "test": dataset.select([2])}).save_to_disk(tmp_path / "two")
    dataset.save_to_disk(tmp_path / "one", num_shards=3)
    for path in tmp_path.rglob("*.*"):
        s3_server.put(str(path.relative_to(tmp_path)), path)
    for name, split in (("one", None), ("two", "test"), ("two/train", None)):
        here, there = open_source(tmp_path / name, split=split), open_source(s3_server.url(f"{name}/"), split=split)
        assert (there.kind, there.class_names) == ("huggingface", ("owl", "cat"))
        assert contents(there) == contents(here)
        assert placed(there) == placed(here)
    with pytest.raises(OptionError, match=r"'train', 'test', .*--split"):
        open_source(s3_server.url("two/"))
    with pytest.raises(OptionError, match=r"one/\*\.feather: no such file"):
        open_source(s3_server.url("one/*.feather"), "huggingface")


def test_compressed_files_in_a_store_are_refused(fault_server, tmp_path):
    for compression in ("lz4", "zstd"):
        path = write(tmp_path / "a.arrow", {"image": structs(IMAGES)}, compression=compression)
        fault_server.objects["a.arrow"] = path.read_bytes()
        with pytest.raises(FormatError, match=r"a\.arrow: no Arrow file .*compressed"):
            open_source(fault_server.url("a.arrow"), image="image")


@pytest.mark.parametrize("size", [1 << 50, 1 << 62, (1 << 63) - 1])
def test_a_file_that_a_server_claims_to_be_larger_than_any_memory_is_named(fault_server, size):
    fault_server.objects["a.arrow"] = bytes(1000)
    fault_server.always = Fault(headers={"Content-Range": f"bytes 0-999/{size}"})
    with pytest.raises(GpubetonError, match=r"a\.arrow: "):
        open_source(fault_server.url("a.arrow"), image="image")


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=4),
    st.integers(0, 1 << 20) | st.just(0),
)
@settings(max_examples=300)
def test_a_damaged_arrow_file_in_a_store_is_a_named_error_or_has_the_places_of_one_here(tmp_path, is_file, flips, cut):
    path = write(tmp_path / "a.arrow", {"image": structs(IMAGES), "label": list("abcdefghijk")}, is_file=is_file)
    content = bytearray(path.read_bytes())
    for place, flip in flips:
        content[place % len(content)] ^= flip
    path.write_bytes(content[: len(content) - cut % len(content)])
    try:
        there = open_source(put(tmp_path / "b.arrow", path.read_bytes()), "huggingface", image="image")
    except GpubetonError as error:
        damage = str(error)
        assert str(tmp_path / "b.arrow") in damage
        return
    here = open_source(path, image="image")
    assert placed(there) == placed(here)
    assert there.columns == here.columns
