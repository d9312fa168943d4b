"""DaliDecoder: a pipeline of NVIDIA's DALI that only decodes.

DALI shares a batch between the engines and its CPU threads; one bad image ends the pipeline, which is then built again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.gpu.image_decoder import decode_apart, place
from gpubeton.machine import count_cores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.gpu.device import Device, Stream

_MOST_THREADS = 8


class DaliDecoder:
    """Decodes with DALI."""

    name = "dali"

    def __init__(self, device: Device) -> None:
        from nvidia import dali
        from nvidia.dali import fn, types

        self._dali, self._fn, self._types = dali, fn, types
        self._number = device.number
        self._most = 1
        self._pipeline = self._build(self._most)  # here, so that a missing GPU is noticed at once

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
            self._pipeline = self._build(self._most)
        pipeline, self._pipeline = self._pipeline, None  # unusable after an error
        try:
            pipeline.feed_input("jpegs", list(arrays))
            (images,) = pipeline.run()
        except RuntimeError as error:
            raise RuntimeError(_reason_in(str(error))) from error
        # The next run writes to the same memory, in another stream's order.
        found = [from_dlpack(images[index]).clone() for index in range(len(images))]
        stream.synchronize()
        self._pipeline = pipeline
        return found

    def _build(self, most: int) -> Any:
        """Build a pipeline for batches of up to so many images, without prefetching."""
        pipeline = self._dali.Pipeline(
            batch_size=most,
            num_threads=min(_MOST_THREADS, count_cores()),
            device_id=self._number,
            prefetch_queue_depth=1,
            exec_pipelined=False,
            exec_async=False,
        )
        with pipeline:
            jpegs = self._fn.external_source(name="jpegs", dtype=self._types.UINT8, ndim=1)
            # As libjpeg does: chroma is interpolated, and the image is not rotated.
            images = self._fn.decoders.image(
                jpegs,
                device="mixed",
                output_type=self._types.RGB,
                adjust_orientation=False,
                jpeg_fancy_upsampling=True,
            )
            pipeline.set_outputs(images)
        pipeline.build()
        return pipeline


def _reason_in(message: str) -> str:
    """Cut the traceback of the pipeline's construction out of a message."""
    return message.partition("encountered:")[2].partition("Current pipeline object")[0].strip() or message
