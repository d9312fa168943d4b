"""Copies of loaders: pickled for another process, shallow and deep."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpubeton.errors import StorageError
from gpubeton.fields import IntField
from gpubeton.fields.decoders import IntDecoder
from gpubeton.integrations.data_loader import DataLoaderAdapter
from gpubeton.loader import Loader
from gpubeton.transforms import ToTensor
from gpubeton.traversal_order import Random
from tests.loader.pipelines import ONLY_IMAGE, ONLY_LABEL, augmented, make, samples
from tests.small_files import write


def pickled(loader):
    return pickle.loads(pickle.dumps(loader))


@pytest.fixture(params=[pickled, copy.copy, copy.deepcopy])
def remake(request):
    return request.param


@pytest.mark.parametrize("os_cache", [True, False])
def test_a_copy_gives_the_batches_of_the_next_epochs(photos, remake, os_cache):
    arguments = {"order": "random", "seed": None, "indices": range(40)}
    loader = make(photos, os_cache=os_cache, pipelines={"image": augmented(), **ONLY_IMAGE}, **arguments)
    list(loader)
    copied = remake(loader)
    assert copied.next_epoch == 1
    for _ in range(2):
        ours, theirs = list(loader), list(copied)
        assert len(ours) == len(theirs) == 5
        for batch, twin in zip(ours, theirs, strict=True):
            assert torch.equal(batch[0], twin[0])


def test_a_copy_has_the_settings_that_were_assigned(photos, remake):
    loader = make(photos)
    loader.indices, loader.batch_size, loader.order, loader.on_error = [4, 9, 2], 2, "random", "skip"
    loader.set_epoch(5)
    copied = remake(loader)
    assert (copied.indices.tolist(), copied.batch_size, copied.on_error, copied.next_epoch) == ([4, 9, 2], 2, "skip", 5)
    assert samples(copied) == samples(loader)
    selected = loader.filter("label", lambda label: label > 30)
    assert remake(selected).indices.tolist() == selected.indices.tolist()


def test_an_epoch_under_way_stays_with_the_original(photos, remake):
    loader = make(photos)
    batches = iter(loader)
    next(batches)
    copied = remake(loader)
    assert (copied.next_epoch, len(list(copied)), len(list(batches))) == (1, 7, 6)


def test_a_copy_resumes_at_the_loaded_state(photos, remake):
    loader = make(photos)
    next(batches := iter(loader))
    resumed = make(photos)
    resumed.load_state_dict(loader.state_dict())
    assert samples(remake(resumed)) == samples(resumed)
    assert len(list(batches)) == 6


def test_closing_a_copy_leaves_the_original_open(photos, remake):
    loader = make(photos, os_cache=False)
    remake(loader).close()
    assert len(list(loader)) == 7


def test_a_copy_is_refused_if_another_file_has_the_name_by_then(tmp_path):
    path = write(tmp_path / "numbers.beton", {"label": IntField()}, [(number,) for number in range(10)])
    content = pickle.dumps(Loader(path, 5, num_workers=1))
    write(path, {"label": IntField()}, [(number,) for number in range(10, 20)])
    with pytest.raises(StorageError, match=r"numbers\.beton: .*metadata"):
        pickle.loads(content)


def test_an_argument_that_cannot_be_pickled_is_named(photos):
    class Local(torch.nn.Module):
        def forward(self, batch):
            return batch

    loader = make(photos, pipelines={**ONLY_LABEL, "label": [IntDecoder(), ToTensor(), Local()]})
    with pytest.raises(TypeError, match=r"photos\.beton: .*'pipelines' .*Local"):
        pickle.dumps(loader)
    assert len(list(copy.copy(loader))) == 7


class WithInit(Loader):
    def __init__(self, path):
        super().__init__(path, 8, num_workers=1, pipelines=ONLY_LABEL)


def test_a_class_with_other_arguments_is_named(photos, remake):
    with pytest.raises(TypeError, match=r"WithInit .*__reduce__"):
        remake(WithInit(photos))


def assign_object(loader):
    loader.traversal_order = Random(loader)


def assign_indices(loader):
    loader.traversal_order.indices = [1, 2]


def assign_sampler(loader):
    loader.traversal_order.sampler = torch.utils.data.SequentialSampler(range(50))


@pytest.mark.parametrize("assign", [assign_object, assign_indices, assign_sampler])
def test_an_order_that_was_assigned_is_not_lost_without_a_word(photos, remake, assign):
    loader = make(photos)
    assign(loader)
    with pytest.raises(TypeError, match=r"traversal_order.*order=\.\.\."):
        remake(loader)
    loader.traversal_order = "random"
    assert samples(remake(loader)) == samples(loader)


def test_pickling_an_iterator_raises_an_error_that_names_state_dict(photos):
    batches = iter(make(photos))
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(batches)


def test_an_adapter_may_be_pickled_in_the_middle_of_an_epoch(photos):
    adapter = DataLoaderAdapter(make(photos), names=["label"])
    next(batches := iter(adapter))
    copied = pickled(adapter)
    assert len(list(copied)) == 7
    assert len(list(batches)) == 6


PROGRAM = """
import sys
sys.path[:0] = {path!r}
import pickle
loader = pickle.load(open({file!r}, "rb"))
print(sum(len(batch[0]) for batch in loader))
"""


def test_a_loader_arrives_in_a_new_process(photos, tmp_path):
    root = str(Path(__file__).parents[2])
    loader = make(photos, os_cache=False)
    (tmp_path / "loader").write_bytes(pickle.dumps(loader))
    program = PROGRAM.format(path=[root, *sys.path], file=str(tmp_path / "loader"))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=root)
    assert result.stdout == "50\n", result.stderr
