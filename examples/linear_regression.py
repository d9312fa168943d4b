"""Linear regression on arrays in a file that may be larger than memory.

`os_cache=False` reads only the next batches; QUASI_RANDOM uses few pages of the file at a time.

python examples/linear_regression.py
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gpubeton.fields import NDArrayField
from gpubeton.fields.decoders import NDArrayDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import Squeeze, ToDevice, ToTensor
from gpubeton.writer import DatasetWriter


class Measurements:
    """Vectors, and numbers that depend on them linearly, with some noise. Generated on request."""

    def __init__(self, length: int, weights: NDArray[np.float32], offset: float) -> None:
        self.length, self.weights, self.offset = length, weights, offset

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return a vector and its number."""
        rng = np.random.default_rng(index)
        vector = rng.random(len(self.weights), np.float32)
        response = vector @ self.weights + self.offset + 0.1 * rng.standard_normal()
        return vector, np.array([response], np.float32)


def mean_and_deviation(loader: Loader) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute mean and standard deviation of the vectors, in one pass over the file."""
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for vectors, _ in loader:
        count += len(vectors)
        total = total + vectors.sum(0)
        squares = squares + vectors.pow(2).sum(0)
    mean = total / count
    return mean, torch.sqrt(squares / count - mean.pow(2))


def main() -> None:
    """Write the measurements, and recover the weights by gradient descent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--dimensions", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()

    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    weights = np.random.default_rng(0).normal(size=options.dimensions).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measurements.beton"
        fields = {
            "vector": NDArrayField(shape=(options.dimensions,), dtype=np.dtype("float32")),
            "response": NDArrayField(shape=(1,), dtype=np.dtype("float32")),
        }
        writer = DatasetWriter(path, fields, progress=False)
        writer.from_indexed_dataset(Measurements(options.samples, weights, offset=2.0))

        loader = Loader(
            path,
            batch_size=options.batch_size,
            order=OrderOption.QUASI_RANDOM,
            os_cache=False,
            seed=0,
            pipelines={
                "vector": [NDArrayDecoder(), ToTensor(), ToDevice(device)],
                "response": [NDArrayDecoder(), ToTensor(), Squeeze(1), ToDevice(device)],
            },
        )
        mean, deviation = mean_and_deviation(loader)
        scaled, bias = torch.zeros(options.dimensions, device=device), torch.zeros(1, device=device)
        for epoch in range(options.epochs):
            losses = []
            for vectors, responses in loader:
                inputs = (vectors - mean) / deviation
                residuals = inputs @ scaled + bias - responses
                scaled -= 0.1 * inputs.T @ residuals / len(inputs)
                bias -= 0.1 * residuals.mean()
                losses.append(residuals.pow(2).mean().item())
            print(f"epoch {epoch}: mean squared error {np.mean(losses):.4f}")
        result = (scaled / deviation).cpu().numpy()
        print(f"largest error of a weight: {np.abs(result - weights).max():.3f}")


if __name__ == "__main__":
    main()
