"""Other libraries as decode backends: DECODERS has the names that `decoder=` takes besides nvJPEG."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import DeviceError, LibraryError, OptionError
from gpubeton.gpu.decode_backend import DecodeBackends, DecodeHandle, DecodeRequest
from gpubeton.gpu.other_decoders import DaliDecoder, PynvjpegDecoder, reason
from gpubeton.plan.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton.gpu.cuda import Device
    from gpubeton.gpu.other_decoders import ImageDecoder

#: By name (also of the extra and of the module): the class, and a remark on installing it.
DECODERS: dict[str, tuple[Callable[[Device], ImageDecoder], str]] = {
    "dali": (DaliDecoder, " (for CUDA 12: pip install nvidia-dali-cuda120)"),
    "pynvjpeg": (PynvjpegDecoder, " --no-build-isolation, where numpy, g++ and a CUDA toolkit with nvJPEG are there"),
}


def open_decoder(name: str, device: Device) -> ImageDecoder:
    """Start another package's decoder on the current GPU; errors name the package to install."""
    if name not in DECODERS:
        raise OptionError(f"decoder {name!r} is not known; there are {', '.join(map(repr, DECODERS))}")
    start, remark = DECODERS[name]
    try:
        return start(device)
    except (ImportError, AttributeError) as error:
        raise LibraryError(
            f"The decoder {name!r} cannot be used: {reason(error)}. Try: pip install 'gpubeton[{name}]'{remark}."
        ) from error
    except RuntimeError as error:
        if isinstance(error, DeviceError):
            raise
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
        columns = (column.tolist() for column in request[:-1])
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
