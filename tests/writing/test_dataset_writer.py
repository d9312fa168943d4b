from __future__ import annotations

import pytest
from PIL import Image

from gpubeton.dataset import Settings, convert, open_source
from gpubeton.errors import NoSamplesError, OptionError, SampleError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.format import read_notes
from gpubeton.format.entry_points import open_blocks
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter
from tests.picture_folders import write_folder


class Listed:
    """A dataset as torchvision's: with files and names of classes."""

    classes = ("cat", ("dog", "hound"))

    def __init__(self, folder):
        self.samples = [(str(path), number % 2) for number, path in enumerate(sorted(folder.glob("*/*")))]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as image:
            return image.convert("RGB"), label


class Part:
    """As torch's Subset."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]


def image_writer(path, workers=1, **options):
    fields = {"image": RGBImageField("jpg"), "label": IntField()}
    return DatasetWriter(path, fields, 1 << 21, workers, progress=False, **options)


def test_from_image_folder_writes_the_file_of_the_command(tmp_path):
    write_folder(tmp_path / "photos")
    image_writer(tmp_path / "a.beton").from_image_folder(tmp_path / "photos")
    conversion = convert(
        open_source(tmp_path / "photos"), tmp_path / "b.beton", Settings(page_size=1 << 21), num_workers=1
    )
    ours, theirs = Reader(tmp_path / "a.beton"), Reader(conversion.path)
    assert ours.class_names == theirs.class_names == ("cat", "dog", "eel")
    sums = [read_notes(path).checksums.tolist() for path in (tmp_path / "a.beton", conversion.path)]
    assert sums[0] == sums[1]
    entries = [open_blocks(reader.index)[0]["image"].entries[:].tobytes() for reader in (ours, theirs)]
    assert entries[0] == entries[1] != b""


def test_names_of_classes_come_from_the_dataset_if_there_are_notes(tmp_path):
    dataset = Listed(write_folder(tmp_path / "photos"))
    image_writer(tmp_path / "a.beton", notes={"by": "me"}).from_indexed_dataset(Part(dataset, [2, 0]))
    assert Reader(tmp_path / "a.beton").notes == {"class_names": ["cat", "dog, hound"], "by": "me"}
    image_writer(tmp_path / "b.beton", notes={"class_names": ["x", "y"]}).from_indexed_dataset(dataset)
    assert Reader(tmp_path / "b.beton").class_names == ("x", "y")
    image_writer(tmp_path / "c.beton").from_indexed_dataset(dataset)
    assert Reader(tmp_path / "c.beton").notes == {}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("wrap", [Listed, lambda folder: Part(Listed(folder), range(9))])
def test_bad_images_are_named_by_their_file_or_left_out(wrap, workers, tmp_path):
    write_folder(tmp_path / "photos")
    bad = tmp_path / "photos" / "dog" / "0001.jpg"
    bad.write_bytes(b"no image")
    dataset = wrap(tmp_path / "photos")
    with pytest.raises(SampleError, match=str(bad)):
        image_writer(tmp_path / "a.beton", workers).from_indexed_dataset(dataset)
    writer = image_writer(tmp_path / "a.beton", workers, notes={})
    writer.from_indexed_dataset(dataset, on_error="skip")
    assert [name for name, _ in writer.skipped] == [str(bad)]
    reader = Reader(tmp_path / "a.beton")
    assert (reader.num_samples, reader.notes["skipped"][0]["name"]) == (8, str(bad))
    assert "(row" not in reader.notes["skipped"][0]["reason"]


def test_a_folder_with_damaged_images_names_them_or_leaves_them_out(tmp_path):
    write_folder(tmp_path / "photos")
    bad = tmp_path / "photos" / "dog" / "0001.jpg"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-60] + b"\xff\xd9" + whole[-60:])  # its markers are in order
    with pytest.raises(SampleError, match=str(bad)):
        image_writer(tmp_path / "a.beton").from_image_folder(tmp_path / "photos")
    writer = image_writer(tmp_path / "a.beton")
    writer.from_image_folder(tmp_path / "photos", on_error="skip")
    assert [name for name, _ in writer.skipped] == [str(bad)]
    writer.from_image_folder(tmp_path / "photos", check=False)
    assert (writer.skipped, Reader(tmp_path / "a.beton").num_samples) == ([], 9)


def test_paths_that_a_dataset_gives_are_named_in_errors_and_nothing_but_bad_samples_is_an_error(tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    with pytest.raises(SampleError, match=r"bad\.jpg"):
        image_writer(tmp_path / "a.beton").from_indexed_dataset([(tmp_path / "bad.jpg", 0)])
    with pytest.raises(NoSamplesError, match="none"):
        image_writer(tmp_path / "a.beton").from_indexed_dataset([(b"bad", 0)] * 3, on_error="skip")
    assert not (tmp_path / "a.beton").exists()
    with pytest.raises(OptionError, match="on_error"):
        image_writer(tmp_path / "a.beton").from_indexed_dataset([(b"bad", 0)], on_error="replace")
