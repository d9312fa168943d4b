"""Decoders of other libraries: NVIDIA's DALI and the package pynvjpeg; and what such decoders share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gpubeton.errors import DeviceError
from gpubeton.fields.jpeg_markers import read_frame
from gpubeton.gpu.libraries import number_of_gpus
from gpubeton.machine import count_cores

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

    # It decodes one image at a time, holds Python's lock meanwhile and copies the pixels to the host. It does not check
    # its start or a header, and crashes without a GPU: both are checked here before it is called.

    name = "pynvjpeg"

    def __init__(self, device: Device) -> None:
        from nvjpeg import NvJpeg

        found = number_of_gpus()
        if found <= device.number:
            raise DeviceError(
                f"pynvjpeg would end the process: expected cuda:{device.number}, and CUDA finds {found} GPUs. "
                "See whether nvidia-smi shows it."
            )
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
