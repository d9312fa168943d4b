"""A folder of images that is loaded without a conversion gives what the converted file gives."""

from __future__ import annotations

import gc
import os
import weakref

import numpy as np
import pytest
from PIL import Image

from gpubeton import Loader
from gpubeton._sources.image_folder import ImageFolder
from gpubeton.dataset import Settings, convert, open_source
from gpubeton.errors import OptionError, SampleError, StorageError
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import folder_file
from gpubeton.transforms import RandomHorizontalFlip, ToTensor
from tests.loader.pipelines import same
from tests.picture_folders import write_folder
from tests.small_files import picture


@pytest.fixture
def folder(tmp_path):
    """Images of all kinds that `gpubeton convert` takes, in three classes."""
    root = write_folder(tmp_path / "photos")
    image = Image.fromarray(picture(7, 40, 30))
    image.save(root / "dog" / "progressive.jpg", progressive=True)
    image.convert("CMYK").save(root / "dog" / "cmyk.jpg")
    image.convert("L").save(root / "cat" / "gray.jpg")
    image.convert("RGBA").save(root / "cat" / "transparent.png")
    image.convert("P").save(root / "eel" / "palette.png")
    image.save(root / "eel" / "photo.webp")
    image.save(root / "eel" / "thumbnail.jpg", exif=bytes(50_000))  # its size is after the first bytes
    (root / "eel" / "cut.jpg.txt").touch()
    return root


def pipelines(size=(24, 20)):
    return {"image": [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip(), ToTensor()]}


@pytest.mark.parametrize("order", ["sequential", "random", "quasi_random", "window"])
def test_batches_are_those_of_the_converted_file(folder, tmp_path, order):
    convert(open_source(folder), tmp_path / "photos.beton", Settings(index=False), num_workers=1)
    options = {"order": order, "seed": 3, "pipelines": pipelines(), "drop_last": False, "num_workers": 1}
    converted = Loader(tmp_path / "photos.beton", 5, **options)
    loader = Loader.from_image_folder(folder, 5, **options)
    assert loader.reader.class_names == converted.reader.class_names == ("cat", "dog", "eel")
    assert loader.reader.metadata.tobytes() == converted.reader.metadata.tobytes()
    for _ in range(2):
        assert same(loader, converted)


def test_a_checkpoint_of_a_folder_goes_on_with_the_converted_file(folder, tmp_path):
    convert(open_source(folder), tmp_path / "photos.beton", num_workers=1)
    options = {"order": "random", "pipelines": pipelines(), "num_workers": 1}
    loader = Loader.from_image_folder(folder, 3, seed=4, **options)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    converted = Loader(tmp_path / "photos.beton", 3, **options)
    converted.load_state_dict(state)
    assert same(converted, batches)


def test_images_without_classes_have_no_labels(tmp_path):
    for number in range(3):
        Image.fromarray(picture(number, 20, 30)).save(tmp_path / f"{number}.jpg")
    loader = Loader.from_image_folder(os.path.relpath(tmp_path), 3, num_workers=1)
    assert loader.reader.field_names == ["image"]
    assert [tuple(images.shape) for (images,) in loader] == [(3, 20, 30, 3)]


def test_a_large_file_is_in_one_page(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (2400, 2400, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "large.jpg", quality=98)
    assert (tmp_path / "large.jpg").stat().st_size > 8 << 20
    loader = Loader.from_image_folder(tmp_path, 1, num_workers=1)
    ((images,),) = loader
    with Image.open(tmp_path / "large.jpg") as image:
        assert np.abs(np.asarray(image).astype(int) - images[0].numpy()).mean() < 1


@pytest.mark.parametrize("change", ["written", "removed"])
def test_an_image_that_changes_is_an_error_that_names_it(folder, change):
    loader = Loader.from_image_folder(folder, 4, num_workers=1, pipelines=pipelines())
    file = folder / "cat" / "0000.jpg"
    if change == "written":
        Image.fromarray(picture(99, 30, 30)).save(file)
    else:
        file.unlink()
    with pytest.raises((StorageError, FileNotFoundError), match=r"0000\.jpg"):
        list(loader)


def test_a_new_loader_lists_the_folder_again(folder):
    assert Loader.from_image_folder(folder, 1, pipelines=pipelines()).reader.num_samples == 16
    (folder / "cat" / "0000.jpg").unlink()
    assert Loader.from_image_folder(folder, 1, pipelines=pipelines()).reader.num_samples == 15


def test_an_image_that_is_written_while_it_is_read_is_noticed(folder, monkeypatch):
    loader = Loader.from_image_folder(folder, 16, pipelines=pipelines(), num_workers=1)
    read = folder_file.read_into

    def change(descriptor, target, start):
        os.utime(descriptor, (1, 1))
        return read(descriptor, target, start)

    monkeypatch.setattr(folder_file, "read_into", change)
    with pytest.raises(StorageError, match="was changed"):
        list(loader)


def test_all_bad_images_are_named_with_the_number_of_the_first(folder):
    (folder / "dog" / "bad.png").write_bytes(b"nothing")
    (folder / "eel" / "worse.png").write_bytes(b"nothing")
    with pytest.raises(SampleError, match=r"2 of 18 images .*bad\.png.*worse\.png.*--on-error skip") as caught:
        Loader.from_image_folder(folder, 4, on_error="skip")
    assert ImageFolder(folder).files[caught.value.sample].endswith("bad.png")


def test_a_pipe_among_the_images_is_a_bad_image(folder):
    os.mkfifo(folder / "dog" / "pipe.jpg")
    with pytest.raises(SampleError, match=r"1 of 17 images .*pipe\.jpg: .*regular file"):
        Loader.from_image_folder(folder, 4)


def test_the_memory_of_a_folder_goes_with_its_loaders(folder):
    loaders = [Loader.from_image_folder(folder, 4, num_workers=1, pipelines=pipelines()) for _ in range(2)]
    for loader in loaders:
        list(loader)
    memory = [weakref.ref(loader.reader.index.files[0].identity.parts) for loader in loaders]
    assert memory[0]() is memory[1]() is not None
    for loader in loaders:
        loader.close()
    del loader, loaders
    gc.collect()
    assert memory[0]() is None


def test_too_many_images_to_keep_are_refused(folder, monkeypatch):
    monkeypatch.setattr(folder_file, "_MOST_BYTES", 1000)
    with pytest.raises(SampleError, match="gpubeton convert"):
        Loader.from_image_folder(folder, 4)


def test_a_folder_without_images_and_a_cache_of_the_system_are_refused(tmp_path):
    with pytest.raises(OptionError):
        Loader.from_image_folder(tmp_path, 4)
    (tmp_path / "file").touch()
    for name in ("nothing", "file"):
        with pytest.raises(OptionError, match=rf"{name}: there is no such folder; expected"):
            Loader.from_image_folder(tmp_path / name, 4)
    with pytest.raises(OptionError, match="os_cache"):
        Loader.from_image_folder(tmp_path, 4, os_cache=True)
