"""Images in folders, tables, tar, zip and Arrow files give what the converted file gives, without a conversion."""

from __future__ import annotations

import csv
import io
import multiprocessing
import os
import re
import shutil
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpubeton import Loader
from gpubeton.dataset import Settings, convert, index_source, open_source, summarize, verify
from gpubeton.errors import FormatError, OptionError, StateError, StorageError
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.fields.rgb_image import SimpleRGBImageDecoder
from gpubeton.format.index import Index
from gpubeton.transforms import RandomHorizontalFlip, ToTensor
from tests.cli.command import run
from tests.loader.pipelines import same
from tests.small_files import picture

CLASSES = ("cat", "dog", "eel")
ORDERS = ["sequential", "random", "quasi_random", "window"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Baseline JPEGs of many sizes, in three classes."""
    root = tmp_path_factory.mktemp("photos") / "photos"
    for number in range(30):
        folder = root / CLASSES[number // 10]
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(picture(number, 30 + 3 * number, 40 + number))
        image = image.convert("L") if number % 7 == 3 else image
        more = {"exif": bytes(50_000)} if number == 5 else {}  # its size is after the first bytes
        image.save(folder / f"{number:04}.jpg", quality=60 + number, **more)
    return root


def listed(photos):
    return [(file, CLASSES.index(file.parent.name)) for file in sorted(photos.rglob("*.jpg"))]


def write_tars(photos, folder, samples_each=12):
    """Write tar files in webdataset's layout."""
    samples = listed(photos)
    for start in range(0, len(samples), samples_each):
        with tarfile.open(folder / f"train-{start // samples_each:03}.tar", "w") as tar:
            for file, label in samples[start : start + samples_each]:
                for ending, content in (("jpg", file.read_bytes()), ("cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{file.stem}.{ending}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return f"{folder}/train-{{000..{(len(samples) - 1) // samples_each:03}}}.tar"


def write_zip(photos, folder):
    """Write a zip file of stored entries."""
    with zipfile.ZipFile(folder / "photos.zip", "w", zipfile.ZIP_STORED) as archive:
        for file, _ in listed(photos):
            archive.write(file, file.relative_to(photos))
    return folder / "photos.zip"


def write_table(photos, folder):
    """Write a table of absolute paths and labels."""
    with (folder / "photos.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows(listed(photos))
    return folder / "photos.csv"


def write_arrow(photos, folder):
    """Write Arrow files with `datasets`."""
    datasets = pytest.importorskip("datasets")
    samples = [(file.read_bytes(), file.name, label) for file, label in listed(photos)]
    rows = [{"image": {"bytes": content, "path": name}, "label": label} for content, name, label in samples]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})
    datasets.Dataset.from_list(rows, features=features).save_to_disk(os.fspath(folder / "arrow"), num_shards=2)
    return folder / "arrow"


WRITERS = {
    "folder": lambda photos, _: photos,
    "tar": write_tars,
    "zip": write_zip,
    "table": write_table,
    "arrow": write_arrow,
}


def pipelines(size=(24, 20)):
    return {"image": [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip(), ToTensor()]}


@pytest.fixture(scope="module")
def converted(photos, tmp_path_factory):
    path = tmp_path_factory.mktemp("converted") / "photos.beton"
    convert(open_source(photos), path, Settings(), num_workers=1)
    return path


@pytest.fixture(params=list(WRITERS))
def container(request, photos, tmp_path):
    return WRITERS[request.param](photos, tmp_path)


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("os_cache", [True, False])
def test_batches_and_orders_are_those_of_the_converted_file(container, converted, tmp_path, is_stored, os_cache):
    more = {}
    if is_stored:
        done = index_source(open_source(container), tmp_path / "photos.index", num_workers=1)
        assert (done.samples, done.indexed, done.unread) == (30, 30, [])
        more = {"containers": done.outside}
    path = tmp_path / "photos.index" if is_stored else container
    for order in ORDERS:
        options = {"order": order, "seed": 3, "pipelines": pipelines(), "drop_last": False, "num_workers": 1}
        expected = Loader(converted, 7, **options)
        loader = Loader(path, 7, os_cache=os_cache, **options, **more)
        assert loader.reader.metadata.tobytes() == expected.reader.metadata.tobytes()
        assert loader.reader.index.fingerprint == expected.reader.index.fingerprint
        for _ in range(2):
            assert same(loader, expected)


def test_a_checkpoint_goes_on_with_the_converted_file_and_back(container, converted, tmp_path):
    options = {"order": "random", "pipelines": pipelines(), "num_workers": 1}
    for first, second in ((container, converted), (converted, container)):
        loader = Loader(first, 4, seed=4, **options)
        batches = iter(loader)
        next(batches)
        resumed = Loader(second, 4, **options)
        resumed.load_state_dict(loader.state_dict())
        assert same(resumed, batches)


def test_a_checkpoint_of_joined_indices_goes_on_with_the_converted_files_and_back(photos, tmp_path):
    names = {"index": [], "beton": []}
    for number, chosen in enumerate((["cat", "dog"], ["dog", "eel"], ["eel", "cat"])):
        folder = tmp_path / f"{number}"
        for name in chosen:
            shutil.copytree(photos / name, folder / name)
        (folder / "tars").mkdir()
        source = open_source(write_tars(folder, folder / "tars", samples_each=8))
        names["index"].append(tmp_path / f"{number}.index")
        names["beton"].append(tmp_path / f"{number}.beton")
        assert index_source(source, names["index"][-1], num_workers=1).containers == 3
        convert(source, names["beton"][-1], Settings(), num_workers=1)
    both = [names["index"][0], names["beton"][1], names["index"][2]]
    for order in ORDERS:
        options = {"order": order, "pipelines": pipelines(), "num_workers": 1, "seed": 3}
        for first, second in (("index", "beton"), ("beton", "index")):
            loader, resumed = Loader(names[first], 4, **options), Loader(names[second], 4, **options)
            assert loader.reader.metadata.tobytes() == resumed.reader.metadata.tobytes()
            batches = iter(loader)
            next(batches)
            resumed.load_state_dict(loader.state_dict())
            mixed = Loader(both, 4, **options)
            mixed.load_state_dict(loader.state_dict())
            rest = list(batches)
            assert same(resumed, rest)
            assert same(mixed, rest)


def test_a_checkpoint_of_joined_indices_with_the_numbers_of_containers_in_its_fingerprint_goes_on(photos, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        source = open_source(write_tars(photos, tmp_path / name))
        index_source(source, tmp_path / f"{name}.index", num_workers=1)
    options = {"pipelines": pipelines(), "num_workers": 1, "seed": 1}
    loader, resumed = (Loader([tmp_path / "a.index", tmp_path / "b.index"], 4, **options) for _ in "12")
    index = loader.reader.index
    image, label = index.rows
    column = image.column.copy()
    column["data_ptr"][30:] += np.uint64(2 << 48)  # three containers come before, and not one
    moved = replace(image, column=column), label
    old = Index(index.files, index.header, index.descriptors, moved).fingerprint
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    assert state["file"] == index.fingerprint != old
    resumed.load_state_dict({**state, "file": old})
    assert same(resumed, batches)
    with pytest.raises(StateError, match="another loader: the file"):
        resumed.load_state_dict({**state, "file": old[::-1]})


def test_entry_points_are_used(photos, tmp_path, capsys):
    index_source(open_source(write_tars(photos, tmp_path)), tmp_path / "photos.index", num_workers=1)
    loader = Loader(tmp_path / "photos.index", 4, pipelines=pipelines(), num_workers=1)
    loader.explain()
    assert "30 JPEGs with entry points" in capsys.readouterr().out


def test_files_that_are_no_baseline_jpegs_give_their_pixels(tmp_path):
    (tmp_path / "odd").mkdir()
    image = Image.fromarray(picture(7, 40, 30))
    image.save(tmp_path / "odd" / "a.png")
    image.save(tmp_path / "odd" / "b.bmp")
    image.save(tmp_path / "odd" / "c.webp", lossless=True)
    image.save(tmp_path / "odd" / "d.tif")
    image.save(tmp_path / "odd" / "e.jpg", progressive=True)
    loader = Loader(tmp_path / "odd", 5, num_workers=1, pipelines={"image": [SimpleRGBImageDecoder(), ToTensor()]})
    ((images,),) = loader
    for number in range(4):
        assert np.array_equal(images[number], np.asarray(image))
    with Image.open(tmp_path / "odd" / "e.jpg") as decoded:
        assert np.abs(np.asarray(decoded).astype(int) - images[4].numpy()).max() <= 2


@pytest.mark.parametrize(("on_error", "rows"), [("skip", 2), ("replace", 3)])
def test_images_without_a_header_are_bad_images(tmp_path, on_error, rows):
    for name in "abc":
        Image.fromarray(picture(1, 30, 30)).save(tmp_path / f"{name}.jpg")
    (tmp_path / "b.jpg").write_bytes(b"nothing")
    with pytest.warns(UserWarning, match=r"1 of 3 images have no header .*b\.jpg"):
        loader = Loader(tmp_path, 3, num_workers=1, on_error=on_error, pipelines=pipelines())
    assert [len(images) for (images,) in loader] == [rows]
    assert [sample for _, sample, _ in loader.bad_samples] == [1]


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_a_bad_image_is_named_by_its_file(photos, tmp_path, kind):
    copy = shutil.copytree(photos, tmp_path / "copy")
    bad = copy / "cat" / "0003.jpg"
    content = bad.read_bytes()
    bad.write_bytes(content[: len(content) // 2])
    path = WRITERS[kind](copy, tmp_path)
    index_source(open_source(path), tmp_path / "photos.index", num_workers=1, entry_points=False)
    loader = Loader(path, 4, num_workers=1, pipelines=pipelines(), on_error="skip")
    name = str(bad) if kind == "folder" else r"sample 3 of .*train-000\.tar, from byte [0-9,]+ on"
    assert sum(len(images) for images, _ in loader) <= 29
    (reason,) = [reason for _, sample, reason in loader.bad_samples if sample == 3]
    assert re.match(f"{name}: image: ", reason)
    assert re.match(
        f"{name}: ", next(found.what for found in verify(tmp_path / "photos.index").findings if found.sample == 3)
    )
    assert loader.reader.locate(3) == ((str(bad), 0) if kind == "folder" else (str(tmp_path / "train-000.tar"), 3))


def test_an_empty_file_is_named_and_not_the_one_after_it(tmp_path):
    for name in "ac":
        Image.fromarray(picture(1, 30, 30)).save(tmp_path / f"{name}.jpg")
    (tmp_path / "b.jpg").touch()
    (tmp_path / "d.jpg").touch()
    with pytest.warns(UserWarning, match="2 of 4 images have no header"):
        loader = Loader(tmp_path, 4, num_workers=1, on_error="skip", drop_last=False, pipelines=pipelines())
    assert [len(images) for (images,) in loader] == [2]
    assert [reason.partition(": ")[0] for _, _, reason in loader.bad_samples] == [
        str(tmp_path / "b.jpg"),
        str(tmp_path / "d.jpg"),
    ]
    assert [loader.reader.locate(number)[0] for number in range(4)] == [
        str(tmp_path / f"{name}.jpg") for name in "abcd"
    ]


def test_an_index_in_a_store_is_refused_with_what_to_do(photos):
    with pytest.raises(OptionError, match=r"s3://bucket/x\.index: expected a file of this machine.* may be copied"):
        index_source(open_source(photos), "s3://bucket/x.index")


@pytest.mark.parametrize("kind", ["folder", "tar", "zip"])
def test_a_container_that_changed_is_noticed(photos, tmp_path, kind):
    copy = shutil.copytree(photos, tmp_path / "copy")
    path = WRITERS[kind](copy, tmp_path)
    index_source(open_source(path), tmp_path / "photos.index", num_workers=1)
    changed = copy / "cat" / "0003.jpg" if kind == "folder" else Path(str(path).replace("{000..002}", "001"))
    content = bytearray(changed.read_bytes())
    content[:6000] = bytes(len(content[:6000]))
    changed.write_bytes(content)
    with pytest.raises((FormatError, StorageError), match=r"changed|replaced"):
        list(Loader(tmp_path / "photos.index", 4, num_workers=1, pipelines=pipelines()))


def test_a_copy_of_index_and_containers_is_read_elsewhere(photos, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    index_source(open_source(write_tars(photos, first)), first / "photos.index", num_workers=1)
    options = {"pipelines": pipelines(), "num_workers": 1}
    expected = [labels.tolist() for _, labels in Loader(first / "photos.index", 10, **options)]
    shutil.copytree(first, second, copy_function=shutil.copyfile)
    shutil.rmtree(first)
    loader = Loader(second / "photos.index", 10, **options)
    assert [labels.tolist() for _, labels in loader] == expected


def test_an_index_names_no_files_elsewhere_unless_they_are_allowed(photos, tmp_path, monkeypatch):
    index_source(open_source(photos), tmp_path / "photos.index", num_workers=1)
    with pytest.raises(FormatError, match="does not lie in its folder"):
        Loader(tmp_path / "photos.index", 4, pipelines=pipelines())
    Loader(tmp_path / "photos.index", 4, pipelines=pipelines(), containers=photos).close()
    monkeypatch.setenv("GPUBETON_CONTAINERS", f"/elsewhere;{photos}")
    Loader(tmp_path / "photos.index", 4, pipelines=pipelines()).close()


class Reopened(Loader):
    """A derived class that knows its arguments, as in test_copies.py."""

    def __init__(self, path):
        super().__init__(path, 7, order="random", seed=3, num_workers=1, pipelines=pipelines())

    def __reduce__(self):
        return Reopened, (self.fname,)


def contents(loader):
    with loader:
        return [[output.numpy().tobytes() for output in batch] for batch in loader]


def test_a_loader_of_tars_is_opened_again_in_a_spawned_process(photos, tmp_path):
    tars = write_tars(photos, tmp_path)
    index_source(open_source(tars), tmp_path / "photos.index", num_workers=1)
    expected = contents(Reopened(tars))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(contents, [Reopened(tars), Reopened(tmp_path / "photos.index")]) == [expected] * 2


def test_an_interrupted_index_goes_on(photos, tmp_path):
    tars, path = write_tars(photos, tmp_path), tmp_path / "photos.index"

    def stop(done, total):
        if done > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index_source(open_source(tars), path, num_workers=1, on_progress=stop)
    assert not path.exists()
    counts = []
    index_source(open_source(tars), path, num_workers=1, on_progress=lambda done, _: counts.append(done))
    assert counts[0] > 0
    fresh = tmp_path / "fresh.index"
    index_source(open_source(tars), fresh, num_workers=1)
    assert path.read_bytes() == fresh.read_bytes()


def test_an_index_without_entry_points_has_headers_alone(photos, tmp_path):
    tars = write_tars(photos, tmp_path)
    done = index_source(open_source(tars), tmp_path / "photos.index", entry_points=False, num_workers=1)
    assert done.indexed == 0
    assert done.bytes < 30 * 40 + 6000
    with pytest.raises(OptionError, match="exists"):
        index_source(open_source(tars), tmp_path / "photos.index")
    with pytest.raises(OptionError, match=r"ends in \.index"):
        index_source(open_source(tars), tmp_path / "photos.beton")


def test_the_command_explains_how_to_index_other_files(photos, tmp_path):
    for source in (photos, write_zip(photos, tmp_path), tmp_path / "train-000.tar"):
        assert "-o NAME.index" in " ".join(run("index", source, code=2).output.split())


def test_several_indices_are_one_dataset_also_with_beton_files(photos, tmp_path):
    tars = write_tars(photos, tmp_path)
    for name, part in (("a", "{000..001}"), ("b", "002")):
        source = open_source(tars.replace("{000..002}", part))
        index_source(source, tmp_path / f"{name}.index", num_workers=1)
        convert(source, tmp_path / f"{name}.beton", num_workers=1)
    options = {"order": "random", "seed": 3, "pipelines": pipelines(), "drop_last": False, "num_workers": 1}
    for names in (("a.index", "b.index"), ("a.beton", "b.index"), ("a.index", "b.beton")):
        assert same(Loader([tmp_path / name for name in names], 7, **options), Loader(tars, 7, **options))


def test_the_command_explains_an_index(photos, tmp_path):
    tars = write_tars(photos, tmp_path)
    index_source(open_source(tars), tmp_path / "a.index", num_workers=1, entry_points=False)
    for command in ("convert", "index"):
        options = ["-o", tmp_path / "b.index"] if command == "index" else [tmp_path / "b.beton"]
        done = run(command, tmp_path / "a.index", *options, code=2)
        assert "a.index: an index, which a loader reads, Loader(" in " ".join(done.output.split())
    done = run("fetch", "s3://bucket/a.tar", "--cache-dir", tmp_path, code=2)
    assert "s3://bucket/a.tar: fetch is for .beton files. Loaders read tars in place" in " ".join(done.output.split())


def test_the_summary_of_an_index_counts_files_that_are_no_jpegs(tmp_path):
    image = Image.fromarray(picture(7, 40, 30))
    for name in ("a.png", "b.jpg", "c.webp"):
        image.save(tmp_path / name)
    (tmp_path / "d.jpg").write_bytes((tmp_path / "b.jpg").read_bytes()[:100])
    (tmp_path / "e.jpg").touch()
    with pytest.warns(UserWarning, match=r"1 damaged JPEG, .* the first of .*d\.jpg"):
        index_source(open_source(tmp_path), tmp_path / "a.index", num_workers=1)
    kinds = summarize(tmp_path / "a.index").fields[0].image.kinds
    assert {kind: count for kind, count in kinds.items() if count} == {"baseline": 1, "damaged": 2, "other": 2}


def test_the_warning_of_a_slow_index_counts_its_files(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("gpubeton.loader.resources._LONG", 0)
    tars = write_tars(photos, tmp_path)
    names = [tars.replace("{000..002}", f"00{number}") for number in range(3)]
    for source in (tars, names):
        with pytest.warns(UserWarning, match=r"train-.*\.tar and more, 3 files: indexing 30 samples took"):
            Loader(source, 4, num_workers=1, pipelines=pipelines()).close()
