"""The Lightning example trains with mixed precision, goes on, stops early, and shares the work by DDP and FSDP."""

from __future__ import annotations

import pytest
import torch

from examples import train_lightning as example
from tests.examples.example import write_beton
from tests.ranks import run_ranks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def beton(tmp_path_factory):
    return str(write_beton(tmp_path_factory.mktemp("lightning")))


@pytest.fixture
def options(beton, tmp_path):
    toy = ["--num-classes", "2", "--width", "4", "--batch-size", "4", "--side", "32", "--workers", "1"]
    return [beton, beton, "--folder", str(tmp_path / "run"), "--accelerator", "cpu", "--no-bar", *toy]


def test_training_resumes_with_the_next_epoch(options, capsys):
    first = example.main([*options, "--epochs", "1", "--checkpoint-every", "4"])
    assert (first.current_epoch, first.global_step) == (1, 4)
    assert capsys.readouterr().out.startswith("epoch 0: validation loss ")
    second = example.main([*options, "--epochs", "2", "--checkpoint-every", "2"])
    assert (second.current_epoch, second.global_step) == (2, 8)
    printed = capsys.readouterr().out
    assert printed.startswith("epoch 1: validation loss ")
    assert printed.count("of the time waiting for data") == 1


def test_training_ends_when_the_validation_loss_no_longer_falls(options, capsys):
    trainer = example.main([*options, "--epochs", "50", "--patience", "1", "--lr", "0", "--precision", "32-true"])
    assert trainer.current_epoch < 50
    assert "stopped early: the validation loss has not fallen for 1 epochs" in capsys.readouterr().out


def test_no_thread_of_the_process_group_is_left_when_python_ends(options, monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "")  # Lightning sets them
        monkeypatch.delenv(name)
    example.main([*options, "--epochs", "1", "--strategy", "ddp"])
    assert not torch.distributed.is_initialized()


def test_the_newest_complete_checkpoint_is_taken(tmp_path):
    assert example.newest_checkpoint(tmp_path) is None
    (tmp_path / "step=9.ckpt").touch()
    (tmp_path / "step=10.ckpt").mkdir()
    (tmp_path / "step=10.ckpt" / "meta.pt").touch()
    (tmp_path / "step=12.ckpt").mkdir()  # was being written when the power failed
    assert example.newest_checkpoint(tmp_path) == tmp_path / "step=10.ckpt"


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_share_the_work(options, tmp_path, strategy):
    more = ["--strategy", strategy, "--epochs", "1", "--checkpoint-every", "2"]
    printed = run_ranks("examples.train_lightning", [*options, *more])
    assert printed.count("epoch 0: validation loss ") == 1
    # 16 images, two ranks, batches of four.
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["step=2.ckpt"]
    shares = {path.name for path in (tmp_path / "run").glob("*/*.distcp")}
    assert shares == ({"__0_0.distcp", "__1_0.distcp"} if strategy == "fsdp" else set())
