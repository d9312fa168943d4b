"""Measure how well each order mixes a file that is sorted by class, the worst case for orders that follow pages.

    python -m benchmarks.mixing                      # a quarter of an hour on one core
    python -m benchmarks.mixing --train 2000 --test 500 --seeds 2 --epochs 1

How far the classes of a batch are from those of the file: half the sum of the absolute differences of the shares
(total variation distance). A batch of few samples is never 0: RANDOM is the reference. Then the network of
`benchmarks.accuracy` trains with each order, from the same weights for the same seed, on that benchmark's pictures of
characters, sorted by class. SEQUENTIAL is the control: it has to fail. All runs are repeatable; nothing is timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.accuracy.batches import GPUBETON, Batch, batches, open_loader
from benchmarks.accuracy.pictures import CLASSES, PictureSet, write_pictures
from benchmarks.accuracy.study import BATCH
from benchmarks.accuracy.training import Training, make_network, predict
from benchmarks.results import DATA, RESULTS
from benchmarks.table import save_and_draw
from gpubeton._plan.order import IdRange, WindowIds, WindowOrder, quasi_random, random
from gpubeton.dataset import Contents, copy_samples
from gpubeton.format.index import PageRuns
from gpubeton.traversal_order import Random, Sequential, TraversalOrder, Window

# A file like a tenth of ImageNet, with pages of 8 MiB.
_SAMPLES, _CLASSES, _PAGE, _BATCH = 128_000, 100, 73, 256
# The pictures: 100 of each class in pages so small that it has 17 of them, and 192 of 3,334 pages are in use, one for
# each class: as with all of ImageNet, and 64 streams of 16 pages of 8 MiB.
_PICTURES, _SMALL_PAGE, _NODES, _WIDTH = 20_000, 6, 64, 3
_CONTROLS = 2  # trainings with SEQUENTIAL, which fail by far


class _SmallPages(Window):
    """WINDOW as if the file's pages were small."""

    def __init__(self, loader: Any, nodes: int | None = None) -> None:
        super().__init__(loader, _NODES, _WIDTH, nodes)
        self.runs = PageRuns.join([np.arange(loader.reader.num_samples) // _SMALL_PAGE])


_ORDERS: dict[str, Callable[[Any], TraversalOrder]] = {
    "random": Random,
    "window": _SmallPages,
    "window, 64 virtual nodes": partial(_SmallPages, nodes=_NODES),
    "sequential": Sequential,
}


def main(
    train: Annotated[int, typer.Option(help="Number of images to train with.")] = _PICTURES,
    test: Annotated[int, typer.Option(help="Number of images to test with.")] = 4000,
    seeds: Annotated[int, typer.Option(min=2, help="Number of trainings with each order.")] = 4,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each training.")] = 3,
    data: Annotated[Path, typer.Option(help="Folder for the images.")] = DATA,
    results: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Measure how well each order mixes a file that is sorted by class."""
    console, distances = Console(), class_distances()
    for name, distance in distances.items():
        console.print(f"{name}: the classes of a batch of {_BATCH} are {distance:.3f} from those of the file")
    drawn, tested = write_pictures(data / f"glyphs-{train}-{test}", PictureSet("glyphs", train, test))
    accuracy: dict[str, list[float]] = {name: [] for name in _ORDERS}
    with tempfile.TemporaryDirectory() as folder:
        by_class = np.argsort(Contents(drawn).index.column("label"), kind="stable")
        path = copy_samples(drawn, Path(folder) / "by_class.beton", by_class)
        for seed in range(seeds):
            for name, order in list(_ORDERS.items())[: None if seed < _CONTROLS else -1]:
                accuracy[name].append(_accuracy(path, tested, order, seed, epochs))
                console.print(f"{name}, seed {seed}: {accuracy[name][-1]:.2f} % of the test images right")
    measured = {"distances": distances, "accuracy": accuracy, "train": train, "test": test, "epochs": epochs}
    save_and_draw("mixing", measured, results, console)


def class_distances() -> dict[str, float]:
    """Measure the mean distance of the classes of a batch, for each order."""
    ids = np.arange(_SAMPLES, dtype=np.uint64)
    runs = PageRuns.join([np.arange(_SAMPLES) // _PAGE])

    def window(streams: int, *, keeps_pages: bool = False) -> NDArray[Any]:
        order = WindowOrder(IdRange(_SAMPLES), runs, streams, 16, 0, 0, keeps_pages=keeps_pages)
        return np.asarray(WindowIds.all(order))

    orders = {
        "sequential": ids,
        "quasi_random": quasi_random(IdRange(_SAMPLES), runs, _BATCH, 0, 0),
        "window, 1 stream of 16 pages": window(1),
        "window": window(64),
        "window, 64 virtual nodes": window(64, keeps_pages=True),
        "random": random(ids, 0, 0),
    }
    return {name: _distance(order) for name, order in orders.items()}


def _distance(order: NDArray[np.uint64]) -> float:
    classes = (order * _CLASSES // _SAMPLES).astype(int)
    of_batches = classes[: len(classes) // _BATCH * _BATCH].reshape(-1, _BATCH)
    shares = np.stack([np.bincount(batch, minlength=_CLASSES) for batch in of_batches]) / _BATCH
    return float(np.abs(shares - 1 / _CLASSES).sum(1).mean() / 2)


def _accuracy(path: Path, tested: Path, order: Callable[[Any], TraversalOrder], seed: int, epochs: int) -> float:
    """Train with an order; return the percent of the test images that are right."""
    torch.set_num_threads(1)
    network = make_network(seed, CLASSES["glyphs"])
    with open_loader(path, GPUBETON, seed=seed, batch_size=BATCH, is_training=True) as loader:
        loader.traversal_order = order(loader)
        training = Training(network, epochs * len(loader))
        for _ in range(epochs):
            training.run(Batch(images, labels.to(torch.int64)) for images, labels, *_ in loader)
    chosen, labels = predict(network, batches(tested, GPUBETON, seed=seed, epochs=0, batch_size=BATCH))
    return 100 * float((chosen == labels).double().mean())


if __name__ == "__main__":
    typer.run(main)
