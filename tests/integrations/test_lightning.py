from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

from gpubeton.errors import DeviceError, LoaderClosedError, OptionError
from gpubeton.integrations import lightning as integration
from gpubeton.integrations.lightning import BetonDataModule
from gpubeton.loader import Loader
from tests.integrations.conftest import LABELS
from tests.integrations.lightning_run import Diary, data, run, trainer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def steps(folder):
    """The entries of the diary: step, epoch and samples."""
    lines = (folder / "diary").read_text().splitlines()
    return [(int(step), int(epoch), samples) for step, epoch, samples in (line.split(" ", 2) for line in lines)]


def expected(path, epochs=3):
    loader = Loader(path, 4, order="random", seed=3, pipelines=LABELS)
    batches = [(epoch, str(batch.tolist())) for epoch in range(epochs) for (batch,) in loader]
    return [(step, *batch) for step, batch in enumerate(batches)]


def test_a_killed_run_resumes_with_exactly_the_remaining_batches(numbers, tmp_path):
    kill_at = 8  # in the second epoch of five steps each, after a checkpoint
    command = [sys.executable, "-m", "tests.integrations.lightning_run", numbers, tmp_path, str(kill_at)]
    killed = subprocess.run(command, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert steps(tmp_path) == expected(numbers)[:kill_at]
    (tmp_path / "diary").unlink()
    run(numbers, tmp_path, ckpt_path=tmp_path / "last.ckpt")
    assert steps(tmp_path) == expected(numbers)[kill_at:]


def test_a_checkpoint_at_the_end_of_an_epoch_resumes_with_the_next(numbers, tmp_path):
    first = trainer(tmp_path, enable_checkpointing=False, limit_val_batches=0)
    first.fit_loop.max_epochs = 1
    model = Diary(tmp_path / "diary")
    first.fit(model, data(numbers))
    first.save_checkpoint(tmp_path / "end.ckpt")
    second = trainer(tmp_path, enable_checkpointing=False, limit_val_batches=0)
    second.fit(model, data(numbers), ckpt_path=tmp_path / "end.ckpt")
    assert steps(tmp_path) == expected(numbers)


def test_a_checkpoint_before_the_first_batch_after_a_resume_has_the_same_position(numbers, tmp_path):
    state = {"train": Loader(numbers, 4, order="random", seed=3, pipelines=LABELS).state_dict()}
    module = data(numbers)
    module.load_state_dict(state)
    module.train_dataloader()
    module._train.loader.set_epoch(2)
    assert module.state_dict() == state


def test_lightning_counts_batches_and_leaves_nothing_open(numbers, tmp_path):
    module = data(numbers)
    other_trainer = trainer(tmp_path, enable_checkpointing=False)
    other_trainer.fit(Diary(tmp_path / "diary"), module)
    assert (other_trainer.num_training_batches, other_trainer.num_val_batches) == (
        5,
        [6],
    )  # of the rest, no sample is left out
    assert module.stats()["train"][0].images == 20
    with pytest.raises(LoaderClosedError):
        iter(other_trainer.train_dataloader.loader)
    other_trainer.fit_loop.max_epochs = 4
    other_trainer.fit(Diary(tmp_path / "diary"), module)
    assert steps(tmp_path) == expected(numbers, 4)


def test_there_need_not_be_data_for_everything(numbers, tmp_path):
    module = BetonDataModule(train={"fname": numbers}, batch_size=4, pipelines=LABELS)
    trainer(tmp_path, enable_checkpointing=False, max_steps=1).fit(Diary(tmp_path / "diary"), module)
    for name in ("test", "predict"):
        with pytest.raises(OptionError, match=rf"BetonDataModule\({name}=...\)"):
            getattr(module, f"{name}_dataloader")()


def test_data_may_be_loaders_functions_and_several(numbers):
    module = BetonDataModule(
        train=lambda: Loader(numbers, 11, pipelines=LABELS),
        val=[Loader(numbers, 2, pipelines=LABELS), {"fname": numbers, "batch_size": 3, "pipelines": LABELS}],
        test={"fname": numbers, "batch_size": 5, "pipelines": LABELS, "drop_last": True},
    )
    assert len(module.train_dataloader()) == 2
    assert [len(loader) for loader in module.val_dataloader()] == [11, 8]
    assert [len(loader) for loader in module.test_dataloader()] == [4]
    module.teardown("fit")
    assert module.stats()["val"][0].images == 0


class Recorded:
    """A fake of Loader: keeps the arguments."""

    def __init__(self, **arguments):
        self.arguments = arguments
        self.indices, self.batches_ahead, self.batch_size, self.drop_last = [], 3, 4, True
        self.fname, self.traversal_order = arguments.get("fname"), SimpleNamespace(rank=None)
        if "refused" in arguments and "device" in arguments:
            raise DeviceError("no decoder")


def arguments_of(monkeypatch, arguments, world_size=1, device="cpu"):
    module = BetonDataModule(val=arguments)
    module.trainer = SimpleNamespace(
        world_size=world_size, strategy=SimpleNamespace(root_device=torch.device(device)), current_epoch=0
    )
    monkeypatch.setattr(integration, "Loader", Recorded)
    return module.val_dataloader()[0].loader.arguments


def test_several_ranks_share_the_samples_by_the_seed_of_seed_everything(monkeypatch):
    monkeypatch.setenv("PL_GLOBAL_SEED", "17")
    assert arguments_of(monkeypatch, {"fname": "a"}) == {"fname": "a", "drop_last": False}
    result = arguments_of(monkeypatch, {"fname": "a"}, world_size=2)
    assert result == {"fname": "a", "drop_last": False, "distributed": True, "seed": 17}
    assert arguments_of(monkeypatch, {"fname": "a", "seed": 1}, world_size=2)["seed"] == 1


def test_batches_are_made_on_the_gpu_of_the_rank_if_that_can(monkeypatch):
    assert str(arguments_of(monkeypatch, {"fname": "a"}, device="cuda:3")["device"]) == "cuda:3"
    assert arguments_of(monkeypatch, {"fname": "a", "device": "cpu"}, device="cuda:3")["device"] == "cpu"
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert "device" not in arguments_of(monkeypatch, {"fname": "a", "refused": 1}, device="cuda:3")
    assert str(seen[0].message).endswith("no decoder")


def test_a_loader_that_is_not_shared_out_causes_a_warning(numbers):
    module = BetonDataModule(val=Loader(numbers, 4, pipelines=LABELS))
    module.trainer = SimpleNamespace(world_size=2)
    with pytest.warns(UserWarning, match="2 ranks, .*distributed=False"):
        module.val_dataloader()


@pytest.mark.parametrize("wrong", ["train.beton", ["train.beton"], 3])
def test_data_that_are_only_a_file_are_refused_with_the_form_that_is_meant(wrong):
    with pytest.raises(OptionError, match=r"train is .*Loader.*dict"):
        BetonDataModule(train=wrong).train_dataloader()
