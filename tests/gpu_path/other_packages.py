"""Stand-ins for packages that decode on a GPU: what they take, give and raise; the pixels are Pillow's.

What they do was read in torchvision 0.29 and pynvjpeg 0.0.13, and tried with nvImageCodec 0.9 and DALI 2.4.
"""

from __future__ import annotations

import io
from enum import Enum
from types import ModuleType, SimpleNamespace

import numpy as np
import torch
from PIL import Image

from gpubeton.fields.jpeg_markers import read_frame

NUMBER = 3  # of the GPU that they are to use


def pixels(content):
    """What Pillow makes of a JPEG; raises OSError if it is cut short."""
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB")).copy()


def module(name, **members):
    made = ModuleType(name)
    vars(made).update(members)
    return made


# --- torchvision


class ImageReadMode(Enum):
    UNCHANGED = 0
    RGB = 3


def decode_jpeg(input, mode=ImageReadMode.UNCHANGED, device="cpu", apply_exif_orientation=False):
    """Gives (channels, height, width); nothing at all if one of the list is bad."""
    assert isinstance(input, list)
    assert (mode, str(torch.device(device)), apply_exif_orientation) == (ImageReadMode.RGB, f"cuda:{NUMBER}", False)
    if not input:
        raise ValueError("Input list must contain at least one element")
    for one in input:
        assert (one.device.type, one.dtype, one.dim()) == ("cpu", torch.uint8, 1)
    try:
        return [torch.from_numpy(pixels(bytes(one.numpy()))).permute(2, 0, 1).contiguous() for one in input]
    except OSError as error:
        raise RuntimeError(f"Error while decoding JPEG images: {error}") from error


def torchvision():
    image = module("torchvision.io", decode_jpeg=decode_jpeg, ImageReadMode=ImageReadMode)
    return {"torchvision": module("torchvision", io=image), "torchvision.io": image}


# --- nvImageCodec


class CodeStream:
    def __init__(self, array):
        assert array.dtype == np.uint8
        self.content = array.tobytes()
        if read_frame(self.content) is None:
            raise RuntimeError("Failed to get image info")


class DecodeParams:
    def __init__(self, apply_exif_orientation=True, color_spec=None, allow_any_depth=False):
        self.wishes = (apply_exif_orientation, color_spec, allow_any_depth)


class Decoder:
    def __init__(self, device_id=-1, max_num_cpu_threads=0, backends=None, options=""):
        assert device_id == NUMBER
        assert options == ":fancy_upsampling=1"

    def decode(self, srcs, *, images=None, params=None, cuda_stream=0):
        assert isinstance(srcs, list)
        assert all(isinstance(one, CodeStream) for one in srcs)
        assert params.wishes == (False, "SRGB", False)
        assert cuda_stream == Stream.handle
        return [self._decode(one) for one in srcs]

    def _decode(self, stream):
        try:
            return torch.from_numpy(pixels(stream.content))
        except OSError:
            return None


def nvimgcodec():
    codec = module(
        "nvidia.nvimgcodec",
        CodeStream=CodeStream,
        DecodeParams=DecodeParams,
        Decoder=Decoder,
        ColorSpec=SimpleNamespace(SRGB="SRGB"),
    )
    return {"nvidia": module("nvidia", nvimgcodec=codec), "nvidia.nvimgcodec": codec}


# --- DALI


class Pipeline:
    """One of DALI's; it holds a graph of one operator, and its outputs lie in memory that the next run writes."""

    built = 0

    def __init__(self, batch_size=None, num_threads=None, device_id=None, **options):
        assert options == {"prefetch_queue_depth": 1, "exec_pipelined": False, "exec_async": False}
        assert num_threads >= 1
        assert device_id == NUMBER
        self.batch_size = batch_size
        self.memory = np.zeros((batch_size, 1 << 16), np.uint8)
        self.is_valid = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def set_outputs(self, output):
        assert output == ("image", "jpegs")

    def build(self):
        type(self).built += 1

    def feed_input(self, name, data):
        assert name == "jpegs"
        if len(data) > self.batch_size:
            raise RuntimeError(f"Expected batch_size <= {self.batch_size}, actual: {len(data)}")
        self.fed = [array.tobytes() for array in data]

    def run(self):
        if not self.is_valid:
            raise RuntimeError("Unknown error\nCurrent pipeline object is no longer valid.")
        images = []
        for place, content in enumerate(self.fed):
            try:
                image = pixels(content)
            except OSError as error:
                self.is_valid = False
                raise RuntimeError(
                    "Critical error in pipeline:\nError in MIXED operator `nvidia.dali.fn.decoders.image`,\n\n"
                    f"encountered:\n\nFailed to decode sample #{place} : \nCurrent pipeline object is no longer valid."
                ) from error
            memory = self.memory[place, : image.size]
            memory[:] = image.ravel()
            images.append(torch.from_numpy(memory.reshape(image.shape)))
        return (images,)


def dali():
    def external_source(name, dtype, ndim):
        assert (dtype, ndim) == ("UINT8", 1)
        return name

    def image(input, device, output_type, adjust_orientation, jpeg_fancy_upsampling):
        assert (device, output_type, adjust_orientation, jpeg_fancy_upsampling) == ("mixed", "RGB", False, True)
        return "image", input

    fn = module("nvidia.dali.fn", external_source=external_source, decoders=SimpleNamespace(image=image))
    types = module("nvidia.dali.types", UINT8="UINT8", RGB="RGB")
    package = module("nvidia.dali", Pipeline=Pipeline, fn=fn, types=types)
    return {
        "nvidia": module("nvidia", dali=package),
        "nvidia.dali": package,
        "nvidia.dali.fn": fn,
        "nvidia.dali.types": types,
    }


# --- pynvjpeg


class NvJpeg:
    """Blue first, in the host's memory."""

    def decode(self, content):
        assert read_frame(content) is not None, "the real one would crash"
        try:
            return np.ascontiguousarray(pixels(content)[:, :, ::-1])
        except OSError as error:
            raise ValueError("NvJpeg Decoder Error, Code: 10") from error


def pynvjpeg():
    return {"nvjpeg": module("nvjpeg", NvJpeg=NvJpeg)}


# --- what they run on


class Stream:
    handle = 0x77

    def __init__(self):
        self.waits = 0

    def synchronize(self):
        self.waits += 1


PACKAGES = {"dali": dali, "nvimgcodec": nvimgcodec, "pynvjpeg": pynvjpeg, "torchvision": torchvision}
