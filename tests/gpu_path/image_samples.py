"""A file with an image of every kind, and its twin with the same pixels stored raw."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.jpeg import decode_rgb
from gpubeton.format import ImageMode
from gpubeton.loader import GpuOptions, Loader
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg
from tests.small_files import write


class Stored(NamedTuple):
    """An image as stored in the file; `height` and `width` are those of the metadata."""

    data: bytes
    height: int
    width: int
    mode: ImageMode

    @property
    def rgb(self):
        """The pixels that every decoder has to find."""
        if self.mode is ImageMode.RAW:
            return np.frombuffer(self.data, np.uint8).reshape(self.height, self.width, 3)
        return decode_rgb(self.data)


def raw(rgb):
    return Stored(np.ascontiguousarray(rgb).tobytes(), *rgb.shape[:2], ImageMode.RAW)


def stored(data, size=None):
    """A JPEG; the metadata have `size`, or the true size."""
    return Stored(data, *(size or decode_rgb(data).shape[:2]), ImageMode.JPG)


class StoredField(RGBImageField):
    """Writes images as they are given, also such as no honest writer would."""

    def encode(self, destination, value, malloc):
        destination["mode"], destination["height"], destination["width"] = value.mode, value.height, value.width
        destination["data_ptr"], region = malloc(len(value.data))
        region[:] = np.frombuffer(value.data, np.uint8)


class Samples:
    """Some fields of stored images, and a number for each sample."""

    def __init__(self, *fields):
        self.fields = fields

    def __len__(self):
        return len(self.fields[0])

    def __getitem__(self, number):
        return (*(field[number] for field in self.fields), number)


def write_images(path, *fields):
    """A file with the images of one field, or two, and the field "number"."""
    images = {name: StoredField() for name, _ in zip(("image", "second"), fields, strict=False)}
    return write(path, {**images, "number": IntField()}, Samples(*fields))


#: What the engines take.
BASELINE = [
    *(stored(jpeg(photo(33 + 9 * i, 61 - 7 * i, i), sampling=name)) for i, name in enumerate(SAMPLINGS)),
    *(stored(jpeg(noise(height, width), sampling="4:4:4")) for height, width in ((1, 1), (1, 37), (41, 1), (3, 2))),
    stored(jpeg(photo(16, 17, 5))),
    stored(pillow_jpeg(photo(40, 50, 6), optimize=True, restart_marker_blocks=2)),
    stored(jpeg(photo(90, 70, 7), quality=35)),
]
#: What the CPU takes, and not the engines.
ELABORATE = [
    stored(pillow_jpeg(photo(45, 38, 8), progressive=True)),
    stored(pillow_jpeg(photo(22, 31, 9), "L", progressive=True)),
    stored(jpeg(photo(29, 52, 10), sampling="4:1:1")),
]
#: What only the CPU takes.
FOREIGN = [
    stored(pillow_jpeg(photo(36, 25, 11), "CMYK")),
    stored(pillow_jpeg(photo(27, 30, 12), keep_rgb=True)),
]
RAW = [
    raw(noise(height, width, seed=height))
    for height, width in ((1, 1), (1, 50), (60, 1), (7, 5), (30, 10), (64, 48), (37, 53))
]
#: All of them, mixed as a file in "smart" mode has them.
IMAGE_SAMPLES = [
    sample for four in zip(BASELINE, ELABORATE * 4, RAW + RAW[:5], FOREIGN * 6, strict=True) for sample in four
]

NUM_DECODED = 12
"""Images of the sample_file that the engines decode."""


def twin(images):
    """The same pixels, stored raw: what the CPU makes of them is what a GPU has to make of the images, bit for bit."""
    return [raw(image.rgb) for image in images]


def gpu_loader(path, image, *, device="cuda:0", batch_size=8, raw="auto", more=None, **arguments):
    """A loader of the images and their numbers on a GPU, or with ``device="cpu"`` on the CPU."""
    names = ["routes", "images_per_call", "smooth_chroma", "resident"]
    # The engines take what our decoder would, unless a test asks for that; `test_entry_decoder.py` does.
    chosen = {
        "routes": ("entries",) if arguments.get("decoder") == "entries" else ("hardware",),
        "resident": False,
        **{name: arguments.pop(name) for name in names if name in arguments},
    }
    options = GpuOptions(raw=raw, **chosen)
    pipelines = {"image": image, **(more or {})}
    custom = {name: StoredField for name in ("image", "second") if name in pipelines}
    usual = {"num_workers": 1, "drop_last": False, "seed": 3, "gpu_options": options, "custom_fields": custom}
    return Loader(path, batch_size, pipelines=pipelines, device=device, **{**usual, **arguments})


def epochs(loader, count=1):
    """All batches of some epochs, and the loader closed."""
    batches = [batch for _ in range(count) for batch in loader]
    loader.close()
    return batches


def assert_same(result, expected):
    """Batches are equal to the bit, element types and strides included."""
    assert len(result) == len(expected)
    for ours, theirs in zip(result, expected, strict=True):
        assert len(ours) == len(theirs)
        for our, other in zip(ours, theirs, strict=True):
            assert (type(our), our.dtype, our.shape) == (type(other), other.dtype, other.shape)
            if isinstance(our, torch.Tensor):
                assert our.stride() == other.stride()
            assert np.array_equal(bytes_of(our), bytes_of(other))


def bytes_of(values):
    """The elements of a tensor or an array, as bytes."""
    if isinstance(values, torch.Tensor):
        return values.reshape(-1).contiguous().view(torch.uint8).numpy()
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
