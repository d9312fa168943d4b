"""TorchvisionDecoder: ``torchvision.io.decode_jpeg``, which calls nvJPEG's engines where a GPU has them.

It allocates a planar tensor per image, which is copied again to be interleaved, and decodes one list at a time in a
process. Deprecated since torchvision 0.29.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubeton.gpu.decoders.placing import decode_apart, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.gpu.device import Device, Stream


class TorchvisionDecoder:
    """Decodes with torchvision.

    Parameters
    ----------
    device : Device
        The GPU.

    Attributes
    ----------
    name : str
        Which decoder it is.
    """

    name = "torchvision"

    def __init__(self, device: Device) -> None:
        from torchvision.io import ImageReadMode, decode_jpeg

        self._device = f"cuda:{device.number}"
        self._mode = ImageReadMode.RGB
        self._decode_jpeg = decode_jpeg

    def decode(self, data: Sequence[memoryview], targets: Sequence[Any], stream: Stream) -> list[tuple[int, str]]:
        # torchvision decodes on a stream of its own, and does not let it wait for the current one.
        stream.synchronize()
        images = decode_apart(self._decode, [_tensor(one) for one in data], (RuntimeError, ValueError))
        failed = place([one if isinstance(one, str) else one.permute(1, 2, 0) for one in images], targets)
        stream.synchronize()
        return failed

    def _decode(self, tensors: Sequence[Any]) -> list[Any]:
        found: list[Any] = self._decode_jpeg(list(tensors), mode=self._mode, device=self._device)
        return found


def _tensor(data: memoryview) -> Any:
    """The bytes as a tensor; a copy if torch might take offence at memory that must not be written."""
    import torch

    return torch.frombuffer(bytearray(data) if memoryview(data).readonly else data, dtype=torch.uint8)
