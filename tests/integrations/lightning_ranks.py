"""A training run of Lightning as one of several ranks, which writes down which samples it gets."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import torch
from lightning.pytorch import Trainer

from tests.integrations.lightning_run import Diary, data


def main(path, folder):
    warnings.simplefilter("ignore")  # about few workers and the like
    rank = os.environ["RANK"]
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, default_root_dir=folder, **quiet)
    trainer.fit(Diary(Path(folder) / rank), data(path))
    (Path(folder) / f"{rank}.sampler").write_text(type(trainer.train_dataloader.sampler).__module__)
    torch.distributed.destroy_process_group()  # its threads could abort the process at its end


if __name__ == "__main__":
    main(*sys.argv[1:])
