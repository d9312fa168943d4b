"""Encoded: all JPEGs of a file in memory, for loops that do nothing but decode."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubeton.format.index import Index
from gpubeton.gpu.device import Device
from gpubeton.gpu.memory_layout import lay_out_images

__all__ = ["Encoded", "Piece", "load_encoded"]

# What nvJPEG reads begins at a multiple of this.
_ALIGNMENT = 16
# Images that are brought into order together, as those of one batch are.
_WINDOW = 256


class Piece(NamedTuple):
    """The images of one call.

    Parameters
    ----------
    address, size : ndarray of uint64, shape (M,)
        Where each JPEG is, and its bytes.
    offset : ndarray of uint64, shape (M,)
        Where its pixels go, from the start of an arena.
    pitch : ndarray of uint64, shape (M,)
        Bytes from one row of pixels to the next.
    height, width : ndarray of int32, shape (M,)
        Its size in pixels.
    nbytes : int
        Bytes of the arena.
    """

    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    offset: NDArray[np.uint64]
    pitch: NDArray[np.uint64]
    height: NDArray[np.int32]
    width: NDArray[np.int32]
    nbytes: int


class Encoded:
    """All JPEGs of a file in one piece of memory.

    Parameters
    ----------
    memory : object
        Holds them.
    address, size : ndarray of uint64, shape (N,)
        Where each is, and its bytes.
    height, width : ndarray of int32, shape (N,)
        Its size in pixels.
    """

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

    def content(self, number: int) -> bytes:
        """Give the bytes of one image."""
        start = int(self.address[number]) - self._memory.ctypes.data
        return bytes(self._memory[start : start + int(self.size[number])])

    def piece(self, rows: NDArray[np.intp]) -> Piece:
        """Give some images as one call takes them."""
        layout = lay_out_images(self.height[rows], self.width[rows])
        return Piece(
            self.address[rows], self.size[rows], layout.offset, layout.pitch.astype(np.uint64),
            self.height[rows], self.width[rows], layout.nbytes,
        )  # fmt: skip

    def pieces(self, per_call: int, seed: int = 0) -> list[Piece]:
        """Cut all images into calls of the same number.

        Parameters
        ----------
        per_call : int
            Images of a call.
        seed : int
            Of their order: random, in windows within which the largest files come first, as a loader's batches are.

        Returns
        -------
        list of Piece
            At least one; images that are too few for a call are left out, and if there are fewer than a call takes,
            they come again.
        """
        order = np.random.default_rng(seed).permutation(max(len(self), per_call)) % len(self)
        windows = [order[start : start + _WINDOW] for start in range(0, len(order), _WINDOW)]
        order = np.concatenate([own[np.argsort(-self.size[own].astype(np.int64))] for own in windows])
        return [self.piece(order[start : start + per_call]) for start in range(0, len(order) - per_call + 1, per_call)]


def load_encoded(device: Device, beton: str, *, is_pinned: bool = True, limit: int = 1 << 30) -> Encoded:
    """Bring the images of a file into memory.

    Parameters
    ----------
    device : Device
        For whom.
    beton : str
        A file with JPEG-stored images in the field ``image``.
    is_pinned : bool
        Whether the memory is page-locked.
    limit : int
        Images after the first so many are left out.

    Returns
    -------
    Encoded
        The images.
    """
    index = Index.open(beton)
    regions, column = index.regions("image"), index.column("image")
    size = regions.size[:limit].astype(np.uint64)
    room = -(-size.astype(np.int64) // _ALIGNMENT) * _ALIGNMENT
    place = np.cumsum(room) - room
    nbytes = int(room.sum())
    memory = device.allocate_pinned(nbytes).array if is_pinned else np.empty(nbytes, np.uint8)
    content = np.memmap(beton, np.uint8, "r")
    for start, offset, count in zip(place.tolist(), regions.offset.tolist(), size.tolist(), strict=False):
        memory[start : start + count] = content[offset : offset + count]
    return Encoded(
        memory,
        (place + memory.ctypes.data).astype(np.uint64),
        size,
        column["height"][:limit].astype(np.int32),
        column["width"][:limit].astype(np.int32),
    )
