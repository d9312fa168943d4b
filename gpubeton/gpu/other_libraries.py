"""Other libraries as decode backends: DECODERS has the names that `decoder=` takes besides nvJPEG."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gpubeton.errors import DeviceError, LibraryError, OptionError
from gpubeton.fields.jpeg_markers import read_frame
from gpubeton.gpu.batch_state import DecodeBackends, DecodeHandle, DecodeRequest
from gpubeton.installation import install
from gpubeton.machine import count_cores
from gpubeton.plan.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpubeton.gpu.cuda import Device, Stream

_MOST_THREADS = 8


class ImageDecoder(Protocol):
    """Decodes JPEGs into memory of the device, a list at a time; for one thread at a time."""

    @property
    def name(self) -> str:
        """Its name for `open_decoder`."""

    def decode(self, data: Sequence[memoryview], targets: Sequence[Any], stream: Stream) -> list[tuple[int, str]]:
        """Decode into uint8 targets (height, width, 3); waits; returns (index, reason) of each failed image."""


def place(images: Sequence[Any], targets: Sequence[Any]) -> list[tuple[int, str]]:
    """Copy images, or record why there is none, to their targets; return (index, reason) of the failed ones."""
    failed = []
    for index, (image, target) in enumerate(zip(images, targets, strict=True)):
        if isinstance(image, str):
            failed.append((index, image))
        elif tuple(image.shape) != tuple(target.shape):
            found = " x ".join(map(str, image.shape))
            expected = " x ".join(map(str, target.shape))
            failed.append((index, f"decoded to {found}; the file says {expected}"))
        else:
            target.copy_(image)
    return failed


def decode_apart(
    decode: Callable[[Sequence[Any]], Sequence[Any]], data: Sequence[Any], errors: tuple[type[Exception], ...]
) -> list[Any]:
    """Decode with a package that fails for a whole list if one image is bad: halve the list until it is alone."""
    try:
        return list(decode(data)) if len(data) else []
    except errors as error:
        if len(data) == 1:
            return [reason(error)]
        middle = len(data) // 2
        return decode_apart(decode, data[:middle], errors) + decode_apart(decode, data[middle:], errors)


def reason(error: Exception) -> str:
    """Format an error as one line: its class and its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class DaliDecoder:
    """A pipeline of DALI that only decodes, with the engines and its own CPU threads."""

    # One bad image ends the pipeline, which is then built again.

    name = "dali"

    def __init__(self, device: Device) -> None:
        from nvidia import dali
        from nvidia.dali import fn, types

        self._dali, self._fn, self._types = dali, fn, types
        self._number = device.number
        self._most = 1
        self._pipeline = self._build()  # here, so that a missing GPU is noticed at once

    def decode(self, data: Sequence[memoryview], targets: Sequence[Any], stream: Stream) -> list[tuple[int, str]]:
        arrays = [np.frombuffer(one, np.uint8) for one in data]
        images = decode_apart(lambda some: self._decode(some, stream), arrays, (RuntimeError, ValueError))
        failed = place(images, targets)
        stream.synchronize()
        return failed

    def _decode(self, arrays: Sequence[Any], stream: Stream) -> list[Any]:
        from torch.utils.dlpack import from_dlpack

        if self._pipeline is None or len(arrays) > self._most:
            self._most = max(self._most, len(arrays))
            self._pipeline = self._build()
        pipeline, self._pipeline = self._pipeline, None  # unusable after an error
        try:
            pipeline.feed_input("jpegs", list(arrays))
            (images,) = pipeline.run()
        except RuntimeError as error:
            # Without the traceback of the pipeline's construction.
            own = str(error).partition("encountered:")[2].partition("Current pipeline object")[0].strip()
            raise RuntimeError(own or str(error)) from error
        # The next run writes to the same memory, in another stream's order.
        found = [from_dlpack(images[index]).clone() for index in range(len(images))]
        stream.synchronize()
        self._pipeline = pipeline
        return found

    def _build(self) -> Any:
        """Build a pipeline for batches of up to `_most` images, without prefetching."""
        one_by_one = {"prefetch_queue_depth": 1, "exec_pipelined": False, "exec_async": False}
        threads = min(_MOST_THREADS, count_cores())
        pipeline = self._dali.Pipeline(batch_size=self._most, num_threads=threads, device_id=self._number, **one_by_one)
        with pipeline:
            jpegs = self._fn.external_source(name="jpegs", dtype=self._types.UINT8, ndim=1)
            # As libjpeg does: chroma is interpolated, and the image is not rotated.
            as_libjpeg = {"adjust_orientation": False, "jpeg_fancy_upsampling": True}
            images = self._fn.decoders.image(jpegs, device="mixed", output_type=self._types.RGB, **as_libjpeg)
            pipeline.set_outputs(images)
        pipeline.build()
        return pipeline


