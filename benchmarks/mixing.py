"""Measure how well each order mixes a file that is sorted by class, the worst case for orders that follow pages.

How far the classes of a batch are from those of the file: half the sum of the absolute differences of the shares
(total variation distance). A batch of few samples is never 0: RANDOM is the reference. Then scikit-learn's digits,
sorted by class, train the network of `examples/digits.py` with each order. All runs are repeatable; nothing is timed.

    python -m benchmarks.mixing
"""

from __future__ import annotations

import argparse
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.results import RESULTS, save
from gpubeton._plan.order import IdRange, WindowIds, WindowOrder, quasi_random, random
from gpubeton.fields import IntField, RGBImageField
from gpubeton.format.index import PageRuns
from gpubeton.traversal_order import QuasiRandom, Window
from gpubeton.writer import DatasetWriter

# Imported like this because the type checker knows the examples as programs, not as a package.
digits: Any = import_module("examples.digits")

# A file like a tenth of ImageNet, with pages of 8 MiB.
_SAMPLES, _CLASSES, _PAGE, _BATCH = 128_000, 100, 73, 256
# The digits: pages, streams and batches so small that both orders have 16 of 45 pages in use.
_DIGIT_PAGE, _DIGIT_BATCH = 32, 8
_STREAMS, _WIDTH = 8, 2


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Number of trainings with each order.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each training.")] = 3,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Measure how well each order mixes a file that is sorted by class."""
    console = Console()
    distances = class_distances()
    for name, distance in distances.items():
        console.print(f"{name}: the classes of a batch of {_BATCH} are {distance:.3f} from those of the file")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.beton"
        dataset = digits.Digits()
        by_class = np.argsort(dataset.labels, kind="stable")
        fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
        writer = DatasetWriter(path, fields, num_workers=1, progress=False)
        writer.from_indexed_dataset(dataset, indices=by_class.tolist())
        accuracy = {
            name: [_accuracy(path, name, seed, epochs) for seed in range(seeds)]
            for name in ("sequential", "quasi_random", "window", "random")
        }
    for name, shares in accuracy.items():
        spread = f"{min(shares):.2%} to {max(shares):.2%}"
        console.print(f"{name}: {np.mean(shares):.2%} ({spread}) of the test digits right")
    path = save("mixing", {"distances": distances, "accuracy": accuracy, "epochs": epochs}, results)
    console.print(f"written: {path}")


def class_distances() -> dict[str, float]:
    """Measure the mean distance of the classes of a batch, for each order."""
    ids = np.arange(_SAMPLES, dtype=np.uint64)
    pages = np.arange(_SAMPLES) // _PAGE
    runs = PageRuns.join([pages])
    single, many = (WindowOrder(IdRange(_SAMPLES), runs, streams, 16, 0, 0) for streams in (1, 64))
    orders = {
        "sequential": ids,
        "quasi_random": quasi_random(IdRange(_SAMPLES), runs, _BATCH, 0, 0),
        "window, 1 stream of 16 pages": np.asarray(WindowIds.all(single)),
        "window": np.asarray(WindowIds.all(many)),
        "random": random(ids, 0, 0),
    }
    return {name: _distance(order) for name, order in orders.items()}


def _distance(order: NDArray[np.uint64]) -> float:
    classes = (order * _CLASSES // _SAMPLES).astype(int)
    batches = classes[: len(classes) // _BATCH * _BATCH].reshape(-1, _BATCH)
    shares = np.stack([np.bincount(batch, minlength=_CLASSES) for batch in batches]) / _BATCH
    return float(np.abs(shares - 1 / _CLASSES).sum(1).mean() / 2)


class _SmallPages(QuasiRandom):
    """QUASI_RANDOM as if the file's pages were small."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self.runs = PageRuns.join([np.arange(loader.reader.num_samples) // _DIGIT_PAGE])


class _SmallWindow(Window):
    """WINDOW as if the file's pages were small."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader, _STREAMS, _WIDTH)
        self.runs = PageRuns.join([np.arange(loader.reader.num_samples) // _DIGIT_PAGE])


def _accuracy(path: Path, name: str, seed: int, epochs: int) -> float:
    """Train with an order; return the share of the test digits that are right."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    order: Any = {"quasi_random": _SmallPages, "window": _SmallWindow}.get(name, name)
    options = argparse.Namespace(batch_size=_DIGIT_BATCH, seed=seed, epochs=epochs, lr=0.003)
    is_test = np.zeros(len(digits.Digits()), bool)
    is_test[np.random.default_rng(0).permutation(len(is_test))[: digits.NUM_TEST]] = True
    train = digits.make_loader(path, options, np.flatnonzero(~is_test), [], order)
    test = digits.make_loader(path, options, np.flatnonzero(is_test), [], digits.OrderOption.SEQUENTIAL)
    network = digits.make_network()
    with train, test:
        digits.train_network(network, train, options)
        return float(digits.share_right(network, test))


if __name__ == "__main__":
    typer.run(main)
