"""Pipelines and loaders of the small files, and helpers that collect their batches."""

from __future__ import annotations

import numpy as np
import torch

from gpubeton.fields.decoders import (
    IntDecoder,
    RandomResizedCropRGBImageDecoder,
)
from gpubeton.loader import Loader
from gpubeton.transforms import Cutout, NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

ONLY_IMAGE = dict.fromkeys(["label", "weight", "note", "info", "vector"])
ONLY_LABEL = {
    "label": [IntDecoder(), ToTensor(), Squeeze()],
    **dict.fromkeys(["image", "weight", "note", "info", "vector"]),
}


def augmented(size=(24, 20)):
    return [
        RandomResizedCropRGBImageDecoder(size),
        RandomHorizontalFlip(),
        Cutout(4),
        NormalizeImage([120] * 3, [60] * 3, np.float16),
        ToTensor(),
        ToTorchImage(),
    ]


def make(path, **changes):
    """A loader of labels, in order."""
    arguments = {"batch_size": 8, "num_workers": 1, "seed": 3, "drop_last": False, "pipelines": ONLY_LABEL}
    return Loader(path, **{**arguments, **changes})


def samples(loader):
    """Sample ids of the next epoch, batch by batch."""
    batches = iter(loader)
    return [batches.samples.tolist() for _ in batches]


def labels(loader):
    return [batch.tolist() for (batch,) in loader]


def by_sample(loader):
    """The first output of each sample of the next epoch."""
    batches = iter(loader)
    return {sample: row for batch in batches for sample, row in zip(batches.samples.tolist(), batch[0], strict=True)}


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def same(first, second):
    """Whether two loops give the same batches."""
    first, second = list(first), list(second)
    return len(first) == len(second) and all(
        len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))
        for ours, theirs in zip(first, second, strict=True)
    )
