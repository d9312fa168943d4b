"""A custom field with decoders: tracks of any number of points, padded to the longest when they are read.

python examples/custom_field.py
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

from gpubeton.fields import Field, IntField
from gpubeton.fields.base import ARG_TYPE
from gpubeton.libffcv import memcpy
from gpubeton.loader import Loader, OrderOption
from gpubeton.pipeline import Compiler, PipelineSpec
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.state import State
from gpubeton.transforms import Squeeze, ToTensor
from gpubeton.writer import DatasetWriter


class TrackField(Field):
    """Stores tracks: float32 arrays of shape (points, 2), with any number of points."""

    #: The entry of a sample in the file's table: the offset of its points, and their number.
    metadata_type = np.dtype([("ptr", "<u8"), ("points", "<u8")])

    def encode(self, destination: NDArray[Any], track: NDArray[np.float32], malloc: Callable[..., Any]) -> None:
        """Write one track: its points into a region of the file, and the offset of that region into the table."""
        destination["ptr"], region = malloc(track.nbytes)
        region[:] = track.reshape(-1).view(np.uint8)
        destination["points"] = len(track)

    def to_binary(self) -> np.void:
        """Return the settings to store in the file: none. There is room for 1024 bytes."""
        settings: np.void = np.zeros(1, ARG_TYPE)[0]
        return settings

    @staticmethod
    def from_binary(settings: NDArray[Any]) -> TrackField:
        """Restore the field from the result of `to_binary`."""
        return TrackField()

    def get_decoder_class(self) -> type[Operation]:
        """Return the decoder for fields without a pipeline."""
        return TrackDecoder


class TrackDecoder(Operation):
    """Reads tracks into one array: shape (longest, 2) for each, with zeros after the last point."""

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, AllocationQuery]:
        """Request memory for the longest track of the file; `self.metadata` is the file's table."""
        shape, dtype = (int(self.metadata["points"].max()), 2), np.dtype("float32")
        return replace(previous_state, jit_mode=True, shape=shape, dtype=dtype), AllocationQuery(shape, dtype)

    def generate_code(self) -> Callable[..., Any]:
        """Return the function that Numba compiles.

        The function gets the sample ids, the requested memory, the table, and the state to pass on to
        `self.memory_read`.
        """
        read, copy, rows = self.memory_read, Compiler.compile(memcpy), Compiler.get_iterator()

        def decode(
            indices: NDArray[Any], tracks: NDArray[Any], metadata: NDArray[Any], storage_state: Any
        ) -> NDArray[Any]:
            for row in rows(len(indices)):
                tracks[row] = 0
                copy(read(metadata[indices[row]]["ptr"], storage_state), tracks[row])
            return tracks

        decode.is_parallel = True  # type: ignore[attr-defined]  # several threads share its loop
        return decode


class PointCount(Operation):
    """Reads the number of points of each track from the table."""

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, AllocationQuery]:
        """Request memory for one number per sample."""
        dtype = np.dtype("int64")
        return replace(previous_state, jit_mode=True, shape=(1,), dtype=dtype), AllocationQuery((1,), dtype)

    def generate_code(self) -> Callable[..., Any]:
        """Return the function that Numba compiles."""

        def count(
            indices: NDArray[Any], counts: NDArray[Any], metadata: NDArray[Any], storage_state: Any
        ) -> NDArray[Any]:
            for row in range(len(indices)):
                counts[row, 0] = metadata[indices[row]]["points"]
            return counts

        return count


def make_track(number: int) -> NDArray[np.float32]:
    """Make a track of one to nine points."""
    rng = np.random.default_rng(number)
    return rng.normal(size=(1 + number % 9, 2)).cumsum(axis=0).astype(np.float32)


def main() -> None:
    """Write tracks, and read them: first all, then only the long ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracks", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tracks.beton"
        writer = DatasetWriter(path, {"track": TrackField(), "number": IntField()}, num_workers=1, progress=False)
        writer.from_indexed_dataset([(make_track(number), number) for number in range(options.tracks)])

        loader = Loader(
            path,
            batch_size=options.batch_size,
            order=OrderOption.RANDOM,
            seed=0,
            drop_last=False,
            custom_fields={"track": TrackField},  # the file only stores that the field is custom
            pipelines={
                # Without a pipeline: TrackDecoder and ToTensor. A second output of the same field, by another decoder:
                "points": PipelineSpec("track", decoder=PointCount(), transforms=[ToTensor(), Squeeze(1)]),
            },
        )
        for some in (loader, loader.filter("points", lambda points: points >= 8)):
            wrong = 0
            for tracks, numbers, points in some:
                for track, number, count in zip(tracks.numpy(), numbers.flatten().tolist(), points, strict=True):
                    wrong += not np.array_equal(track[:count], make_track(number)) or bool(track[count:].any())
            print(f"{len(some.indices)} tracks of {points.min()} to {points.max()} points, {wrong} of them wrong")


if __name__ == "__main__":
    main()
