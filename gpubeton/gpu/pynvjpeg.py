"""PynvjpegDecoder: the package pynvjpeg, whose module is called nvjpeg."""

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
    """Decodes with pynvjpeg.

    Parameters
    ----------
    device : Device
        The GPU.

    Attributes
    ----------
    name : str
        Which decoder it is.

    Raises
    ------
    DeviceError
        If there is no GPU.
    """

    name = "pynvjpeg"

    def __init__(self, device: Device) -> None:
        from nvjpeg import NvJpeg

        found = number_of_gpus()
        if found <= device.number:
            raise DeviceError(
                f"pynvjpeg would end the process: it is to run on cuda:{device.number}, and CUDA finds {found} GPUs. "
                "See whether nvidia-smi shows it."
            )
        self._decoder = NvJpeg()

    def decode(self, data: Sequence[memoryview], targets: Sequence[Any], stream: Stream) -> list[tuple[int, str]]:
        failed = place([self._decode(one) for one in data], targets)
        stream.synchronize()
        return failed

    def _decode(self, data: memoryview) -> Any:
        """Give an image in the host's memory, or why there is none."""
        import torch

        content = bytes(data)
        if read_frame(content) is None:
            return "its header cannot be read"
        try:
            image = self._decoder.decode(content)
        except ValueError as error:
            return reason(error)
        return torch.from_numpy(image).flip(2)  # it gives blue first
