"""A training run of Lightning that writes down which samples it gets; killed in the middle, if asked to."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from gpubeton.integrations.lightning import BetonDataModule
from tests.integrations.conftest import LABELS


class Diary(LightningModule):
    """Writes each batch down before it learns from it."""

    def __init__(self, path, kill_at=-1):
        super().__init__()
        self.path = path
        self.kill_at = kill_at
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        if self.global_step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        (labels,) = batch
        with open(self.path, "a") as diary:
            diary.write(f"{self.global_step} {self.current_epoch} {labels.tolist()}\n")
        return self.layer(labels[:, None].float()).mean()

    def validation_step(self, batch, _):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def trainer(folder, **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return Trainer(accelerator="cpu", devices=1, max_epochs=3, default_root_dir=folder, **quiet, **options)


def data(path):
    training = {"fname": path, "order": "random", "seed": 3}
    return BetonDataModule(training, val={"fname": path}, batch_size=4, num_workers=1, pipelines=LABELS)


def run(path, folder, *, kill_at=-1, ckpt_path=None):
    # After each second step.
    checkpoint = ModelCheckpoint(folder, filename="last", every_n_train_steps=2, enable_version_counter=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about few workers and the like
        trainer(folder, callbacks=[checkpoint], limit_val_batches=1).fit(
            Diary(folder / "diary", kill_at), data(path), ckpt_path=ckpt_path
        )


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), kill_at=int(sys.argv[3]))
