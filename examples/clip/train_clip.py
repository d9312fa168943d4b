"""Train CLIP on pairs of images and texts: contrastive loss with the negatives of all processes, AMP, EMA, DDP.

    python examples/clip/write_pairs.py train.csv train.beton --tokenizer openai/clip-vit-base-patch32
    python examples/clip/train_clip.py --config examples/clip/configs/vit_b32.yaml
    torchrun --nproc-per-node 8 examples/clip/train_clip.py --config examples/clip/configs/vit_b32.yaml

The same command resumes a stopped run in the middle of an epoch. Radford et al. 2021 (arXiv 2103.00020).
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
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from towers import ImageTower, PairNetwork, TextTower

from gpubeton.fields.decoders import CenterCropRGBImageDecoder, NDArrayDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from gpubeton.transforms import NormalizeImage, ToDevice, ToTensor, ToTorchImage

MEAN, STD = (122.771, 116.746, 104.094), (68.501, 66.632, 70.323)  # CLIP's, levels from 0 to 255


@dataclass(frozen=True)
class Settings:
    """The settings of a run: entries of the YAML file, and options with the same names."""

    train: str = "train.beton"
    val: str = "val.beton"
    folder: str = "runs/clip"  # log.jsonl and checkpoint.pt; a run in it is resumed

    side: int = 224  # of the images, in pixels
    patch: int = 32
    image_width: int = 768  # channels, multiples of 64
    image_depth: int = 12  # layers
    text_width: int = 512
    text_depth: int = 12
    outputs: int = 512  # features of an image or a text

    epochs: int = 32
    batch_size: int = 256  # for each process
    lr: float = 5e-4
    warmup: float = 0.05  # share of the training in which the rate rises
    weight_decay: float = 0.2
    clip: float = 1.0  # largest norm of the gradient
    min_area: float = 0.9  # of a random crop, as a share of the image's
    ema: float = 0.9998  # share of the average that a step keeps; 0 for no average
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

        torch.manual_seed(settings.seed)
        self.network = make_network(settings).to(self.device)
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
        return found

    def train_epoch(self, epoch: int) -> bool:
        """Train the rest of an epoch, and return whether it is complete."""
        settings = self.settings
        first, length = self.loader.state_dict()["batch"], len(self.loader)
        self.replica.train()
        losses: list[Tensor] = []
        for number, (images, tokens) in enumerate(self.loader, first):
            losses.append(self.step(images, tokens, (epoch + (number + 1) / length) / settings.epochs))
            self.done += 1
            if self.done == settings.stop_after:
                self.save()
                self.log(epoch=epoch, stopped_after=number + 1)
                return False
            if (number + 1) % settings.checkpoint_every == 0:
                self.save()
        stats = self.loader.stats()
        mean = torch.stack(losses).mean() if losses else torch.tensor(float("nan"), device=self.device)
        if self.world > 1:
            torch.distributed.all_reduce(mean)
        self.log(
            epoch=epoch,
            loss=float(mean) / self.world if losses else None,
            images_per_second=round(stats.images_per_second * self.world),
            waiting_share=round(stats.waiting_share, 4),
        )
        return True

    def step(self, images: Tensor, tokens: Tensor, share: float) -> Tensor:
        """Train on one batch, and return its loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, share)
        with self._precision():
            ones, others, scale = self.replica(images, tokens)
        loss = contrastive_loss(ones, others, scale)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip)
        self.optimizer.step()
        if isinstance(self.ema, AveragedModel):
            self.ema.update_parameters(self.network)
        return loss.detach()

    @torch.no_grad()
    def test(self) -> dict[str, float]:
        """Measure the share of images whose own text is the nearest of all, and of texts whose image is."""
        network = self._tested().eval()
        decoder = CenterCropRGBImageDecoder((self.settings.side,) * 2, ratio=1, interpolation="antialias")
        loader = Loader(
            self.settings.val,
            self.settings.batch_size,
            num_workers=self.settings.num_workers,
            drop_last=False,
            pipelines=self._pipelines(decoder),
        )
        with self._precision():
            found = [network(images, tokens)[:2] for images, tokens in loader]
        loader.close()
        ones, others = (torch.cat(parts) for parts in zip(*found, strict=True))
        likeness, own = ones @ others.T, torch.arange(len(ones), device=self.device)
        shares = [float((likeness.argmax(axis) == own).double().mean()) for axis in (1, 0)]
        return {"image_to_text": shares[0], "text_to_image": shares[1]}

    def save(self) -> None:
        """Write a checkpoint; the older one is kept until this one is complete."""
        if self.rank == 0:
            parts = {name: getattr(self, name).state_dict() for name in ("network", "ema", "optimizer", "loader")}
            torch.save(parts, self.folder / "checkpoint.new")
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
            self.log(**asdict(self.settings), world=self.world)

    def _tested(self) -> nn.Module:
        return self.ema.module if isinstance(self.ema, AveragedModel) else self.network

    def _training_loader(self) -> Loader:
        settings = self.settings
        crop = RandomResizedCropRGBImageDecoder(
            (settings.side,) * 2, scale=(settings.min_area, 1.0), interpolation="antialias"
        )
        return Loader(
            settings.train,
            settings.batch_size,
            num_workers=settings.num_workers,
            order="random",
            distributed=self.world > 1,
            seed=settings.seed,
            pipelines=self._pipelines(crop),
        )

    def _pipelines(self, decoder: Any) -> dict[str, list[Any]]:
        normalize = NormalizeImage(MEAN, STD, np.float32)
        return {
            "image": [decoder, ToTensor(), ToDevice(self.device), ToTorchImage(), normalize],
            "tokens": [NDArrayDecoder(), ToTensor(), ToDevice(self.device)],
        }

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.amp != "no")


def make_network(settings: Settings) -> nn.Module:
    """Make both towers, for the tokens of the training file."""
    notes = Reader(settings.train).notes
    if "vocabulary" not in notes:
        raise ValueError(
            f"{settings.train} does not have the number of tokens in its notes. Make it with write_pairs.py."
        )
    outputs = settings.outputs
    images = ImageTower(settings.side, settings.patch, settings.image_width, settings.image_depth, outputs)
    texts = TextTower(notes["vocabulary"], notes["length"], settings.text_width, settings.text_depth, outputs)
    return PairNetwork(images, texts)


def contrastive_loss(ones: Tensor, others: Tensor, scale: Tensor) -> Tensor:
    """Find the text of each of this process's images among those of all processes, and the image of each text.

    The gradient flows through the gathered features, so that the mean over processes is the loss of the whole batch.
    """
    first, all_ones, all_others = 0, ones, others
    if torch.distributed.is_initialized():
        all_ones, all_others = torch.cat(all_gather(ones)), torch.cat(all_gather(others))
        first = torch.distributed.get_rank() * len(ones)
    own = torch.arange(first, first + len(ones), device=ones.device)
    rows = nn.functional.cross_entropy(scale * ones @ all_others.T, own)
    columns = nn.functional.cross_entropy(scale * others @ all_ones.T, own)
    return (rows + columns) / 2


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
        The results of the last test: shares of the validation pairs, ``image_to_text`` and ``text_to_image``.
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
