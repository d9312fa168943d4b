"""Settings: a YAML file overrides the defaults, and the command line overrides both."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml  # the usual parser of such files


@dataclass(frozen=True)
class Settings:
    """The settings of a run. The entries of the YAML file and the options have the same names."""

    train: str = "train.beton"
    val: str = "val.beton"
    folder: str = "runs/imagenet"  # log.jsonl and checkpoint.pt; a run in it is resumed

    network: str = "resnet50"
    num_classes: int = 1000
    blurpool: bool = True

    epochs: int = 16
    batch_size: int = 512  # for each process
    lr: float = 1.7
    schedule: str = "triangle"  # or steps
    peak_epoch: int = 2  # of the triangle
    step_epochs: int = 30  # of the steps; each divides the rate by ten
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.1
    amp: bool = True
    seed: int = 0

    min_side: int = 160
    max_side: int = 192
    ramp_start: int = 11  # the last epoch at min_side
    ramp_stop: int = 13  # the first epoch at max_side

    val_side: int = 256
    val_batch_size: int = 512
    flip: bool = True  # test-time augmentation: the mean of an image and its mirror image
    val_every: int = 1  # epochs

    device: str = "auto"
    num_workers: int = -1
    os_cache: bool = True  # if the file fits into memory
    order: str = "random"  # or quasi_random, for larger files
    on_error: str = "replace"
    checkpoint_every: int = 500  # batches; and at the end of each epoch
    stop_after: int = 0  # batches, to test the checkpoint; 0 for no limit
    only_evaluate: bool = False  # the network of the checkpoint


def settings_of(arguments: Sequence[str] | None, description: str) -> Settings:
    """Read ``--config FILE.yaml`` and ``--NAME VALUE``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="a YAML file, such as one of configs/")
    for field in fields(Settings):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", metavar=str(field.type).upper(), help=f"default: {field.default}"
        )
    options = vars(parser.parse_args(arguments))
    config = options.pop("config")
    entries = {} if config is None else (yaml.safe_load(config.read_text()) or {})
    defaults = asdict(Settings())
    for name, text in options.items():
        if text is not None:
            entries[name] = text if isinstance(defaults[name], str) else yaml.safe_load(text)
    return checked(entries)


def checked(entries: Mapping[str, Any]) -> Settings:
    """Make settings from the entries of a file or a command line.

    Raises
    ------
    ValueError
        If an entry is unknown, of another kind than its default, or out of its range.
    """
    defaults = asdict(Settings())
    values: dict[str, Any] = {}
    for name, value in entries.items():
        if name not in defaults:
            raise ValueError(f"no setting is called {name!r}; there are {', '.join(defaults)}")
        kind = type(defaults[name])
        if kind is float and not isinstance(value, bool):  # YAML 1.1 reads 5e-5 as text
            values[name] = float(value)
        elif type(value) is not kind:
            raise ValueError(f"{name} is {value!r}, expected {kind.__name__}, such as {defaults[name]!r}")
        else:
            values[name] = value
    settings = Settings(**values)
    if settings.schedule not in ("triangle", "steps"):
        raise ValueError(f"schedule is {settings.schedule!r}, expected 'triangle' or 'steps'")
    return settings


def learning_rate(settings: Settings, epoch: float) -> float:
    """Return the learning rate at a time, counted in epochs."""
    if settings.schedule == "steps":
        return settings.lr / 10.0 ** int(epoch // settings.step_epochs)
    peak, end = float(settings.peak_epoch), float(settings.epochs)
    if epoch < peak:
        return settings.lr * (1e-4 + (1 - 1e-4) * epoch / peak)
    return settings.lr * max(0.0, end - epoch) / max(end - peak, 1e-9)


def side_of(settings: Settings, epoch: int) -> int:
    """Return the image size of an epoch in pixels: a multiple of 32 between the ends of the ramp."""
    if epoch <= settings.ramp_start:
        return settings.min_side
    if epoch >= settings.ramp_stop:
        return settings.max_side
    share = (epoch - settings.ramp_start) / (settings.ramp_stop - settings.ramp_start)
    return round((settings.min_side + share * (settings.max_side - settings.min_side)) / 32) * 32
