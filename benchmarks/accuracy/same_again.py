"""Compare a resumed training with an uninterrupted one, and images beside bad ones, to the last bit."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.accuracy.batches import GPUBETON, Batch, open_loader
from benchmarks.accuracy.training import Training, make_network
from gpubeton.dataset import Contents
from gpubeton.loader import Loader

__all__ = ["bad_images", "resuming"]

_BATCH = 64


def resuming(path: Path, classes: int, *, epochs: int = 2) -> dict[str, Any]:
    """Train some epochs, and once more with an end in the middle of the last one; count the values that differ."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with _open(path, seed=1) as loader:
        length = len(loader)
    steps, stop = epochs * length, (epochs - 1) * length + length // 3
    through, _ = _train(path, classes, steps, steps)
    _, checkpoint = _train(path, classes, steps, stop)
    resumed, _ = _train(path, classes, steps, steps, checkpoint)
    pairs = list(zip(through.state_dict().values(), resumed.state_dict().values(), strict=True))
    other, _ = _train(path, classes, steps, steps, checkpoint, seed=2)  # the comparison can fail
    return {
        "steps": steps,
        "stopped_after": stop,
        "values": sum(weights.numel() for weights, _ in pairs),
        "different": sum(int((first != second).sum()) for first, second in pairs),
        "different_in_another_order": sum(
            int((first != second).sum())
            for first, second in zip(through.state_dict().values(), other.state_dict().values(), strict=True)
        ),
    }


def bad_images(path: Path, bad: tuple[int, ...] = (3, 40, 41, 100)) -> dict[str, Any]:
    """Damage some images of a copy of a file; compare the batches of skip and replace with those of the sound file."""
    damaged = path.with_name("damaged.beton")
    shutil.copy(path, damaged)
    regions = Contents(path).index.regions("image")
    with open(damaged, "r+b") as file:
        for sample in bad:
            file.seek(int(regions.offset[sample]))
            file.write(bytes(200))
    with _open(path, seed=0) as loader:
        sound = dict(_numbered(loader))
    results: dict[str, Any] = {"bad": len(bad), "images": len(sound)}
    for reaction in ("skip", "replace"):
        with _open(damaged, seed=0, on_error=reaction) as loader:
            pairs = list(_numbered(loader))
            results[reaction] = {
                "images": len(pairs),
                "different": sum(not torch.equal(image, sound[number]) for number, image in pairs),
                "bad": len({number for number, _ in pairs} & set(bad)),
                "listed": len({sample for _, sample, _ in loader.bad_samples}),
            }
    damaged.unlink()
    return results


def _numbered(loader: Loader) -> Iterator[tuple[int, torch.Tensor]]:
    """Give each image of an epoch with its number."""
    for images, _, numbers, _ in loader:
        yield from zip(numbers.tolist(), images, strict=True)


def _train(
    path: Path, classes: int, steps: int, stop: int, checkpoint: bytes = b"", seed: int = 1
) -> tuple[torch.nn.Module, bytes]:
    """Train from the beginning or from a checkpoint; return the network and a checkpoint."""
    training = Training(make_network(1, classes), steps)
    first = 0
    with _open(path, seed=seed) as loader:
        if checkpoint:
            parts = torch.load(io.BytesIO(checkpoint), weights_only=True)
            training.load(parts["training"])
            if seed == 1:
                loader.load_state_dict(parts["loader"])
            first = parts["step"]
        remaining = stop - first
        while remaining:
            batches = (Batch(images, labels.long()) for images, labels, *_ in islice(loader, remaining))
            remaining -= len(training.run(batches))
        file = io.BytesIO()
        torch.save({"training": training.state(), "loader": loader.state_dict(), "step": stop}, file)
    return training.network, file.getvalue()


def _open(path: Path, *, seed: int, on_error: str = "raise") -> Loader:
    return open_loader(path, GPUBETON, seed=seed, batch_size=_BATCH, is_training=True, on_error=on_error)
