from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gpubeton.dataset import convert, index_source, open_source
from gpubeton.errors import BadImageError, FieldMismatchError, StateError, StorageError
from gpubeton.fields import IntField
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.loader import Loader, Mixture
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import ToTensor
from gpubeton.traversal_order import Balanced, Weighted
from tests.engine.test_user_decoder import Lengths, PairField, Samples
from tests.loader.pipelines import ONLY_LABEL, augmented, labels, same
from tests.picture_folders import write_folder
from tests.small_files import Photos, Stretch, damage, photo_fields, write

BORDERS = (0, 20, 27, 50)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The samples of `photos` in three files, one with pages of another size."""
    folder = tmp_path_factory.mktemp("shards")
    return [
        write(
            folder / f"shard{number}.beton",
            photo_fields(),
            Stretch(Photos(50), start, stop),
            page_size=(1 << 21) << (number == 1),
        )
        for number, (start, stop) in enumerate(pairwise(BORDERS))
    ]


def make(files, **arguments):
    defaults = {"num_workers": 2, "seed": 3, "drop_last": False, "pipelines": {"image": augmented()}}
    return Loader(files, 7, **{**defaults, **arguments})


@pytest.mark.parametrize("os_cache", [True, False])
@pytest.mark.parametrize("order", ["sequential", "random"])
def test_an_epoch_over_several_files_is_that_over_one_with_the_same_samples(photos, shards, order, os_cache):
    single, several = (make(files, order=order, os_cache=os_cache) for files in (photos, shards))
    assert several.fname == tuple(map(str, shards))
    assert (len(several), several.reader.num_samples) == (len(single), 50)
    for _ in range(2):
        expected, results = list(single), list(several)
        assert len(expected) == 8
        assert same(expected, results)


@pytest.mark.parametrize("os_cache", [True, False])
def test_a_list_of_one_file_is_that_file(photos, os_cache):
    listed = make([photos], os_cache=os_cache)
    assert listed.fname == str(photos)
    assert same(list(listed), list(make(photos, os_cache=os_cache)))
    assert listed.state_dict()["file"] == make(photos).state_dict()["file"]


def test_every_sample_comes_once_in_quasi_random_order_and_few_pages_are_open(tmp_path):
    values = [(np.full(600_000, number, np.uint8), number) for number in range(24)]
    from gpubeton.fields import BytesField

    fields = {"bytes": BytesField(), "label": IntField()}
    files = [
        write(tmp_path / f"{number}.beton", fields, values[start : start + 8])
        for number, start in enumerate(range(0, 24, 8))
    ]
    loader = Loader(files, 1, order="quasi_random", seed=1, num_workers=1, pipelines={"bytes": None})
    pages = loader.reader.index.page_runs().to_array()
    assert len(set(pages.tolist())) == 9  # three regions a page, three pages a file
    order = [int(label) for (label,) in loader]
    assert sorted(order) == list(range(24))
    first, last = {}, {}
    for place, sample in enumerate(order):
        first.setdefault(pages[sample], place)
        last[pages[sample]] = place
    is_open = [sum(first[page] <= place <= last[page] for page in first) for place in range(24)]
    assert max(is_open) <= 2
    assert order != sorted(order)


def test_indices_weights_and_filters_count_through_all_files(photos, shards):
    indices = [49, 3, 20, 19, 26, 27]
    assert labels(make(shards, pipelines=ONLY_LABEL, indices=indices)) == [[490, 30, 200, 190, 260, 270]]
    for order, kwargs in ((Weighted, {"weights": np.arange(50)}), (Balanced, {"field": "label"})):
        single, several = (
            make(files, pipelines=ONLY_LABEL, order=order, order_kwargs=kwargs) for files in (photos, shards)
        )
        assert labels(single) == labels(several)
    filtered = make(shards, pipelines=ONLY_LABEL, order="random").filter("label", lambda value: value % 90 == 0)
    assert filtered.fname == tuple(map(str, shards))
    assert filtered.indices.tolist() == [0, 9, 18, 27, 36, 45]
    filtered = make(shards, indices=indices).filter("vector", lambda vector: vector[0, 0] > 20)
    assert filtered.indices.tolist() == [49, 26, 27]
    expected = make(photos, indices=indices).filter("image", lambda image: image[0, 12, 10] > image[1, 12, 10])
    filtered = make(shards, indices=indices).filter("image", lambda image: image[0, 12, 10] > image[1, 12, 10])
    assert 0 < len(filtered.indices) < 6
    assert filtered.indices.tolist() == expected.indices.tolist()


def test_an_epoch_is_resumed_and_another_order_of_the_files_is_refused(shards):
    loader = make(shards, order="random")
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = list(batches)
    resumed = make(shards, order="random")
    resumed.load_state_dict(state)
    assert same(list(resumed), rest)
    for others in (shards[::-1], shards[:2], [*shards[:2], shards[1]]):
        with pytest.raises(StateError, match="the file"):
            make(others, order="random").load_state_dict(state)


@pytest.fixture(scope="module")
def damaged(shards, tmp_path_factory):
    """The shards with a bad image in the second and the third, samples 22 and 49."""
    folder = tmp_path_factory.mktemp("damaged")
    paths = [Path(shutil.copy(shard, folder)) for shard in shards]
    damage(paths[1], 2)
    damage(paths[2], 22)
    return paths


@pytest.mark.parametrize("os_cache", [True, False])
def test_a_bad_image_is_named_with_its_file_and_its_number_there(damaged, os_cache):
    pipelines = {"image": [CenterCropRGBImageDecoder((16, 16), 1), ToTensor()]}
    with pytest.raises(BadImageError, match=r"batch 3 .* 0: sample 22: sample 2 .*shard1\.beton: image: ") as bad:
        list(make(damaged, os_cache=os_cache, pipelines=pipelines))
    assert bad.value.samples == (22,)
    loader = make(damaged, os_cache=os_cache, pipelines=pipelines, on_error="replace")
    rows = [int(label) for _, labels, *_ in loader for label in labels]
    assert rows == [{22: 230, 49: 0}.get(sample, sample * 10) for sample in range(50)]
    assert [(epoch, sample) for epoch, sample, _ in loader.bad_samples] == [(0, 22), (0, 49)]
    assert f"sample 22 of {damaged[2]}: image: " in loader.bad_samples[1][2]
    assert loader.reader.locate(49) == (str(damaged[2]), 22)


@pytest.mark.parametrize("os_cache", [True, False])
def test_a_file_that_has_changed_since_it_was_opened_is_named(shards, tmp_path, os_cache):
    files = [Path(shutil.copy(shard, tmp_path)) for shard in shards]
    loader = make(files, os_cache=os_cache)
    assert len(list(loader)) == 8
    os.truncate(files[1], files[1].stat().st_size - 24)
    with pytest.raises(StorageError, match=r"shard1\.beton: [0-9]+ "):
        list(loader)


@pytest.mark.parametrize("os_cache", [True, False])
def test_many_files_take_few_descriptors(shards, os_cache, tmp_path):
    seen = []

    def num_open():
        count = 0
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed
                count += descriptor.readlink().is_relative_to(tmp_path)
        return count

    files = [Path(shutil.copy(shard, tmp_path)) for shard in shards] * 25
    loader = make(files, os_cache=os_cache, order="random", pipelines={"image": None, "info": None})
    result = Counter()
    for label, _, note, vector in loader:
        seen.append(num_open())
        for row, number in enumerate(label[:, 0].tolist()):
            result[number] += 1
            assert vector[row].tolist() == [[number / 10] * 3] * 2
            assert (note[row] != 0).sum() <= number // 10 % 5
    assert set(result.values()) == {25}
    assert len(result) == 50
    assert 0 < max(seen) <= 64 + 8  # those kept, and one in the hands of each reading thread


@pytest.mark.parametrize("os_cache", [True, False])
def test_decoders_of_the_users_own_find_their_bytes_in_every_file(tmp_path, os_cache):
    from gpubeton.fields import BytesField

    fields = {"values": BytesField(), "pair": PairField(), "number": IntField()}
    files = [
        write(tmp_path / f"{start}.beton", fields, Stretch(Samples(), start, start + 10)) for start in range(0, 20, 10)
    ]
    pipelines = {"values": PipelineSpec("values", decoder=Lengths())}
    loader = Loader(
        files, 6, order="random", seed=0, drop_last=False, num_workers=1, os_cache=os_cache, pipelines=pipelines,
        custom_fields={"pair": PairField},
    )  # fmt: skip
    seen = []
    for lengths, pairs, number in loader:
        samples = number[:, 0].tolist()
        seen += samples
        assert lengths.tolist() == [[sample % 6, sum(range(sample % 6))] for sample in samples]
        assert pairs.numpy().view(np.float32)[:, 1].tolist() == [[sample + 0.5] * 3 for sample in samples]
    assert sorted(seen) == list(range(20))


def test_files_that_do_not_fit_each_other_are_refused(shards, tmp_path):
    other = write(tmp_path / "other.beton", {"label": IntField()}, [(1,)])
    with pytest.raises(FieldMismatchError, match=r"shard0.beton .*other.beton .*'image'"):
        make([*shards, other])


def test_explain_counts_the_files(shards, capsys):
    loader = make(shards)
    loader.explain()
    assert f"{shards[0]} and 2 more: mapped into memory" in capsys.readouterr().out
    assert f"<Loader of {shards[0]} and 2 more: 50 samples" in repr(loader)


@pytest.mark.parametrize("kind", ["index", "beton"])
def test_files_whose_labels_mean_other_classes_are_warned_of(kind, tmp_path):
    files, only_label = [], {"image": None}
    for classes in (("cat", "dog"), ("dog", "eel")):
        source = open_source(str(write_folder(tmp_path / "-".join(classes), 4, classes)))
        files.append(tmp_path / f"{'-'.join(classes)}.{kind}")
        if kind == "index":
            index_source(source, files[-1], entry_points=False)
        else:
            convert(source, files[-1], num_workers=1)
    for several in (files, Mixture(dict.fromkeys(files, 0.5))):
        with pytest.warns(
            UserWarning, match="label 0 is 'cat' in .*cat-dog.*, and 'dog' in .*dog-eel.* mean other classes"
        ):
            Loader(several, 2, num_workers=1, pipelines=only_label)
    Loader([files[0], files[0]], 2, num_workers=1, pipelines=only_label)
