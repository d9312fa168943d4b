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
    """What nvJPEG needs while it decodes. Made by `Handle.make_state`.

    For one thread and one batch at a time: the batch before has to be done on its stream before the next is given.
    Nothing that a call is given is copied. The compressed bytes, the memory of the images and the arrays themselves
    have to stay, unchanged, until the stream has passed the call; the state keeps the arrays of its latest call.

    Parameters
    ----------
    handle : Resource
        The handle.
    """

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
        """Get ready for batches of a size, also after one that failed. No batch may be under way.

        Parameters
        ----------
        batch : int
            Images of each batch from now on.
        output_format : OutputFormat
            What is written.
        threads : int
            Of the CPU; without effect in today's nvJPEG.

        Raises
        ------
        NvjpegError
            If nvJPEG refuses.
        """
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
        """Allocate now what batches will need, rather than while decoding; nothing happens except on HARDWARE.

        Parameters
        ----------
        batch : int
            Most images of a batch.
        width, height : int
            Largest width and largest height of an image, in pixels.
        subsampling : ChromaSubsampling
            The one that needs most memory among those that will come.
        output_format : OutputFormat
            What is written.

        Raises
        ------
        NvjpegError
            If there is not enough memory.
        """
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
        self, addresses: NDArray[np.uint64], sizes: NDArray[np.uint64], targets: NDArray[np.void], stream: int
    ) -> None:
        """Decode a batch; returns before it is done.

        On some GPUs the backend HARDWARE writes the images at once, whatever is in the stream before this call:
        wait on the host until nobody uses their memory any more.

        Parameters
        ----------
        addresses, sizes : ndarray of uint64, shape (N,)
            Where each JPEG is, in bytes. Page-locked memory of the host, or the device's for the backends named so.
        targets : ndarray of IMAGE, shape (N,)
            Where each image goes on the device. Room for the JPEG's own height and width is nobody's business but
            the caller's: nvJPEG writes as many pixels as the JPEG says.
        stream : int
            The ``cudaStream_t``.

        Raises
        ------
        OptionError
            If the arrays are not what nvJPEG would take them for.
        NvjpegError
            If nvJPEG refuses one of the images or something else went wrong. Nothing is known of any image then, and
            the state has to be initialised again.
        """
        self._decode_batched("nvjpegDecodeBatched", addresses, sizes, targets, (), stream)

    def decode_batched_ex(
        self,
        addresses: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        targets: NDArray[np.void],
        params: Sequence[DecodeParams],
        stream: int,
    ) -> None:
        """Decode a batch with wishes for each image; the backends HARDWARE and LOSSLESS_JPEG alone.

        Parameters
        ----------
        addresses, sizes, targets
            As for `decode_batched`.
        params : sequence of DecodeParams, length N
            The same object may stand in several places.
        stream : int
            The ``cudaStream_t``.

        Raises
        ------
        OptionError, NvjpegError
            As for `decode_batched`.
        """
        pointers = np.fromiter((one.pointer for one in params), np.uint64)
        wishes = address_of(pointers, _ADDRESS, self._batch or len(pointers), "params")
        self._decode_batched("nvjpegDecodeBatchedEx", addresses, sizes, targets, (wishes,), stream)
        self._in_use += (pointers, params)

    def decode(
        self,
        address: int,
        size: int,
        target: NDArray[np.void],
        stream: int,
        *,
        output_format: OutputFormat = OutputFormat.RGBI,
    ) -> None:
        """Decode one image, with whatever backend nvJPEG finds best; returns before it is done.

        Parameters
        ----------
        address, size : int
            Where the JPEG is in the host's memory, in bytes.
        target : ndarray of IMAGE, shape (1,)
            Where the image goes on the device.
        stream : int
            The ``cudaStream_t``.
        output_format : OutputFormat
            What is written.

        Raises
        ------
        OptionError
            If `target` is not what nvJPEG would take it for.
        NvjpegError
            If nvJPEG cannot decode it.
        """
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
