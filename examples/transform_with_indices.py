"""A transform that gets the sample ids: replace the labels of a fixed part of a dataset.

Experiments with noisy labels need the same wrong labels in every epoch and every run. A function with a true attribute
`with_indices` gets the sample ids, so its result may depend on them.

python examples/transform_with_indices.py
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.fields import IntField
from gpubeton.fields.decoders import IntDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.state import State
from gpubeton.transforms import Squeeze, ToTensor
from gpubeton.writer import DatasetWriter


class SpoiledLabels(Operation):
    """Replace the labels of some samples by others, drawn with the sample's id as seed.

    Parameters
    ----------
    share : float
        Share of the samples, 0 to 1.
    num_classes : int
        Labels are 0 to ``num_classes - 1``.
    """

    def __init__(self, share: float, num_classes: int) -> None:
        super().__init__()
        self.share = share
        self.num_classes = num_classes

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, None]:
        """Return the state unchanged, and request no memory: labels are changed in place."""
        return previous_state, None

    def generate_code(self) -> Callable[..., Any]:
        """Return the function: it gets the batch, no memory, and the sample ids."""
        share, num_classes, rows = self.share, self.num_classes, Compiler.get_iterator()

        def spoil(labels: NDArray[Any], _: None, indices: NDArray[Any]) -> NDArray[Any]:
            for row in rows(len(labels)):
                np.random.seed(indices[row])  # the same draw for this sample every time
                if np.random.rand() < share:
                    labels[row, 0] = (labels[row, 0] + np.random.randint(1, num_classes)) % num_classes
            return labels

        spoil.is_parallel = True  # type: ignore[attr-defined]  # several threads share its loop
        spoil.with_indices = True  # type: ignore[attr-defined]
        return spoil


def main() -> None:
    """Write labels, and print the replaced ones of each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=-1, help="threads; by default one for each core")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.beton"
        clean = [number % 10 for number in range(options.samples)]
        writer = DatasetWriter(path, {"label": IntField()}, num_workers=1, progress=False)
        writer.from_indexed_dataset([(label,) for label in clean])

        label = [IntDecoder(), SpoiledLabels(options.share, num_classes=10), ToTensor(), Squeeze(1)]
        loader = Loader(
            path,
            batch_size=256,
            num_workers=options.workers,
            order=OrderOption.RANDOM,
            drop_last=False,
            pipelines={"label": label},
        )
        first: dict[int, int] = {}
        for epoch in range(options.epochs):
            batches = iter(loader)
            results = {
                sample: label
                for (labels,) in batches
                for sample, label in zip(batches.samples.tolist(), labels.tolist(), strict=True)
            }
            spoiled = {sample: label for sample, label in results.items() if label != clean[sample]}
            first = first or spoiled
            same = "the same as before" if spoiled == first else "other ones"
            print(f"epoch {epoch}: {len(spoiled) / len(clean):.1%} of the labels are wrong, {same}")


if __name__ == "__main__":
    main()
