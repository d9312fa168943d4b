"""All JPEGs of a file in memory, for loops that only decode."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubeton._gpu.cuda import Device
from gpubeton._gpu.nvjpeg import IMAGE
from gpubeton._plan.arena_layout import lay_out_images
from gpubeton.format.dataset import open_dataset

__all__ = ["Encoded", "Piece", "load_encoded"]

# Alignment of each JPEG for nvJPEG, in bytes.
_ALIGNMENT = 16
# Images that are sorted together, like those of one batch.
_WINDOW = 256


class Piece(NamedTuple):
    """The images of one call."""

    address: NDArray[np.uint64]  # (M,) of each JPEG
    size: NDArray[np.uint64]  # (M,) bytes of each JPEG
    offset: NDArray[np.uint64]  # (M,) of its pixels in the arena
    pitch: NDArray[np.uint64]  # (M,) bytes per row of pixels
    height: NDArray[np.int32]  # (M,) pixels
    width: NDArray[np.int32]  # (M,) pixels
    nbytes: int  # of the arena

    def targets(self, arena: int) -> NDArray[np.void]:
        """Return where nvJPEG writes the images if the arena has this address, (M,) of IMAGE."""
        targets = np.zeros(len(self.address), IMAGE)
        targets["channel"][:, 0] = self.offset + np.uint64(arena)
        targets["pitch"][:, 0] = self.pitch
        return targets


class Encoded:
    """All JPEGs of a file in one block of memory; the arrays are (N,)."""

    def __init__(
        self,
        memory: Any,
        address: NDArray[np.uint64],
        size: NDArray[np.uint64],
        height: NDArray[np.int32],
        width: NDArray[np.int32],
    ) -> None:
        self._memory = memory
        self.address, self.size, self.height, self.width = address, size, height, width

    def __len__(self) -> int:
        return len(self.address)

    def piece(self, rows: NDArray[np.intp]) -> Piece:
        """Return some images as one call takes them."""
        layout = lay_out_images(self.height[rows], self.width[rows])
        return Piece(
            self.address[rows], self.size[rows], layout.offset, layout.pitch.astype(np.uint64),
            self.height[rows], self.width[rows], layout.nbytes,
        )  # fmt: skip

    def pieces(self, per_call: int, seed: int = 0) -> list[Piece]:
        """Divide all images into calls of `per_call` images.

        The order is random, in windows sorted by size, like the batches of a loader.
        The rest is left out; if there are too few images for one call, they are repeated.
        """
        order = np.random.default_rng(seed).permutation(max(len(self), per_call)) % len(self)
        windows = [order[start : start + _WINDOW] for start in range(0, len(order), _WINDOW)]
        order = np.concatenate([window[np.argsort(-self.size[window].astype(np.int64))] for window in windows])
        return [self.piece(order[start : start + per_call]) for start in range(0, len(order) - per_call + 1, per_call)]


def load_encoded(device: Device, beton: str) -> Encoded:
    """Load the JPEGs of the field ``image`` into page-locked memory."""
    index = open_dataset(beton)
    regions, column = index.regions("image"), index.column("image")
    size = regions.size.astype(np.uint64)
    room = -(-size.astype(np.int64) // _ALIGNMENT) * _ALIGNMENT
    place = np.cumsum(room) - room
    memory = device.allocate_pinned(int(room.sum())).array
    content = np.memmap(beton, np.uint8, "r")
    for start, offset, count in zip(place.tolist(), regions.offset.tolist(), size.tolist(), strict=True):
        memory[start : start + count] = content[offset : offset + count]
    return Encoded(
        memory,
        (place + memory.ctypes.data).astype(np.uint64),
        size,
        column["height"].astype(np.int32),
        column["width"].astype(np.int32),
    )
