from __future__ import annotations

import shutil

import pytest
import torch

from gpubeton.errors import BadImageError
from gpubeton.fields.decoders import (
    CenterCropRGBImageDecoder,
)
from gpubeton.loader import Loader
from gpubeton.loader.epoch_iterator import EpochIterator
from gpubeton.transforms import ToTensor
from tests.small_files import damage

BAD = (3, 4, 17, 49)


@pytest.fixture(scope="module")
def damaged(photos, tmp_path_factory):
    """The file with four images whose JPEG markers are gone."""
    path = tmp_path_factory.mktemp("damaged") / "damaged.beton"
    shutil.copy(photos, path)
    for sample in BAD:
        damage(path, sample)
    return path


def make(path, **arguments):
    pipelines = {"image": [CenterCropRGBImageDecoder((16, 16), 1), ToTensor()], "note": None}
    return Loader(path, 8, **{"num_workers": 2, "drop_last": False, "pipelines": pipelines, **arguments})


@pytest.fixture(scope="module")
def good(photos):
    """Image and label of every sample of the undamaged file."""
    return [(image, label) for images, labels, *_ in make(photos) for image, label in zip(images, labels, strict=True)]


@pytest.mark.parametrize("os_cache", [True, False])
def test_a_bad_image_is_named_with_its_field_and_batch(damaged, os_cache):
    with pytest.raises(BadImageError, match=r"damaged\.beton: batch 0 .* 0: sample 3: image: ") as caught:
        list(make(damaged, os_cache=os_cache))
    assert caught.value.samples == (3, 4)
    assert len(caught.value.reasons) == 2


@pytest.mark.parametrize("os_cache", [True, False])
def test_a_corrupt_jpeg_is_skipped_and_the_rest_of_the_batch_arrives(damaged, good, os_cache):
    loader = make(damaged, on_error="skip", os_cache=os_cache)
    for epoch in range(2):
        batches = iter(loader)
        samples = []
        for images, labels, *others in batches:
            samples += batches.samples.tolist()
            assert {len(output) for output in others} == {len(images)} == {len(labels)} == {len(batches.samples)}
            for sample, image, label in zip(batches.samples.tolist(), images, labels, strict=True):
                assert torch.equal(image, good[sample][0])
                assert label.tolist() == [sample * 10]
        assert samples == [sample for sample in range(50) if sample not in BAD]
        assert [entry[:2] for entry in loader.bad_samples] == [
            (past, sample) for past in range(epoch + 1) for sample in BAD
        ]
    assert all(reason.startswith("image: ") for _, _, reason in loader.bad_samples)


@pytest.mark.parametrize("os_cache", [True, False])
def test_a_corrupt_jpeg_is_replaced_by_the_next_sample_in_all_outputs(damaged, good, os_cache):
    loader = make(damaged, on_error="replace", os_cache=os_cache)
    list(loader)
    assert loader.indices.tolist() == list(range(50))
    rows = [(image, label) for images, labels, *_ in loader for image, label in zip(images, labels, strict=True)]
    expected = [{3: 5, 4: 5, 17: 18, 49: 0}.get(sample, sample) for sample in range(50)]
    assert [int(label) for _, label in rows] == [sample * 10 for sample in expected]
    assert all(torch.equal(image, good[sample][0]) for (image, _), sample in zip(rows, expected, strict=True))
    assert [entry[:2] for entry in loader.bad_samples] == [(epoch, sample) for epoch in range(2) for sample in BAD]


def test_bad_samples_are_listed_when_their_batch_is_received(damaged):
    loader = make(damaged, on_error="skip", batches_ahead=7)
    batches = iter(loader)
    assert loader.bad_samples == []
    next(batches)
    assert [entry[1] for entry in loader.bad_samples] == [3, 4]
    batches.close()


def test_a_batch_of_which_nothing_is_left_does_not_arrive(damaged):
    loader = make(damaged, on_error="skip", indices=[0, 1, 3, 4, 5, 6], drop_last=True)
    loader = Loader(damaged, 2, num_workers=1, indices=[0, 1, 3, 4, 5, 6], on_error="skip", pipelines=loader.pipelines)
    assert [labels[:, 0].tolist() for _, labels, *_ in loader] == [[0, 10], [50, 60]]
    assert len(loader) == 3


def test_a_filter_leaves_samples_out_that_cannot_be_decoded(damaged):
    loader = make(damaged, on_error="replace", indices=[16, 17, 18, 19, 3])
    assert loader.filter("image", lambda image: image.float().mean() >= 0).indices.tolist() == [16, 18, 19]
    with pytest.raises(BadImageError):
        make(damaged).filter("image", bool)


class WithSamples(EpochIterator):
    def run_pipeline(self, b_ix, batch_indices, batch_slot, cuda_event):
        return b_ix, batch_indices, super().run_pipeline(b_ix, batch_indices, batch_slot, cuda_event)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_an_iterator_of_chosen_samples_knows_which_were_received(damaged, on_error):
    chosen = [*BAD, *BAD, *range(20)]
    rows = list(WithSamples(make(damaged, on_error=on_error), chosen))
    assert [number for number, _, _ in rows] == list(range(3 if on_error == "skip" else 4))
    for _, samples, (_, labels, *_) in rows:
        assert labels[:, 0].tolist() == (10 * samples.astype(int)).tolist()
