"""Images that cannot be decoded: which samples replace them, and which are named."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from gpubeton.errors import BadImageError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.loader.epoch_iterator import EpochIterator
from gpubeton.pipeline.pipeline_spec import PipelineSpec
from tests.small_files import damage, write

CROP = [CenterCropRGBImageDecoder((8, 8), 1)]
NUM_TRIES = 16


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A file of 50 samples with two images and their number."""
    path = tmp_path_factory.mktemp("pictures") / "pictures.beton"
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    jpeg = RGBImageField(write_mode="jpg")
    return write(path, {"image": jpeg, "mask": jpeg, "label": IntField()}, [(image, image, n) for n in range(50)])


@pytest.fixture
def damaged(pictures, tmp_path):
    """Copies of the file in which the images of some samples are damaged."""

    def copy(bad, name="a.beton", fields=("image",)):
        shutil.copy(pictures, tmp_path / name)
        for field in fields:
            for sample in bad:
                damage(tmp_path / name, sample, field=field)
        return tmp_path / name

    return copy


def make(path, on_error="replace", batch_size=50, **options):
    pipelines = {"image": CROP, "mask": CROP, "view": PipelineSpec("image", transforms=CROP)}
    return Loader(path, batch_size, num_workers=1, drop_last=False, pipelines=pipelines, on_error=on_error, **options)


def labels_of(batches):
    return [int(label) for batch in batches for output in batch if output.ndim == 2 for label in output[:, 0]]


@pytest.mark.parametrize(
    ("indices", "bad", "chosen", "labels"),
    [
        ([0, 1, 2, 3, 4], {2, 4}, None, [0, 1, 3, 3, 0]),
        ([7, 3, 9], {9}, None, [7, 3, 7]),
        ([7, 3, 9], {9, 7}, None, [3, 3, 3]),
        ([7, 3, 9, 3], {3}, None, [7, 9, 9, 9]),
        ([7, 3, 9], {5, 9}, [5, 3], [7, 3]),  # not among the indices: from the next greater id on
        ([7, 3, 9], {10}, [10], [3]),  # greater than all
    ],
)
def test_a_bad_sample_is_replaced_by_the_next_of_the_indices_that_is_not(damaged, indices, bad, chosen, labels):
    loader = make(damaged(bad), indices=indices)
    assert labels_of(loader if chosen is None else EpochIterator(loader, chosen)) == labels


def test_as_many_samples_are_tried_as_promised_and_no_more(damaged):
    assert labels_of(make(damaged(range(1, NUM_TRIES + 1)), indices=range(40)))[1] == NUM_TRIES + 1
    for indices, bad in ((range(40), range(1, NUM_TRIES + 2)), ([4], [4])):
        with pytest.raises(BadImageError, match="sample"):
            list(make(damaged(bad), indices=indices))


def test_the_replacement_of_a_sample_does_not_depend_on_the_batch(damaged):
    path = damaged({19, 20, 39})
    first, *others = (labels_of(make(path, batch_size=size, indices=range(40))) for size in (40, 1, 7))
    assert others == [first] * 2


@pytest.mark.parametrize(("count", "more"), [(5, "."), (6, "; and 1 more."), (7, "; and 2 more.")])
def test_an_error_lists_five_samples_and_counts_the_others(damaged, count, more):
    bad = range(0, 3 * count, 3)
    with pytest.raises(BadImageError) as caught:
        list(make(damaged(bad), "raise"))
    assert (caught.value.samples, len(caught.value.reasons)) == (tuple(bad), count)
    assert re.findall(r"sample (\d+): image: ", str(caught.value)) == [str(sample) for sample in bad[:5]]
    assert more in str(caught.value).partition("sample 12: ")[2]


def test_outputs_are_named_in_order_and_a_reason_once_for_each_field(damaged):
    loader = make(damaged([3, 4], fields=("image", "mask")), "skip")
    assert 3 not in labels_of(loader)
    assert [sample for _, sample, _ in loader.bad_samples] == [3, 4]
    for _, _, reason in loader.bad_samples:
        assert re.findall("(image|mask|view): ", reason) == ["image", "mask"]


def test_the_file_of_a_sample_of_several_comes_before_its_reasons(damaged):
    loader = make([damaged([], "a.beton"), damaged([2], "b.beton")], "skip")
    list(loader)
    ((_, sample, reason),) = loader.bad_samples
    assert sample == 52
    assert re.search(r"^sample 2 of .*b\.beton: image: ", reason)
