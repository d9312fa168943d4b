from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from tqdm import tqdm

from gpubeton.errors import OptionError
from gpubeton.integrations import DataLoaderAdapter
from gpubeton.loader import Loader
from tests.integrations.conftest import LABELS


def make(path, **changes):
    arguments = {"batch_size": 4, "order": "random", "seed": 3, "pipelines": LABELS, **changes}
    return DataLoaderAdapter(Loader(path, **arguments))


def ids(batches):
    return [batch.tolist() for (batch,) in batches]


def test_attributes_that_code_around_dataloaders_reads_exist(numbers):
    ours = make(numbers, num_workers=1)
    dataset = torch.utils.data.TensorDataset(torch.arange(22))
    theirs = torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=True, drop_last=True)
    public = [name for name in vars(theirs) if not name.startswith("_")]
    assert [name for name in public if not hasattr(ours, name)] == []
    assert (len(ours), len(ours.dataset), ours.batch_size, ours.drop_last) == (len(theirs), len(dataset), 4, True)
    assert len(ours.batch_sampler) == len(theirs.batch_sampler)
    assert not isinstance(ours, torch.utils.data.DataLoader)


def test_the_samplers_list_the_samples_of_the_next_epoch(numbers):
    loader = make(numbers)
    for epoch in range(2):
        assert loader.sampler.epoch == epoch
        promised = list(loader.batch_sampler)
        assert sorted(loader.sampler) == list(range(22))
        assert len(loader.sampler) == 22
        assert ids(loader) == promised


def test_set_epoch_of_the_sampler_chooses_the_epoch(numbers):
    loader, other = make(numbers), make(numbers)
    epochs = [ids(loader) for _ in range(3)]
    other.sampler.set_epoch(2)
    assert ids(other) == epochs[2]
    other.set_epoch(0)
    assert ids(other) == epochs[0]


def test_a_running_epoch_continues_when_it_is_set_again(numbers):
    loader = make(numbers)
    batches = iter(loader)
    received = ids([next(batches)])
    loader.sampler.set_epoch(0)  # as Lightning does, when the iterator of the epoch is there
    assert loader.state_dict()["batch"] == 1
    received += ids(batches)
    assert received == ids(make(numbers))
    loader.sampler.set_epoch(0)  # it has ended: again from its beginning
    assert ids(loader) == received


def test_an_epoch_to_be_resumed_is_resumed_when_it_is_set_again(numbers):
    loader, other = make(numbers), make(numbers)
    batches = iter(loader)
    next(batches)
    other.load_state_dict(loader.state_dict())
    other.set_epoch(0)
    assert len(iter(other)) == 4
    assert ids(other) == ids(batches)
    other.set_epoch(0)
    assert len(ids(other)) == 5


def test_the_state_after_the_last_batch_is_the_next_epochs_beginning(numbers):
    loader, other = make(numbers), make(numbers)
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)
    other.load_state_dict(loader.state_dict())
    assert ids(other) == ids(loader)
    assert other.next_epoch == 2


def test_a_loaded_state_that_has_no_batch_left_is_the_next_epochs_beginning_too(numbers):
    adapter, resumed = make(numbers), make(numbers)
    for _ in adapter.loader:  # whose own state in the body of the last batch is still of its epoch
        state = adapter.loader.state_dict()
    assert (state["epoch"], state["batch"]) == (0, len(adapter))
    resumed.load_state_dict(state)
    assert (resumed.state_dict()["epoch"], resumed.state_dict()["batch"]) == (1, 0)


@pytest.mark.parametrize("indices", [range(4), range(22)])
def test_other_indices_for_the_next_epoch_change_nothing_about_where_this_one_ends(numbers, indices):
    loader, other, resumed = make(numbers, indices=range(12)), make(numbers, indices=range(12)), make(numbers)
    batches = iter(loader)
    next(batches)
    loader.indices = resumed.indices = indices
    assert len(loader.dataset) == len(indices)
    other.load_state_dict(loader.state_dict())
    assert ids(other) == ids([next(batches) for _ in range(2)])
    resumed.load_state_dict(loader.state_dict())
    assert ids(resumed) == ids(loader)
    assert resumed.next_epoch == 2


def test_order_and_epoch_that_are_assigned_are_the_loaders(numbers):
    loader = make(numbers)
    loader.traversal_order, loader.next_epoch = "sequential", 3
    assert (loader.loader.next_epoch, ids(loader)[-1]) == (3, [16, 17, 18, 19])


def test_an_unused_iterator_is_no_epoch(numbers):
    loader = make(numbers)
    iter(loader)  # as Lightning does, to see whether it can
    unused = iter(loader)
    assert ids(loader) == ids(make(numbers))
    assert len(unused) == 5
    loader.set_epoch(0)
    assert ids(unused) == ids(make(numbers))


def test_outputs_may_be_given_names(numbers):
    (batch,) = DataLoaderAdapter(Loader(numbers, 22, pipelines=LABELS), names=["labels"])
    assert batch["labels"].tolist() == list(range(22))
    with pytest.raises(OptionError, match=r"\['a', 'b'\], .* 1 output"):
        next(iter(DataLoaderAdapter(Loader(numbers, 22, pipelines=LABELS), names=["a", "b"])))


def test_everything_else_is_the_loaders(numbers):
    loader = make(numbers)
    ids(loader)
    assert loader.stats().images == 20
    assert loader.fname == str(numbers)
    with pytest.raises(AttributeError, match="no attribute 'lenght'"):
        _ = loader.lenght
    assert copy.copy(loader).loader is loader.loader


def test_progress_bars_know_how_many_batches_are_to_come(numbers):
    loader = make(numbers)
    batches = iter(loader)
    next(batches)
    assert len(batches) == 4
    with tqdm(batches, disable=True) as bar:
        assert bar.total == 4
        assert len(list(bar)) == 4
    assert len(batches) == 0


def test_the_iterator_of_a_loader_counts_the_remaining_batches_and_knows_its_epoch(numbers):
    loader = Loader(numbers, 4, pipelines=LABELS, drop_last=False)
    batches = iter(loader)
    assert (len(batches), batches.epoch) == (6, 0)
    next(batches)
    resumed = Loader(numbers, 4, pipelines=LABELS, drop_last=False)
    resumed.load_state_dict(loader.state_dict())
    assert (len(batches), len(iter(resumed)), len(resumed)) == (5, 5, 6)
    assert len(list(batches)) == 5
    assert len(batches) == 0


@pytest.mark.parametrize("library", ["lightning", "accelerate"])
def test_a_library_that_is_missing_is_named_with_the_extra_that_installs_it(library):
    code = f"import sys; sys.modules[{library!r}] = None\nimport gpubeton.integrations.{library}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert f"[{library}]'" in done.stderr.splitlines()[-1]
