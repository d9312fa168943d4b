r"""Train a ResNet on ImageNet with FFCV's published recipe: progressive resizing, BlurPool, label smoothing, AMP, DDP.

    python examples/imagenet/train_imagenet.py --config examples/imagenet/configs/rn18_16.yaml \
        --train /data/train.beton --val /data/val.beton --folder runs/rn18_16
    torchrun --nproc-per-node 8 examples/imagenet/train_imagenet.py --config examples/imagenet/configs/rn50_16.yaml ...

The same command resumes a stopped run. write_imagenet.py makes the files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from resnet import decayed_and_free, make_resnet
from settings import Settings, learning_rate, settings_of, side_of
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gpubeton.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToDevice, ToTensor, ToTorchImage

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


class Run:
    """The network, its optimizer, and its progress."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.device = device_of(settings)
        self.done = 0
        self.folder = Path(settings.folder)
        self.folder.mkdir(parents=True, exist_ok=True)

        torch.manual_seed(settings.seed)
        network = make_resnet(settings.network, settings.num_classes, blurpool=settings.blurpool)
        self.network: nn.Module = network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        decayed, free = decayed_and_free(self.network)
        groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": free, "weight_decay": 0.0}]
        self.optimizer = torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=settings.amp and self.device.type == "cuda")
        self.decoder = RandomResizedCropRGBImageDecoder((settings.min_side,) * 2)
        self.loader = self._training_loader()
        self._go_on()
        self.replica = DistributedDataParallel(self.network) if self.world > 1 else self.network

    def train(self) -> dict[str, float]:
        """Train to the end, or until `stop_after`.

        Returns
        -------
        dict of str to float
            The results of the last evaluation; empty if there was none.
        """
        settings, found = self.settings, dict[str, float]()
        while (epoch := self.loader.next_epoch) < settings.epochs:
            if not self.train_epoch(epoch):
                return found
            self.save()
            if (epoch + 1) % settings.val_every == 0 or epoch + 1 == settings.epochs:
                found = self.evaluate()
                self.log(epoch=epoch, **found)
        return found

    def train_epoch(self, epoch: int) -> bool:
        """Train the rest of an epoch, and return whether it is complete."""
        settings = self.settings
        side = side_of(settings, epoch)
        self.decoder.output_size = (side, side)
        first, length = self.loader.state_dict()["batch"], len(self.loader)
        self.replica.train()
        losses: list[Tensor] = []
        for number, (images, labels) in enumerate(self.loader, first):
            rate = learning_rate(settings, epoch + number / length)
            losses.append(self.step(images, labels, rate))
            self.done += 1
            if self.done == settings.stop_after:
                self.save()
                self.log(epoch=epoch, stopped_after=number + 1)
                return False
            if (number + 1) % settings.checkpoint_every == 0:
                self.save()
        loss = float(torch.stack(losses).mean()) if losses else None  # a checkpoint may be from an epoch's last batch
        stats = self.loader.stats()
        self.log(
            epoch=epoch,
            side=side,
            lr=self.optimizer.param_groups[0]["lr"],
            loss=loss,
            images_per_second=round(stats.images_per_second * self.world),
            waiting_share=round(stats.waiting_share, 4),
        )
        return True

    def step(self, images: Tensor, labels: Tensor, rate: float) -> Tensor:
        """Train on one batch, and return its loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        with self._precision():
            logits = self.replica(images)
            loss = nn.functional.cross_entropy(logits, labels, label_smoothing=self.settings.label_smoothing)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure the accuracy; each rank tests different samples, and no sample counts twice."""
        settings = self.settings
        self.network.eval()
        mine = np.arange(self.rank, Reader(settings.val).num_samples, self.world)
        decoder = CenterCropRGBImageDecoder((settings.val_side,) * 2, ratio=224 / 256)
        loader = Loader(
            settings.val,
            settings.val_batch_size,
            num_workers=settings.num_workers,
            os_cache=settings.os_cache,
            indices=mine,
            drop_last=False,
            pipelines=self._pipelines([decoder]),
        )
        counts = torch.zeros(4, dtype=torch.float64, device=self.device)
        for images, labels in loader:
            with self._precision():
                logits = self.network(images)
                if settings.flip:
                    logits = (logits + self.network(images.flip(3))) / 2
            best = logits.float().topk(min(5, settings.num_classes)).indices == labels[:, None]
            loss = nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
            counts += torch.stack([best[:, 0].sum(), best.sum(), loss, best.new_tensor(len(labels), dtype=torch.long)])
        loader.close()
        if self.world > 1:
            torch.distributed.all_reduce(counts)
        top_1, top_5, loss = (counts[:3] / counts[3]).tolist()
        return {"top_1": top_1, "top_5": top_5, "val_loss": loss}

    def save(self) -> None:
        """Write a checkpoint; the older one is kept until this one is complete."""
        if self.rank == 0:
            parts = {name: getattr(self, name).state_dict() for name in ("network", "optimizer", "scaler", "loader")}
            torch.save(parts, self.folder / "checkpoint.new")
            (self.folder / "checkpoint.new").replace(self.folder / "checkpoint.pt")

    def log(self, **entries: Any) -> None:
        """Print an event, and append it to log.jsonl."""
        if self.rank == 0:
            line = json.dumps({"time": round(time.time(), 1), **entries})
            print(line, flush=True)
            with open(self.folder / "log.jsonl", "a") as file:
                file.write(line + "\n")

    def _go_on(self) -> None:
        """Load the checkpoint, if there is one. All ranks load the same one, and share the rest of the epoch."""
        checkpoint = self.folder / "checkpoint.pt"
        if checkpoint.exists():
            parts = torch.load(checkpoint, map_location=self.device, weights_only=True)
            for name in ("network",) if self.settings.only_evaluate else parts:
                getattr(self, name).load_state_dict(parts[name])
            self.log(goes_on_from=parts["loader"]["epoch"], batch=parts["loader"]["batch"])
        else:
            self.log(**asdict(self.settings), world=self.world)

    def _training_loader(self) -> Loader:
        settings = self.settings
        return Loader(
            settings.train,
            settings.batch_size,
            num_workers=settings.num_workers,
            os_cache=settings.os_cache,
            order=settings.order,
            distributed=self.world > 1,
            seed=settings.seed,
            on_error=settings.on_error,
            pipelines=self._pipelines([self.decoder, RandomHorizontalFlip()]),
        )

    def _pipelines(self, image: list[Any]) -> dict[str, list[Any]]:
        halves = self.settings.amp and self.device.type == "cuda"
        normalize = NormalizeImage(MEAN, STD, np.float16 if halves else np.float32)
        return {
            "image": [*image, ToTensor(), ToDevice(self.device), ToTorchImage(), normalize],
            "label": [IntDecoder(), ToTensor(), Squeeze(1), ToDevice(self.device)],
        }

    def _precision(self) -> AbstractContextManager[Any]:
        dtype = torch.float16 if self.device.type == "cuda" else torch.bfloat16
        return torch.autocast(self.device.type, dtype, enabled=self.settings.amp)


def device_of(settings: Settings) -> torch.device:
    """Select the device of this process."""
    if settings.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    number = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", number) if settings.device == "auto" else torch.device(settings.device)
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True
    return device


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train, or resume training; under torchrun as one of several processes.

    Returns
    -------
    dict of str to float
        The results of the last evaluation: ``top_1`` and ``top_5``, shares of the images, and ``val_loss``.
    """
    settings = settings_of(arguments, __doc__ or "")
    is_shared = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if is_shared:
        torch.distributed.init_process_group("nccl" if device_of(settings).type == "cuda" else "gloo")
    try:
        run = Run(settings)
        try:
            if not settings.only_evaluate:
                return run.train()
            found = run.evaluate()
            run.log(**found)
            return found
        finally:
            run.loader.close()
    finally:
        if is_shared:
            torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
