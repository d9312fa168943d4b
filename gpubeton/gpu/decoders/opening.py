"""Opening: from a name to a decoder, or to what has to be installed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from gpubeton.errors import DeviceError, LibraryError, OptionError
from gpubeton.gpu.decoders.placing import reason

if TYPE_CHECKING:
    from gpubeton.gpu.decoders.image_decoder import ImageDecoder
    from gpubeton.gpu.device import Device

#: Name (which is also the extra's and the module's), class, and what the extra does not say.
DECODERS = {
    "dali": ("DaliDecoder", " (for CUDA 12: pip install nvidia-dali-cuda120)"),
    "nvimgcodec": ("NvimgcodecDecoder", " (for CUDA 12: pip install 'nvidia-nvimgcodec-cu12[nvjpeg]')"),
    "pynvjpeg": (
        "PynvjpegDecoder",
        " --no-build-isolation, where numpy, g++ and a CUDA toolkit with nvJPEG are installed",
    ),
    "torchvision": ("TorchvisionDecoder", ""),
}


def open_decoder(name: str, device: Device) -> ImageDecoder:
    """Start another package's decoder.

    Parameters
    ----------
    name : str
        "dali", "nvimgcodec", "pynvjpeg" or "torchvision".
    device : Device
        The GPU, current in this thread.

    Returns
    -------
    ImageDecoder
        It.

    Raises
    ------
    OptionError
        If there is none of this name.
    LibraryError
        If its package is not installed; says how to install it.
    DeviceError
        If it does not start on this machine.
    """
    if name not in DECODERS:
        raise OptionError(f"decoder {name!r} is not known; there are {', '.join(map(repr, DECODERS))}")
    class_name, remark = DECODERS[name]
    module = importlib.import_module(f"gpubeton.gpu.decoders.{name}")
    try:
        decoder: ImageDecoder = getattr(module, class_name)(device)
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
    return decoder
