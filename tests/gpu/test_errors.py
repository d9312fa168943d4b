"""Images that cannot be decoded: they are named, and the rest of the epoch arrives."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest
import torch

from benchmarks.gpu.pipelines import usual_pipeline
from gpubeton.errors import BadImageError
from gpubeton.fields.registry import open_index
from tests.cpu.pictures import jpeg, photo
from tests.gpu.comparing import images_loader
from tests.gpu_path.image_samples import stored, write_images
from tests.small_files import damage, write_photos

SAMPLES = 40
BAD = 13
ROUTES = [("hardware",), ()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("whole") / "whole.beton", SAMPLES)


@pytest.fixture
def damaged(whole, tmp_path):
    """The same file with one image whose first bytes are gone."""
    path = tmp_path / "damaged.beton"
    shutil.copy(whole, path)
    damage(path, BAD, content=bytes(40))
    return path


def batches(loader):
    """Samples and images of an epoch, on the host, and the bad samples; the loader is closed."""
    with closing(loader):
        iterator = iter(loader)
        results = [(iterator.samples.tolist(), images.cpu()) for (images,) in iterator]
        return results, list(loader.bad_samples)


def rows(result):
    return {sample: image for samples, images in result for sample, image in zip(samples, images, strict=True)}


@pytest.mark.parametrize("routes", ROUTES, ids="+".join)
def test_a_damaged_image_is_left_out_and_the_rest_is_as_it_was(gpu, whole, damaged, routes):
    expected, _ = batches(images_loader(whole, usual_pipeline(32), routes=routes))
    result, bad = batches(images_loader(damaged, usual_pipeline(32), routes=routes, on_error="skip"))
    assert [(epoch, sample) for epoch, sample, _ in bad] == [(0, BAD)]
    result, expected = rows(result), rows(expected)
    del expected[BAD]
    assert result.keys() == expected.keys()
    assert all(torch.equal(result[sample], expected[sample]) for sample in expected)


def test_a_damaged_image_is_replaced_by_the_next(gpu, whole, damaged):
    expected, _ = batches(images_loader(whole, usual_pipeline(32)))
    result, bad = batches(images_loader(damaged, usual_pipeline(32), on_error="replace"))
    assert len(bad) == 1
    samples = [sample for numbers, _ in result for sample in numbers]
    assert samples == [*range(BAD), BAD + 1, *range(BAD + 1, SAMPLES)]
    (first, images), *_ = result
    place = first.index(BAD + 1)
    # The CPU makes replacements.
    expected, _ = batches(images_loader(whole, usual_pipeline(32), routes=()))
    assert torch.equal(images[place], rows(expected)[BAD + 1])


def test_a_damaged_image_ends_the_loop_with_its_name_if_nothing_else_is_wanted(gpu, damaged):
    loader = images_loader(damaged, usual_pipeline(32), on_error="raise")
    with closing(loader), pytest.raises(BadImageError, match=rf"sample {BAD}\b|{BAD}"):
        list(loader)


def test_a_loader_goes_on_after_an_error(gpu, whole, damaged):
    """The engines' states have to be initialized again after a call that failed."""
    expected, _ = batches(images_loader(whole, usual_pipeline(32), on_error="skip"))
    loader = images_loader(damaged, usual_pipeline(32), on_error="skip")
    with closing(loader):
        for _ in range(3):
            loader.set_epoch(0)
            iterator = iter(loader)
            result = rows([(iterator.samples.tolist(), images.cpu()) for (images,) in iterator])
            assert len(result) == SAMPLES - 1
            assert all(torch.equal(result[sample], rows(expected)[sample]) for sample in result)


def test_data_that_are_cut_short_are_the_same_to_the_gpu_as_to_the_cpu(gpu, whole, tmp_path):
    """Zeros instead of the end of the data: whether that is an error is up to the decoder, not who runs it."""
    path = tmp_path / "cut.beton"
    shutil.copy(whole, path)
    size = int(open_index(path)[0].regions("image").size[BAD])
    damage(path, BAD, at=size // 2, content=bytes(size - size // 2))
    on_gpu, _ = batches(images_loader(path, usual_pipeline(32), on_error="skip"))
    on_cpu, _ = batches(images_loader(path, usual_pipeline(32), on_error="skip", device="cpu"))
    others = set(range(SAMPLES)) - {BAD}
    assert others <= set(rows(on_gpu))
    assert others <= set(rows(on_cpu))


def test_an_image_whose_size_differs_from_the_metadata_touches_no_other(gpu, tmp_path):
    """nvJPEG writes by the image's own size: into its neighbors, if it were given to it."""
    images = [stored(jpeg(photo(60, 50, number), quality=90)) for number in range(12)]
    lying = stored(jpeg(photo(200, 50, 99), quality=90), size=(60, 50))
    honest = write_images(tmp_path / "honest.beton", images)
    path = write_images(tmp_path / "lying.beton", [*images[:5], lying, *images[6:]])
    arguments = {"batch_size": 12, "custom": True}
    expected, _ = batches(images_loader(honest, usual_pipeline(32), **arguments))
    result, bad = batches(images_loader(path, usual_pipeline(32), on_error="skip", **arguments))
    assert [sample for _, sample, _ in bad] == [5]
    assert all(torch.equal(image, rows(expected)[sample]) for sample, image in rows(result).items())
    assert len(rows(result)) == 11


def test_many_bad_images_in_many_batches_are_all_found(gpu, whole, tmp_path):
    path = tmp_path / "many.beton"
    shutil.copy(whole, path)
    bad_ones = list(range(0, SAMPLES, 3))
    for sample in bad_ones:
        damage(path, sample, content=bytes(40))
    result, bad = batches(images_loader(path, usual_pipeline(32), on_error="skip", batch_size=7))
    assert sorted(sample for _, sample, _ in bad) == bad_ones
    assert len(rows(result)) == SAMPLES - len(bad_ones)
