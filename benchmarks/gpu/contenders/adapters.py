"""Two more libraries with the interface of `gpubeton.gpu.other_libraries`, for comparisons.

torchvision allocates a planar tensor for each image, which a second copy interleaves, and decodes one list at a time in
a process; its decoder is deprecated since 0.29. nvImageCodec makes several objects for each image and decodes into
memory that it allocates, from which the pixels are copied again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpubeton.gpu.cuda import Device, Stream
from gpubeton.gpu.other_libraries import decode_apart, place, reason


class TorchvisionDecoder:
    """Decodes with ``torchvision.io.decode_jpeg``, which calls nvJPEG's engines if the GPU has them."""

    name = "torchvision"

    def __init__(self, device: Device) -> None:
        from torchvision.io import ImageReadMode, decode_jpeg

        self._device = f"cuda:{device.number}"
        self._mode = ImageReadMode.RGB
        self._decode_jpeg = decode_jpeg

    def decode(self, data: Sequence[memoryview], targets: Sequence[Any], stream: Stream) -> list[tuple[int, str]]:
        # torchvision decodes on its own stream, which does not wait for the current one.
        stream.synchronize()
        images = decode_apart(self._decode, [_tensor(one) for one in data], (RuntimeError, ValueError))
        failed = place([one if isinstance(one, str) else one.permute(1, 2, 0) for one in images], targets)
        stream.synchronize()
        return failed

    def _decode(self, tensors: Sequence[Any]) -> list[Any]:
        found: list[Any] = self._decode_jpeg(list(tensors), mode=self._mode, device=self._device)
        return found


class NvimgcodecDecoder:
    """Decodes with nvImageCodec, which shares a batch between the engines, the GPU and the CPU."""

    name = "nvimgcodec"

    def __init__(self, device: Device) -> None:
        from nvidia import nvimgcodec

        self._nvimgcodec = nvimgcodec
        # As libjpeg: interpolate chroma, ignore the orientation in EXIF.
        self._params = nvimgcodec.DecodeParams(
            apply_exif_orientation=False, color_spec=nvimgcodec.ColorSpec.SRGB, allow_any_depth=False
        )
        self._decoder = nvimgcodec.Decoder(device_id=device.number, options=":fancy_upsampling=1")

    def decode(self, data: Sequence[memoryview], targets: Sequence[Any], stream: Stream) -> list[tuple[int, str]]:
        from torch.utils.dlpack import from_dlpack

        streams = [self._parse(one) for one in data]
        good = [one for one in streams if not isinstance(one, str)]
        decoded = iter(self._decoder.decode(good, params=self._params, cuda_stream=stream.handle) if good else [])
        images: list[Any] = []
        for one in streams:
            image = one if isinstance(one, str) else next(decoded)
            if image is None:
                image = "nvImageCodec could not decode it; its reason is on the terminal"
            images.append(image if isinstance(image, str) else from_dlpack(image))
        failed = place(images, targets)
        stream.synchronize()
        return failed

    def _parse(self, data: memoryview) -> Any:
        """Return the parsed stream, or why nvImageCodec refuses the bytes."""
        try:
            return self._nvimgcodec.CodeStream(np.frombuffer(data, np.uint8))
        except RuntimeError as error:
            return reason(error)


#: By the name of the library.
ADAPTERS = {"nvimgcodec": NvimgcodecDecoder, "torchvision": TorchvisionDecoder}


def _tensor(data: memoryview) -> Any:
    """Return the bytes as a tensor; read-only memory is copied, because torch warns of it."""
    import torch

    return torch.frombuffer(bytearray(data) if memoryview(data).readonly else data, dtype=torch.uint8)
