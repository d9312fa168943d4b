"""Files that cannot be mapped, on a GPU: the same images, read from pinned memory."""

from __future__ import annotations

import pytest

from gpubeton._engine.storage import LoadedStorage
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
from tests.bytes.unmapped_source import counted, traffic  # noqa: F401  a fixture
from tests.gpu_path.image_samples import IMAGE_SAMPLES, assert_same, epochs, gpu_loader, write_images

PIPELINE = [RandomResizedCropRGBImageDecoder((20, 24)), RandomHorizontalFlip(), ToTensor(), ToTorchImage()]


@pytest.mark.parametrize("order", ["sequential", "window"])
def test_images_are_those_of_a_mapped_file_and_come_from_pinned_memory(gpus, tmp_path, traffic, monkeypatch, order):  # noqa: F811
    path = write_images(tmp_path / "samples.beton", IMAGE_SAMPLES)
    expected = epochs(gpu_loader(path, PIPELINE, order=order), 2)
    pinned, fetch = [], LoadedStorage.fetch

    def noting(storage, *asked):
        pinned.append(storage.is_pinned)
        return fetch(storage, *asked)

    monkeypatch.setattr(LoadedStorage, "fetch", noting)
    loader = gpu_loader(counted(path), PIPELINE, order=order)
    assert_same(epochs(loader, 2), expected)
    assert pinned
    assert all(pinned)
    assert loader.stats().requests > 0
