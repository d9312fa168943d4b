"""State: decodes one image, or one batch, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import NvjpegError, OptionError
from gpubeton.gpu.nvjpeg.c_types import IMAGE, ChromaSubsampling, OutputFormat
from gpubeton.gpu.nvjpeg.checked_calls import Resource, address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.gpu.nvjpeg.stepwise import DecodeParams

_ADDRESS = np.dtype(np.uint64)


class State(Resource):
    """A state of nvJPEG, which decodes one image or one batch. Made by `Handle.make_state`."""

    # For one thread and one batch at a time: the stream has to finish a batch before the next call. No argument is
    # copied: compressed bytes, image memory and arrays have to stay unchanged until the stream has passed the call. The
    # state keeps the arrays of its latest call.

    def __init__(self, handle: Resource) -> None:
        super().__init__(handle.calls, "nvjpegJpegStateCreate", "nvjpegJpegStateDestroy", handle.pointer, parent=handle)
        self._handle = handle
        self._batch = 0
        self._in_use: tuple[Any, ...] = ()

    @property
    def batch(self) -> int:
        """Images of the batches that it was initialised for; 0 if it has to be initialised first."""
        return self._batch

    def initialise(self, batch: int, *, output_format: OutputFormat = OutputFormat.RGBI, threads: int = 1) -> None:
        """Prepare for batches of a size, also after a failed batch. No batch may be under way."""
        self._batch = 0
        self.calls("nvjpegDecodeBatchedInitialize", self._handle.pointer, self.pointer, batch, threads, output_format)
        self._batch = batch

    def preallocate(
        self,
        batch: int,
        width: int,
        height: int,
        *,
        subsampling: ChromaSubsampling = ChromaSubsampling.CSS_444,
        output_format: OutputFormat = OutputFormat.RGBI,
    ) -> None:
        """Allocate the memory of batches now, and not while decoding; only HARDWARE does anything."""
        self.calls(
            "nvjpegDecodeBatchedPreAllocate",
            self._handle.pointer,
            self.pointer,
            batch,
            width,
            height,
            subsampling,
            output_format,
        )

    def decode_batched(
        self,
        addresses: NDArray[np.uint64],  # (N,)
        sizes: NDArray[np.uint64],  # (N,)
        targets: NDArray[np.void],  # (N,) IMAGE
        stream: int,
    ) -> None:
        """Decode a batch; returns before it is done."""
        # On some GPUs the backend HARDWARE writes the images at once, before earlier work of the stream: the host has
        # to wait until their memory is not used.
        self._decode_batched("nvjpegDecodeBatched", addresses, sizes, targets, (), stream)

    def decode_batched_ex(
        self,
        addresses: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        targets: NDArray[np.void],
        params: Sequence[DecodeParams],
        stream: int,
    ) -> None:
        """Decode a batch with parameters for each image; only HARDWARE and LOSSLESS_JPEG."""
        pointers = np.fromiter((one.pointer for one in params), np.uint64)
        wishes = address_of(pointers, _ADDRESS, self._batch or len(pointers), "params")
        self._decode_batched("nvjpegDecodeBatchedEx", addresses, sizes, targets, (wishes,), stream)
        self._in_use += (pointers, params)

    def decode(
        self,
        address: int,
        size: int,
        target: NDArray[np.void],  # (1,) IMAGE
        stream: int,
        *,
        output_format: OutputFormat = OutputFormat.RGBI,
    ) -> None:
        """Decode one image, with the backend of nvJPEG's choice; returns before it is done."""
        written = address_of(target, IMAGE, 1, "target")
        self._in_use = (target,)
        self.calls("nvjpegDecode", self._handle.pointer, self.pointer, address, size, output_format, written, stream)

    def _decode_batched(
        self,
        function: str,
        addresses: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        targets: NDArray[np.void],
        params: tuple[int, ...],
        stream: int,
    ) -> None:
        count = self._batch
        if not count:
            raise NvjpegError(
                f"{function}: the state is not initialised for batches, and nvJPEG would crash. Call initialise first, "
                "also after a batch that failed",
                function,
            )
        arguments = (
            address_of(addresses, _ADDRESS, count, "addresses"),
            address_of(sizes, _ADDRESS, count, "sizes"),
            address_of(targets, IMAGE, count, "targets"),
            *params,
        )
        if not (addresses.all() and sizes.all()):
            empty = int(np.flatnonzero((addresses == 0) | (sizes == 0))[0])
            raise OptionError(
                f"image {empty} of the batch has no bytes (address {addresses[empty]}, size {sizes[empty]}); "
                "leave it out"
            )
        self._in_use = (addresses, sizes, targets)
        self._batch = 0
        self.calls(function, self._handle.pointer, self.pointer, *arguments, stream)
        self._batch = count
