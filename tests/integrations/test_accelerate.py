from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import ProjectConfiguration

from gpubeton.errors import OptionError, StateError
from gpubeton.integrations.accelerate import AccelerateLoader, skip_first_batches
from gpubeton.loader import Loader
from tests.integrations.conftest import LABELS


@pytest.fixture
def accelerator(tmp_path):
    with torch.random.fork_rng():
        yield Accelerator(cpu=True, gradient_accumulation_steps=2, project_config=ProjectConfiguration(str(tmp_path)))
    # Its state is the process's: a program ends here, but other tests come after this one.
    AcceleratorState._reset_state(reset_partial_state=True)


def make(path, **changes):
    return AccelerateLoader(Loader(path, 4, order="random", seed=3, pipelines=LABELS, **changes))


def ids(batches):
    return [batch.tolist() for (batch,) in batches]


def test_prepare_does_not_change_the_loader(numbers, accelerator):
    loader = make(numbers)
    assert accelerator.prepare(loader) is loader
    assert ids(loader) == ids(Loader(numbers, 4, order="random", seed=3, pipelines=LABELS))
    assert accelerator.prepare(Loader(numbers, 4, pipelines=LABELS)).batch_size == 4


def test_assigned_attributes_are_set_on_the_loader(numbers, accelerator):
    loader = accelerator.prepare(make(numbers))
    loader.order, loader.indices = "sequential", [5, 2, 8, 1]
    assert ids(loader) == [[5, 2, 8, 1]]
    assert (loader.total_dataset_length, loader.dataset is loader.adapter.dataset) == (4, True)


def test_batches_are_put_on_the_device_of_the_process(numbers, accelerator, monkeypatch):
    moved = []
    monkeypatch.setattr(
        "gpubeton.integrations.accelerate.send_to_device",
        lambda batch, device, non_blocking: moved.append((device, non_blocking)) or batch,
    )
    ids(accelerator.prepare(make(numbers)))
    assert moved == [(accelerator.device, False)] * 5


def test_gradients_are_synchronized_at_the_end_of_the_epoch(numbers, accelerator):
    model = torch.nn.Linear(1, 1)
    model, loader = accelerator.prepare(model, make(numbers))
    synchronized = []
    for _ in loader:
        with accelerator.accumulate(model):
            synchronized.append(accelerator.sync_gradients)
    assert synchronized == [False, True, False, True, True]


def test_metrics_are_of_each_sample_once(numbers, accelerator):
    loader = accelerator.prepare(make(numbers, drop_last=False))
    seen = [sample for (batch,) in loader for sample in accelerator.gather_for_metrics(batch).tolist()]
    assert sorted(seen) == list(range(22))


def test_a_loop_that_was_left_does_not_stay_the_active_one(numbers, accelerator):
    loader = accelerator.prepare(make(numbers))
    for _ in loader:
        assert accelerator.gradient_state.active_dataloader is loader
        break
    assert accelerator.gradient_state.active_dataloader is None


def test_load_state_resumes_in_the_middle_of_the_epoch(numbers, accelerator, tmp_path):
    loader = accelerator.prepare(make(numbers))
    batches = iter(loader)
    next(batches), next(batches)
    accelerator.save_state(str(tmp_path / "state"))
    rest = ids(batches)
    ids(loader)  # another epoch
    accelerator.load_state(str(tmp_path / "state"))
    assert ids(loader) == rest
    assert len(rest) == 3


def test_batches_are_skipped_of_the_next_epoch_only(numbers, accelerator):
    loader = accelerator.prepare(make(numbers))
    whole = [ids(loader) for _ in range(3)]
    loader.set_epoch(1)
    assert skip_first_batches(loader, 2) is loader
    loader.set_epoch(1)  # as scripts do
    assert ids(loader) == whole[1][2:]
    assert ids(loader) == whole[2]
    loader.set_epoch(0)
    assert ids(skip_first_batches(loader, 0)) == whole[0]
    loader.set_epoch(0)
    assert ids(skip_first_batches(loader, 5)) == []


def test_skipping_batches_that_a_state_skips_already_changes_nothing(numbers, accelerator, tmp_path):
    loader = accelerator.prepare(make(numbers))
    batches = iter(loader)
    next(batches), next(batches)
    accelerator.save_state(str(tmp_path / "state"))
    rest = ids(batches)
    accelerator.load_state(str(tmp_path / "state"))
    assert ids(skip_first_batches(loader, 2)) == rest


def test_samples_of_batches_of_another_size_are_skipped(numbers, accelerator):
    loader = accelerator.prepare(make(numbers, drop_last=False))
    whole = [sample for batch in ids(loader) for sample in batch]
    loader.set_epoch(0)
    assert [sample for batch in ids(skip_first_batches(loader, 3, total_batch_size=2)) for sample in batch] == whole[6:]


def test_impossible_numbers_of_batches_to_skip_are_refused(numbers, accelerator):
    loader = accelerator.prepare(make(numbers))
    for wrong in (-1, 1.5):
        with pytest.raises(OptionError, match="num_batches is"):
            skip_first_batches(loader, wrong)
    with pytest.raises(OptionError, match="total_batch_size is 0"):
        skip_first_batches(loader, 1, total_batch_size=0)
    with pytest.raises(StateError, match="batch 6, but epoch 0 has 5"):
        skip_first_batches(loader, 6)
    with pytest.raises(OptionError, match="loader is Loader; expected an AccelerateLoader"):
        skip_first_batches(Loader(numbers, 4, pipelines=LABELS), 1)


def test_accelerates_own_function_names_the_one_to_call(numbers, accelerator):
    loader = accelerator.prepare(make(numbers, num_workers=1))
    with pytest.raises(OptionError, match=r"gpubeton.integrations.accelerate.skip_first_batches"):
        next(iter(accelerator.skip_first_batches(loader, 1)))
