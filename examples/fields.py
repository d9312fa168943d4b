"""A custom dataset: images with boxes, a feature vector and a caption; and a custom operation.

python examples/fields.py
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.fields import BytesField, FloatField, IntField, JSONField, NDArrayField, RGBImageField
from gpubeton.fields.ndarray import NDArrayDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.state import State
from gpubeton.transforms import ToTensor
from gpubeton.writer import DatasetWriter


class Scenes:
    """Synthetic scenes; any object with ``len`` and ``[index]`` works."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Make one sample: a value for each field."""
        rng = np.random.default_rng(index)
        boxes = [{"name": "thing", "box": rng.integers(0, 64, 4).tolist()} for _ in range(index % 3)]
        return {
            "image": rng.integers(0, 256, (64, 64, 3)).astype(np.uint8),
            "boxes": boxes,
            "feature": rng.normal(size=16).astype(np.float32),
            "caption": np.frombuffer(f"scene {index}".encode(), np.uint8),
            "weight": 1 / (1 + index),
            "label": index % 4,
        }


class UnitLength(Operation):
    """Scale vectors to length 1: a function that Numba compiles, with its state and memory, as in FFCV."""

    def generate_code(self) -> Callable[..., Any]:
        """Return the function; `memory` was requested by `declare_state_and_memory`."""

        def unit_length(vectors: NDArray[Any], memory: NDArray[Any]) -> NDArray[Any]:
            for row in range(vectors.shape[0]):
                memory[row] = vectors[row] / np.sqrt((vectors[row] ** 2).sum())
            return memory[: vectors.shape[0]]

        return unit_length

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, AllocationQuery | None]:
        """Request memory of the shape and dtype of the input."""
        return replace(previous_state, jit_mode=True), AllocationQuery(previous_state.shape, previous_state.dtype)


def main() -> None:
    """Write the scenes, and load them."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    fields = {
        "image": RGBImageField(write_mode="raw"),
        "boxes": JSONField(),
        "feature": NDArrayField(np.dtype("float32"), (16,)),
        "caption": BytesField(),
        "weight": FloatField(),
        "label": IntField(),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenes.beton"
        DatasetWriter(path, fields, num_workers=1, progress=False).from_indexed_dataset(Scenes())
        loader = Loader(path, batch_size=8, pipelines={"feature": [NDArrayDecoder(), UnitLength(), ToTensor()]})
        loader.explain()
        for images, boxes, features, captions, weights, labels in loader:
            print(images.shape, labels[:, 0].tolist(), f"weights up to {weights.max():.2f}")
            print("  boxes of the last:", JSONField.unpack(boxes)[-1])
            print("  caption of the last:", bytes(captions[-1].tolist()).rstrip(b"\0").decode())
            print("  lengths of the features:", np.unique(np.linalg.norm(features.numpy(), axis=1).round(5)))


if __name__ == "__main__":
    main()
