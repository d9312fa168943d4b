"""Fine-tune a pretrained network of timm or Hugging Face on a file with images, labels and class names.

    gpubeton convert flowers/train train.beton && gpubeton convert flowers/val val.beton
    python examples/finetune/train_finetune.py --config examples/finetune/configs/vit_b16.yaml --folder runs/flowers
    torchrun --nproc-per-node 8 examples/finetune/train_finetune.py --config ... --model timm:convnext_tiny.in12k

The same command resumes a stopped run in the middle of an epoch.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
import yaml
from pretrained import Logits, load_pretrained
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from gpubeton.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToDevice, ToTensor, ToTorchImage


@dataclass(frozen=True)
class Settings:
    """The settings of a run: entries of the YAML file, and options with the same names."""

    train: str = "train.beton"
    val: str = "val.beton"
    folder: str = "runs/finetune"  # log.jsonl and checkpoint.pt; a run in it is resumed
    model: str = "hf:google/vit-base-patch16-224-in21k"  # or timm:NAME
    weights: str = "pretrained"  # or random

    epochs: int = 10
    batch_size: int = 64  # for each process
    lr: float = 1e-4
    warmup: float = 0.1  # share of the training in which the rate rises
    weight_decay: float = 0.05
    label_smoothing: float = 0.1
    clip: float = 1.0  # largest norm of the gradient
    min_area: float = 0.25  # of a random crop, as a share of the image's
    ema: float = 0.999  # share of the average that a step keeps; 0 for no average
    amp: str = "bfloat16"  # or no
    compile: str = "no"  # or a backend of torch.compile, such as inductor
    seed: int = 0

    device: str = "auto"
    num_workers: int = -1
    checkpoint_every: int = 500  # batches; and at the end of each epoch
    stop_after: int = 0  # batches, to test the checkpoint; 0 for no limit


def settings_of(arguments: Sequence[str] | None) -> Settings:
    """Read ``--config FILE.yaml`` and ``--NAME VALUE``; the command line overrides the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="a YAML file, such as one of configs/")
    defaults = asdict(Settings())
    for field in fields(Settings):
        kind = type(field.default)
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, help=f"default: {field.default}")
    options = vars(parser.parse_args(arguments))
    config = options.pop("config")
    entries = {} if config is None else (yaml.safe_load(config.read_text()) or {})
    if unknown := sorted(entries.keys() - defaults.keys()):
        parser.error(f"{config}: no setting is called {unknown[0]!r}; there are {', '.join(defaults)}")
    given = {name: value for name, value in options.items() if value is not None}
    # YAML 1.1 reads 5e-5 as text.
    return Settings(**{name: type(defaults[name])(value) for name, value in {**entries, **given}.items()})


def learning_rate(settings: Settings, share: float) -> float:
    """Return the learning rate after a share of the training: a line up, then half a cosine down."""
    if share < settings.warmup:
        return settings.lr * share / settings.warmup
    return settings.lr * (1 + math.cos(math.pi * (share - settings.warmup) / (1 - settings.warmup))) / 2


