"""PynvjpegDecoder: the package pynvjpeg, whose module is called nvjpeg; not for training.

It decodes one image at a time, holds Python's lock meanwhile and copies the pixels to the host. It does not check its
start or a header, and crashes without a GPU: both are checked here before it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubeton.errors import DeviceError
from gpubeton.fields.jpeg_markers import read_frame
from gpubeton.gpu.image_decoder import place, reason
from gpubeton.gpu.libraries import number_of_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.gpu.device import Device, Stream


class PynvjpegDecoder:
    """Decodes with pynvjpeg."""

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
