"""NvimgcodecDecoder: NVIDIA's nvImageCodec, which shares a batch between the engines, the GPU and the CPU.

It makes several objects per image and decodes into memory of its own, from which the pixels are copied again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.gpu.decoders.placing import place, reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.gpu.device import Device, Stream


class NvimgcodecDecoder:
    """Decodes with nvImageCodec.

    Parameters
    ----------
    device : Device
        The GPU.

    Attributes
    ----------
    name : str
        Which decoder it is.
    """

    name = "nvimgcodec"

    def __init__(self, device: Device) -> None:
        from nvidia import nvimgcodec

        self._nvimgcodec = nvimgcodec
        # As libjpeg does: chroma is interpolated, and nobody turns the image.
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
        """Give what nvImageCodec makes of the bytes, or why it refuses them."""
        try:
            return self._nvimgcodec.CodeStream(np.frombuffer(data, np.uint8))
        except RuntimeError as error:
            return reason(error)
