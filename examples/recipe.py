"""What all recipes share: settings, checkpoints in the middle of an epoch, moving average, AMP, torch.compile, DDP.

A recipe is a subclass of `Run` with its network, its loaders, its loss and its test, and a subclass of `Settings`.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import os
import re
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
import torch.distributed
import yaml  # the usual parser of such files
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from gpubeton.fields.decoders import IntDecoder
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from gpubeton.transforms import NormalizeImage, Squeeze, ToDevice, ToTensor, ToTorchImage

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # ImageNet's; levels from 0 to 255


@dataclass(frozen=True)
class Settings:
    """The settings of a run: the entries of the YAML file, and options with the same names."""

    train: str = "train.beton"
    val: str = "val.beton"
    folder: str = "runs"  # log.jsonl and checkpoint.pt; a run in it is resumed

    epochs: int = 10
    batch_size: int = 64  # for each process
    lr: float = 1e-3
    schedule: str = "cosine"  # of the rate after the warmup; or triangle, or steps
    warmup: float = 1.0  # epochs in which the rate rises
    step_epochs: int = 30  # of the schedule of steps; each divides the rate by ten
    weight_decay: float = 0.05
    clip: float = 0.0  # largest norm of the gradient; 0 for no limit
    ema: float = 0.0  # share of the moving average that a step keeps; 0 for no average
    amp: str = "bfloat16"  # or float16 (which a CPU replaces by bfloat16), or none
    compile: str = "none"  # or a backend of torch.compile, such as inductor
    seed: int = 0

    device: str = "auto"  # or cpu
    num_workers: int = -1
    os_cache: bool = True  # if the file fits into memory
    val_every: int = 1  # epochs
    checkpoint_every: int = 500  # batches; and at the end of each epoch
    stop_after: int = 0  # batches, to test the checkpoint; 0 for no limit
    only_evaluate: bool = False  # the network of the checkpoint

    def __post_init__(self) -> None:
        choices = {"amp": ("none", "bfloat16", "float16"), "schedule": ("cosine", "triangle", "steps")}
        for name, choice in choices.items():
            if (value := getattr(self, name)) not in choice:
                raise ValueError(f"{name} is {value!r}, expected {', '.join(choice)}")


S = TypeVar("S", bound=Settings)


def settings_of(kind: type[S], arguments: Sequence[str] | None) -> S:
    """Read ``--config FILE.yaml`` and ``--NAME VALUE``: the command line overrides the file, the file the defaults."""
    module = sys.modules[kind.__module__]
    name = f"python -m examples.{Path(module.__file__ or '').parent.name}"
    usage, style = f"{name} [--config FILE.yaml] [--NAME VALUE ...]", argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(name, usage, module.__doc__, formatter_class=style)
    text = "settings, such as those in configs/; the defaults are:"
    parser.add_argument("--config", type=Path, metavar="FILE.yaml", help=text)
    source = "".join(inspect.getsource(settings_class) for settings_class in (Settings, kind))
    comments = dict(re.findall(r"^    (\w+): .*  # (.*)$", source, re.MULTILINE))
    for field in fields(kind):
        text = f"{field.default}; {comments[field.name]}" if field.name in comments else str(field.default)
        parser.add_argument(f"--{field.name.replace('_', '-')}", metavar=str(field.type).upper(), help=text)
    options = vars(parser.parse_args(arguments))
    config = options.pop("config")
    try:
        entries = {} if config is None else (yaml.safe_load(config.read_text()) or {})
        for option, text in options.items():
            if text is not None:
                entries[option] = text if isinstance(getattr(kind, option), str) else yaml.safe_load(text)
        return checked(kind, entries)
    except (OSError, ValueError, yaml.YAMLError) as error:
        parser.error(str(error))


def checked(kind: type[S], entries: Mapping[str, Any]) -> S:
    """Make settings from entries.

    Raises
    ------
    ValueError
        If an entry is unknown, of another kind than its default, or out of its range.
    """
    defaults = {field.name: field.default for field in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in entries.items():
        if name not in defaults:
            raise ValueError(f"no setting is called {name!r}; there are {', '.join(defaults)}")
        expected = type(defaults[name])
        if expected is float and not isinstance(value, bool):  # YAML 1.1 reads 5e-5 as text
            values[name] = float(value)
        elif type(value) is not expected:
            raise ValueError(f"{name} is {value!r}, expected {expected.__name__}, such as {defaults[name]!r}")
        else:
            values[name] = value
    return kind(**values)


def learning_rate(settings: Settings, epoch: float) -> float:
    """Return the learning rate at a time, counted in epochs: a line up, then the schedule."""
    if settings.schedule == "steps":
        return settings.lr / 10.0 ** int(epoch // settings.step_epochs)
    if epoch < settings.warmup:
        return settings.lr * (1e-4 + (1 - 1e-4) * epoch / settings.warmup)
    left = (settings.epochs - epoch) / max(settings.epochs - settings.warmup, 1e-9)
    return settings.lr * (left if settings.schedule == "triangle" else (1 - math.cos(math.pi * left)) / 2)


class Run(ABC, Generic[S]):
    """One training: the network, its moving average, its optimizer, and its progress."""

    PARTS = ("network", "ema", "optimizer", "scaler", "loader")  # of a checkpoint

    def __init__(self, settings: S) -> None:
        self.settings = settings
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.device, self.done, self.stop_after = device_of(settings), 0, settings.stop_after
        self.folder = Path(settings.folder)
        self.folder.mkdir(parents=True, exist_ok=True)

        torch.manual_seed(settings.seed)
        self.network: nn.Module = self.make_network().to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        average = get_ema_multi_avg_fn(settings.ema)
        self.ema = AveragedModel(self.network, multi_avg_fn=average, use_buffers=True) if settings.ema else self.network
        self.optimizer = self.make_optimizer()
        halves = settings.amp == "float16" and self.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=halves)
        self.loader = self.make_loader()
        self._resume()
        replica: nn.Module = DistributedDataParallel(self.network) if self.world > 1 else self.network
        # The compiled network shares its parameters with the one of the checkpoint.
        compiled: Any = replica if settings.compile == "none" else torch.compile(replica, backend=settings.compile)
        self.replica: nn.Module = compiled

    @abstractmethod
    def make_network(self) -> nn.Module:
        """Make the network."""

    @abstractmethod
    def make_loader(self) -> Loader:
        """Make the loader of the training file: `open_training` with pipelines."""

    @abstractmethod
    def loss(self, *batch: Any) -> Tensor:
        """Return the loss of a batch, from the logits of ``self.replica``."""

    @abstractmethod
    def test(self, network: nn.Module) -> dict[str, float]:
        """Measure a network, without gradients, on the file of validation."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Make the optimizer; biases and normalizations have no weight decay."""
        return torch.optim.AdamW(self.parameter_groups(lambda parameter: parameter.ndim > 1), lr=self.settings.lr)

    def begin_epoch(self, epoch: int) -> dict[str, Any]:
        """Prepare an epoch, and return what the log mentions of it."""
        return {}

    def finish(self) -> None:
        """Do what remains after the last epoch, in the first process."""

    def facts(self) -> dict[str, Any]:
        """Return what the first line of the log has besides the settings."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return the content of a checkpoint."""
        return {name: getattr(self, name).state_dict() for name in self.PARTS}

    def train(self) -> dict[str, float]:
        """Train to the end, or until `stop_after`; return the results of the last test, empty if there was none."""
        settings, result = self.settings, dict[str, float]()
        while (epoch := self.loader.next_epoch) < settings.epochs:
            if not self.train_epoch(epoch):
                return result
            self.save()
            if (epoch + 1) % settings.val_every == 0 or epoch + 1 == settings.epochs:
                result = self.evaluate()
                self.log(epoch=epoch, **result)
        if self.rank == 0:
            self.finish()
        return result

    def stop(self, *_: object) -> None:
        """Stop with a checkpoint after the batch that is trained, at Ctrl-C; a second one ends the run at once."""
        self.stop_after = self.done + 1
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("Ctrl-C: stopping at a checkpoint after this batch; once more ends at once", file=sys.stderr)

    def train_epoch(self, epoch: int) -> bool:
        """Train the rest of an epoch, and return whether it is complete."""
        facts = self.begin_epoch(epoch)
        first, length = self.loader.state_dict()["batch"], len(self.loader)
        self.replica.train()
        losses: list[Tensor] = []
        for number, batch in enumerate(self.loader, first):
            losses.append(self.step(batch, learning_rate(self.settings, epoch + number / length)))
            self.done += 1
            if self.done == self.stop_after:
                self.save()
                self.log(epoch=epoch, stopped_after=number + 1)
                return False
            if (number + 1) % self.settings.checkpoint_every == 0:
                self.save()
        # A checkpoint may be from an epoch's last batch: then there is no loss.
        loss = torch.stack(losses).mean() if losses else torch.tensor(float("nan"), device=self.device)
        if self.world > 1:
            torch.distributed.all_reduce(loss)
        stats = self.loader.stats()
        self.log(
            epoch=epoch,
            **facts,
            lr=self.optimizer.param_groups[0]["lr"],
            loss=float(loss) / self.world if losses else None,
            images_per_second=round(stats.images_per_second * self.world),
            waiting_share=round(stats.waiting_share, 4),
        )
        return True

    def step(self, batch: Sequence[Any], rate: float) -> Tensor:
        """Train on one batch, and return its loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(*batch)
        self.scaler.scale(loss).backward()
        if self.settings.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if isinstance(self.ema, AveragedModel):
            self.ema.update_parameters(self.network)
        return loss.detach()

    def evaluate(self) -> dict[str, float]:
        """Test the moving average, or the network itself if there is none."""
        with torch.no_grad():
            return self.test(self.tested().eval())

    def tested(self) -> nn.Module:
        """Return the moving average, or the network itself if there is none."""
        return self.ema.module if isinstance(self.ema, AveragedModel) else self.network

    def precision(self) -> AbstractContextManager[Any]:
        """Return the context in which a network runs: AMP, or none."""
        dtype = torch.float16 if self.scaler.is_enabled() else torch.bfloat16
        return torch.autocast(self.device.type, dtype, enabled=self.settings.amp != "none")

    def save(self) -> None:
        """Write a checkpoint; the older one is kept until this one is complete."""
        if self.rank == 0:
            torch.save(self.state(), self.folder / "checkpoint.new")
            (self.folder / "checkpoint.new").replace(self.folder / "checkpoint.pt")

    def log(self, **entries: Any) -> None:
        """Print an event, and append it to log.jsonl."""
        if self.rank == 0:
            line = json.dumps({"time": round(time.time(), 1), **entries})
            print(line, flush=True)
            with open(self.folder / "log.jsonl", "a") as file:
                file.write(line + "\n")

    def _resume(self) -> None:
        """Load the checkpoint, if there is one. All ranks load the same one, and share the rest of the epoch."""
        checkpoint = self.folder / "checkpoint.pt"
        if checkpoint.exists():
            parts = torch.load(checkpoint, map_location=self.device, weights_only=True)
            for name in ("network", "ema") if self.settings.only_evaluate else self.PARTS:
                getattr(self, name).load_state_dict(parts[name])
            self.log(resumed_epoch=parts["loader"]["epoch"], batch=parts["loader"]["batch"])
        else:
            self.log(**asdict(self.settings), world=self.world, **self.facts())

    def parameter_groups(self, is_decayed: Any) -> list[dict[str, Any]]:
        """Split the parameters into those with weight decay and those without."""
        decay = {True: self.settings.weight_decay, False: 0.0}
        return [
            {
                "params": [parameter for parameter in self.network.parameters() if is_decayed(parameter) == kind],
                "weight_decay": value,
            }
            for kind, value in decay.items()
        ]

    def open_training(self, pipelines: Mapping[str, Any], **options: Any) -> Loader:
        """Open the training file: random order, which all processes share."""
        settings = self.settings
        return Loader(
            settings.train,
            settings.batch_size,
            num_workers=settings.num_workers,
            os_cache=settings.os_cache,
            distributed=self.world > 1,
            seed=settings.seed,
            pipelines=pipelines,
            **{"order": "random", **options},
        )

    def open_validation(self, pipelines: Mapping[str, Any], *, shared: bool = True) -> Loader:
        """Open the file of validation; if it is shared, each process gets other samples, and no sample comes twice."""
        settings = self.settings
        first, step = (self.rank, self.world) if shared else (0, 1)
        return Loader(
            settings.val,
            settings.batch_size,
            num_workers=settings.num_workers,
            os_cache=settings.os_cache,
            indices=np.arange(first, Reader(settings.val).num_samples, step),
            drop_last=False,
            pipelines=pipelines,
        )

    def images(self, *operations: Any, mean: Sequence[float] = MEAN, std: Sequence[float] = STD) -> list[Any]:
        """Return a pipeline that ends with normalized images on the device."""
        normalize = NormalizeImage(mean, std, np.float16 if self.scaler.is_enabled() else np.float32)
        return [*operations, ToTensor(), ToDevice(self.device), ToTorchImage(), normalize]

    def labels(self) -> list[Any]:
        """Return a pipeline that ends with one label for each sample on the device."""
        return [IntDecoder(), ToTensor(), Squeeze(1), ToDevice(self.device)]

    def test_classes(
        self, network: Callable[[Tensor], Tensor], loader: Loader, *, flip: bool = False
    ) -> dict[str, float]:
        """Measure top-1, top-5 and loss; with `flip` for the mean logits of an image and its mirror image."""
        counts = torch.zeros(4, dtype=torch.float64, device=self.device)
        for images, labels in loader:
            with self.precision():
                logits = network(images)
                if flip:
                    logits = (logits + network(images.flip(3))) / 2
            logits = logits.float()
            best = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]
            loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
            counts += torch.stack([best[:, 0].sum(), best.sum(), loss, best.new_tensor(len(labels), dtype=torch.long)])
        loader.close()
        return dict(zip(("top_1", "top_5", "val_loss"), self.mean_of(counts), strict=True))

    def mean_of(self, sums: Tensor) -> list[float]:
        """Return the means over all processes, from sums whose last one is the number of samples."""
        if self.world > 1:
            torch.distributed.all_reduce(sums)
        means: list[float] = (sums[:-1] / sums[-1]).tolist()
        return means


def device_of(settings: Settings) -> torch.device:
    """Select the device of this process."""
    if settings.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    number = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", number) if settings.device == "auto" else torch.device(settings.device)
    torch.cuda.set_device(device)
    torch.backends.cudnn.benchmark = True
    return device


def launch(kind: type[Run[S]], settings: S) -> dict[str, float]:
    """Train, or resume training; under torchrun as one of several processes. Return the results of the last test."""
    is_shared = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if is_shared:
        torch.distributed.init_process_group("nccl" if device_of(settings).type == "cuda" else "gloo")
    try:
        run = kind(settings)
        try:
            if not settings.only_evaluate:
                if not is_shared:  # processes that stop at different batches would wait for each other
                    signal.signal(signal.SIGINT, run.stop)
                result = run.train()
                if run.done == run.stop_after != settings.stop_after:
                    sys.exit(130)  # Ctrl-C: scripts do not go on with an unfinished network
                return result
            result = run.evaluate()
            run.log(**result)
            return result
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            run.loader.close()
    finally:
        if is_shared:
            torch.distributed.destroy_process_group()