class PynvjpegDecoder:
    """The package pynvjpeg, whose module is called nvjpeg; not for training."""

    # It decodes one image at a time, holds Python's lock meanwhile and copies the pixels to the host. It crashes where
    # there is no GPU, which the device has found, and at a bad header, which is read before.

    name = "pynvjpeg"

    def __init__(self, _device: Device) -> None:
        from nvjpeg import NvJpeg

        self._decoder = NvJpeg()

    def decode(self, data: Sequence[memoryview], targets: Sequence[Any], stream: Stream) -> list[tuple[int, str]]:
        failed = place([self._decode(one) for one in data], targets)
        stream.synchronize()
        return failed

    def _decode(self, data: memoryview) -> Any:
        """Return an image in the host's memory, or why there is none."""
        import torch

        content = bytes(data)
        if read_frame(content) is None:
            return "its header cannot be read"
        try:
            image = self._decoder.decode(content)
        except ValueError as error:
            return reason(error)
        return torch.from_numpy(image).flip(2)  # its order is blue, green, red


#: By name: the class, and how its package is installed. pip cannot build pynvjpeg alone: no extra brings it.
DECODERS: dict[str, tuple[Callable[[Device], ImageDecoder], str]] = {
    "dali": (DaliDecoder, f"{install('dali')} (for CUDA 12: pip install nvidia-dali-cuda120)"),
    "pynvjpeg": (
        PynvjpegDecoder,
        "pip install --no-build-isolation pynvjpeg, where numpy, g++ and a CUDA toolkit with nvJPEG are there",
    ),
}


def open_decoder(name: str, device: Device) -> ImageDecoder:
    """Start another package's decoder on the current GPU; errors name the package to install."""
    if name not in DECODERS:
        raise OptionError(f"decoder {name!r} is not known; there are {', '.join(map(repr, DECODERS))}")
    start, how = DECODERS[name]
    try:
        return start(device)
    except (ImportError, AttributeError) as error:
        raise LibraryError(f"The decoder {name!r} cannot be used: {reason(error)}. Try: {how}.") from error
    except RuntimeError as error:
        raise DeviceError(
            f"The decoder {name!r} does not start on cuda:{device.number}: {reason(error)}. "
            "See whether nvidia-smi shows a GPU, or leave the choice of the decoder to gpubeton."
        ) from error


class LibraryBackend:
    """Another library decodes, one request at a time; done when `begin` returns."""

    def __init__(self, device: Device, decoder: ImageDecoder) -> None:
        self.most = 1 << 30  # any number
        self._device = device
        self._decoder = decoder
        self._stream = device.make_stream("library")
        self._lock = threading.Lock()

    def takes(self, request: DecodeRequest, _tables: Any, _sampling: Any) -> Any:
        """Take all images; the library returns those that it cannot decode."""
        return np.ones(len(request.address), bool)

    def begin(self, request: DecodeRequest) -> DecodeHandle:
        """Decode the images of a request."""
        data, targets = [], []
        columns = (column.tolist() for column in request)
        for address, size, target, pitch, height, width in zip(*columns, strict=True):
            data.append(np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).data)
            targets.append(self._device.view(target, (height, width, 3), (pitch, 3, 1), "uint8"))
        with self._lock, self._device.using(self._stream):
            failed = dict(self._decoder.decode(data, targets, self._stream))
            event = self._device.make_event()
            event.record(self._stream)
        return DecodeHandle(event, failed)

    def settle(self) -> None:
        self._stream.synchronize()  # wait point: library idle

    def close(self) -> None:
        """Give the stream back; the library frees its memory with its last reference."""
        self._device.recycle([self._stream])


def open_library_backends(name: str, device: Device) -> DecodeBackends:
    """Open a backend of another library, for all JPEGs that it may decode."""
    return DecodeBackends({Lane.LIBRARY: LibraryBackend(device, open_decoder(name, device))}, {Lane.LIBRARY: name})