class Run:
    """The network, its moving average, its optimizer, and its progress."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.device, self.done = device_of(settings), 0
        self.folder = Path(settings.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.class_names = class_names_of(settings)

        torch.manual_seed(settings.seed)
        network, self.preprocessing = load_pretrained(
            settings.model, self.class_names, weights=settings.weights == "pretrained"
        )
        self.network: nn.Module = network.to(self.device)
        average = get_ema_multi_avg_fn(settings.ema)
        self.ema = AveragedModel(self.network, multi_avg_fn=average, use_buffers=True) if settings.ema else self.network
        decayed = [parameter for parameter in self.network.parameters() if parameter.ndim > 1]
        free = [parameter for parameter in self.network.parameters() if parameter.ndim <= 1]
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": free, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=settings.lr, weight_decay=settings.weight_decay)
        self.loader = self._training_loader()
        self._resume()
        replica: nn.Module = DistributedDataParallel(self.network) if self.world > 1 else self.network
        # The compiled network shares its parameters with the one of the checkpoint.
        compiled: Any = replica if settings.compile == "no" else torch.compile(replica, backend=settings.compile)
        self.replica: nn.Module = compiled

    def train(self) -> dict[str, float]:
        """Train to the end, or until `stop_after`; return the results of the last test."""
        found = dict[str, float]()
        while (epoch := self.loader.next_epoch) < self.settings.epochs:
            if not self.train_epoch(epoch):
                return found
            self.save()
            found = self.test()
            self.log(epoch=epoch, **found)
        if isinstance(network := self._tested(), Logits) and self.rank == 0:
            network.save_pretrained(self.folder / "model")
        return found

    def train_epoch(self, epoch: int) -> bool:
        """Train the rest of an epoch, and return whether it is complete."""
        settings = self.settings
        first, length = self.loader.state_dict()["batch"], len(self.loader)
        self.replica.train()
        losses: list[Tensor] = []
        for number, (images, labels) in enumerate(self.loader, first):
            losses.append(self.step(images, labels, (epoch + (number + 1) / length) / settings.epochs))
            self.done += 1
            if self.done == settings.stop_after:
                self.save()
                self.log(epoch=epoch, stopped_after=number + 1)
                return False
            if (number + 1) % settings.checkpoint_every == 0:
                self.save()
        stats = self.loader.stats()
        self.log(
            epoch=epoch,
            loss=float(torch.stack(losses).mean()) if losses else None,
            images_per_second=round(stats.images_per_second * self.world),
            waiting_share=round(stats.waiting_share, 4),
        )
        return True

    def step(self, images: Tensor, labels: Tensor, share: float) -> Tensor:
        """Train on one batch, and return its loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, share)
        with self._precision():
            logits = self.replica(images)
        loss = nn.functional.cross_entropy(logits.float(), labels, label_smoothing=self.settings.label_smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip)
        self.optimizer.step()
        if isinstance(self.ema, AveragedModel):
            self.ema.update_parameters(self.network)
        return loss.detach()

    @torch.no_grad()
    def test(self) -> dict[str, float]:
        """Measure the accuracy of the moving average; each rank tests different samples, and no sample counts twice."""
        settings, network = self.settings, self._tested().eval()
        mine = np.arange(self.rank, Reader(settings.val).num_samples, self.world)
        expected = self.preprocessing
        decoder = CenterCropRGBImageDecoder(expected.size, expected.ratio, expected.interpolation)
        loader = Loader(
            settings.val,
            settings.batch_size,
            num_workers=settings.num_workers,
            indices=mine,
            drop_last=False,
            pipelines=self._pipelines([decoder]),
        )
        counts = torch.zeros(3, dtype=torch.float64, device=self.device)
        for images, labels in loader:
            with self._precision():
                logits = network(images).float()
            loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
            right = (logits.argmax(1) == labels).sum()
            counts += torch.stack([right, loss, right.new_tensor(len(labels))])
        loader.close()
        if self.world > 1:
            torch.distributed.all_reduce(counts)
        top_1, loss = (counts[:2] / counts[2]).tolist()
        return {"top_1": top_1, "val_loss": loss}

    def save(self) -> None:
        """Write a checkpoint; the older one is kept until this one is complete."""
        if self.rank == 0:
            parts = {name: getattr(self, name).state_dict() for name in ("network", "ema", "optimizer", "loader")}
            torch.save({**parts, "class_names": list(self.class_names)}, self.folder / "checkpoint.new")
            (self.folder / "checkpoint.new").replace(self.folder / "checkpoint.pt")

    def log(self, **entries: Any) -> None:
        """Print an event, and append it to log.jsonl."""
        if self.rank == 0:
            line = json.dumps(entries)
            print(line, flush=True)
            with open(self.folder / "log.jsonl", "a") as file:
                file.write(line + "\n")

    def _resume(self) -> None:
        checkpoint = self.folder / "checkpoint.pt"
        if checkpoint.exists():
            parts = torch.load(checkpoint, map_location=self.device, weights_only=True)
            for name in ("network", "ema", "optimizer", "loader"):
                getattr(self, name).load_state_dict(parts[name])
            self.log(resumed_epoch=parts["loader"]["epoch"], batch=parts["loader"]["batch"])
        else:
            self.log(**asdict(self.settings), **asdict(self.preprocessing), classes=len(self.class_names))

    def _tested(self) -> nn.Module:
        return self.ema.module if isinstance(self.ema, AveragedModel) else self.network

    def _training_loader(self) -> Loader:
        settings, expected = self.settings, self.preprocessing
        crop = RandomResizedCropRGBImageDecoder(
            expected.size, scale=(settings.min_area, 1.0), interpolation=expected.interpolation
        )
        return Loader(
            settings.train,
            settings.batch_size,
            num_workers=settings.num_workers,
            order="random",
            distributed=self.world > 1,
            seed=settings.seed,
            pipelines=self._pipelines([crop, RandomHorizontalFlip()]),
        )

    def _pipelines(self, image: list[Any]) -> dict[str, list[Any]]:
        normalize = NormalizeImage(self.preprocessing.mean, self.preprocessing.std, np.float32)
        return {
            "image": [*image, ToTensor(), ToDevice(self.device), ToTorchImage(), normalize],
            "label": [IntDecoder(), ToTensor(), Squeeze(1), ToDevice(self.device)],
        }

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.amp != "no")


def class_names_of(settings: Settings) -> tuple[str, ...]:
    """Return the class names of both files, which have to agree."""
    train, val = Reader(settings.train).class_names, Reader(settings.val).class_names
    if not train:
        raise ValueError(f"{settings.train} has no class names. Make it with `gpubeton convert` from a folder.")
    if val != train:
        raise ValueError(f"{settings.val} has the classes {val}, expected {settings.train}'s: {train}")
    return train


def device_of(settings: Settings) -> torch.device:
    """Select the device of this process."""
    if settings.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train, or resume training; under torchrun as one of several processes.

    Returns
    -------
    dict of str to float
        The results of the last test: ``top_1``, a share of the images, and ``val_loss``.
    """
    settings = settings_of(arguments)
    is_shared = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if is_shared:
        torch.distributed.init_process_group("nccl" if device_of(settings).type == "cuda" else "gloo")
    try:
        run = Run(settings)
        try:
            return run.train()
        finally:
            run.loader.close()
    finally:
        if is_shared:
            torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
