"""Train with PyTorch Lightning: mixed precision, DDP or FSDP over several devices, early stopping, resuming.

    pip install './gpubeton[lightning]'
    python examples/train_lightning.py train.beton val.beton --precision 16-mixed
    torchrun --nproc-per-node 8 examples/train_lightning.py train.beton val.beton --strategy ddp --precision 16-mixed
    torchrun --nproc-per-node 8 examples/train_lightning.py train.beton val.beton --strategy fsdp

A checkpoint is written after every few batches and contains the loader's position: the same command resumes with the
remaining batches. Under FSDP (torch's fully_shard) each rank keeps a share of parameters, gradients and optimizer
state.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from gpubeton.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.integrations.lightning import BetonDataModule
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


class Classifier(LightningModule):
    """A network of four stages."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options = options
        self.network: nn.Sequential | None = None

    def configure_model(self) -> None:
        """Make the network; each rank makes its share."""
        if self.network is not None:
            return
        torch.manual_seed(self.options.seed)
        self.network = make_network(self.options.width, self.options.num_classes)
        if self.options.strategy == "fsdp":
            assert self.device_mesh is not None
            mesh = self.device_mesh["data_parallel"]
            for stage in self.network:
                fully_shard(stage, mesh=mesh)
            fully_shard(self.network, mesh=mesh)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of each image."""
        assert self.network is not None
        logits: Tensor = self.network(images)
        return logits

    def training_step(self, batch: Any, _: int) -> Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self(images).float(), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        """Record loss and accuracy."""
        images, labels = batch
        logits = self(images).float()
        right = (logits.argmax(1) == labels).float().mean()
        figures = {"val_loss": nn.functional.cross_entropy(logits, labels), "val_accuracy": right}
        self.log_dict(figures, sync_dist=True, batch_size=len(labels))

    def on_validation_epoch_end(self) -> None:
        """Print the results of the epoch."""
        data: BetonDataModule = self.trainer.datamodule  # type: ignore[attr-defined]
        stats = data.stats().get("train")
        if stats and not self.trainer.sanity_checking and self.trainer.is_global_zero:
            rate = stats[0].images_per_second * self.trainer.world_size
            metrics = {name: float(value) for name, value in self.trainer.callback_metrics.items()}
            print(
                f"epoch {self.current_epoch}: validation loss {metrics['val_loss']:.3f}, "
                f"accuracy {metrics['val_accuracy']:.1%}; {rate:,.0f} images/s, "
                f"{stats[0].waiting_share:.0%} of the time waiting for data",
                flush=True,
            )

    def configure_optimizers(self) -> Any:
        """Make the optimizer and its schedule."""
        optimizer = torch.optim.SGD(self.parameters(), lr=self.options.lr, momentum=0.9, weight_decay=1e-4)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def make_network(width: int, num_classes: int) -> nn.Sequential:
    """Make a network of four stages and a linear layer."""
    widths = [3, width, 2 * width, 4 * width, 8 * width]
    stages = [
        nn.Sequential(nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
        for before, after in pairwise(widths)
    ]
    last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], num_classes))
    return nn.Sequential(*stages, last)


def make_data(options: argparse.Namespace) -> BetonDataModule:
    """Make the data module from files and pipelines; the module handles ranks and devices."""
    side = (options.side, options.side)
    tail = [NormalizeImage(MEAN, STD, np.float32), ToTensor(), ToTorchImage()]
    label = [IntDecoder(), ToTensor(), Squeeze(1)]
    train = [RandomResizedCropRGBImageDecoder(side), RandomHorizontalFlip(), *tail]
    val = [CenterCropRGBImageDecoder(side, ratio=224 / 256), *tail]
    return BetonDataModule(
        train={"fname": options.train, "order": "random", "pipelines": {"image": train, "label": label}},
        val={"fname": options.val, "pipelines": {"image": val, "label": label}},
        batch_size=options.batch_size,
        num_workers=options.workers,
        seed=options.seed,
    )


def main(arguments: Sequence[str] | None = None) -> Trainer:
    """Train, or resume training.

    Returns
    -------
    Trainer
        Lightning's trainer, after training.
    """
    options = options_of(arguments)
    seed_everything(options.seed, verbose=False)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    checkpoints = ModelCheckpoint(options.folder, filename="{step}", every_n_train_steps=options.checkpoint_every)
    sharded = ModelParallelStrategy(data_parallel_size=world, tensor_parallel_size=1)
    trainer = Trainer(
        accelerator=options.accelerator,
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=world // int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy=sharded if options.strategy == "fsdp" else options.strategy,
        precision=options.precision,
        max_epochs=options.epochs,
        callbacks=[checkpoints, EarlyStopping("val_loss", patience=options.patience)],
        default_root_dir=options.folder,
        logger=False,
        enable_progress_bar=options.bar,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Classifier(options), make_data(options), ckpt_path=newest_checkpoint(options.folder))
    if trainer.should_stop and trainer.current_epoch < options.epochs and trainer.is_global_zero:
        print(f"stopped early: the validation loss has not fallen for {options.patience} epochs")
    if torch.distributed.is_initialized():
        # Lightning does it for NCCL only. Threads of gloo that work while Python shuts down would abort the process.
        torch.distributed.destroy_process_group()
    return trainer


def newest_checkpoint(folder: Path) -> Path | None:
    """Find the checkpoint to resume from: a file, or a folder of shards, which is complete if it contains meta.pt."""
    results = [path for path in folder.glob("step=*.ckpt") if path.is_file() or (path / "meta.pt").exists()]
    return max(results, key=lambda path: int(path.stem.split("=")[1].split("-")[0]), default=None)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("val", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/lightning"), help="where checkpoints are kept")
    parser.add_argument("--strategy", choices=("auto", "ddp", "fsdp"), default="auto")
    parser.add_argument("--precision", choices=("32-true", "16-mixed", "bf16-mixed"), default="bf16-mixed")
    parser.add_argument("--accelerator", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--num-classes", type=int, default=1000)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--patience", type=int, default=3, help="epochs without a lower validation loss until the end")
    parser.add_argument("--batch-size", type=int, default=128, help="of each process")
    parser.add_argument("--side", type=int, default=160)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--workers", type=int, default=-1)
    parser.add_argument("--checkpoint-every", type=int, default=500, help="batches")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bar", action=argparse.BooleanOptionalAction, default=True, help="show Lightning's bar")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
