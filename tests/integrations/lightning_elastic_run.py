"""A training run of Lightning by any number of ranks, which goes on from the checkpoint of another number."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from gpubeton.integrations.lightning import BetonDataModule
from tests.integrations.conftest import LABELS
from tests.integrations.lightning_run import Diary


def main(path, folder, kill_at):
    warnings.simplefilter("ignore")  # about few workers and the like
    rank, world = os.environ["RANK"], int(os.environ["WORLD_SIZE"])
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    saving = ModelCheckpoint(folder, filename="last", every_n_train_steps=1, enable_version_counter=False)
    module = BetonDataModule(
        {"fname": path, "order": "random", "seed": 3, "drop_last": False, "batch_size": 2, "pipelines": LABELS},
        num_workers=1,
    )
    trainer = Trainer(accelerator="cpu", devices=world, strategy="ddp", max_epochs=2, callbacks=[saving], **quiet)
    checkpoint = Path(folder) / "last.ckpt"
    trainer.fit(
        Diary(Path(folder) / f"{world}-{rank}", int(kill_at)),
        module,
        ckpt_path=checkpoint if checkpoint.exists() else None,
    )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # its threads could abort the process at its end


if __name__ == "__main__":
    main(*sys.argv[1:])
