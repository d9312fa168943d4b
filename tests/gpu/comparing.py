"""Loaders on a GPU beside the same on the CPU."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from unittest import mock

import numpy as np
import simplejpeg
import torch

from gpubeton._gpu import entry_decoder, self_test
from gpubeton._gpu.cpu_images import CpuImages
from gpubeton.format import ImageMode
from gpubeton.format.dataset import open_dataset
from gpubeton.loader import GpuOptions, Loader
from tests.gpu_path.gpu_room import BatchedBackend
from tests.gpu_path.image_samples import StoredField, raw

#: Fields that files have beside their images.
OTHERS = ("label", "weight", "note", "info", "vector", "number")


def images_loader(path, pipeline, *, device="cuda:0", batch_size=16, custom=False, **arguments):
    """A loader of the field "image" alone."""
    names = ("routes", "raw", "images_per_call", "smooth_chroma", "resident")
    options = {name: arguments.pop(name) for name in names if name in arguments}
    others = {"number": None} if custom else {name: None for name in OTHERS if name in open_dataset(path).names}
    usual = {"num_workers": 2, "seed": 3, "drop_last": False, "gpu_options": GpuOptions(**options)}
    if custom:
        usual["custom_fields"] = {"image": StoredField}
    pipelines = {**others, "image": pipeline}
    return Loader(path, batch_size, pipelines=pipelines, device=device, **{**usual, **arguments})


def epoch(loader):
    """The images of one epoch, on the host, as one tensor; closes the loader."""
    with closing(loader):
        return torch.cat([batch[0].cpu() for batch in loader])


@contextmanager
def counted():
    """Count the images that the engines and our decoder were given, and those that the CPU made afterwards.

    Those of the self-test, which the first loader of a process makes, would be among them.
    """
    counts = {}

    def counting(who, function, count):
        def call(*arguments, **named):
            counts[who] = counts.get(who, 0) + count(*arguments, **named)
            return function(*arguments, **named)

        return call

    begin = counting("engines", BatchedBackend.begin, lambda _, request: len(request.address))
    launch = counting("entries", entry_decoder.launch_jpegs, lambda *_, count, **_others: count)
    with (
        mock.patch.dict(os.environ, {self_test.VARIABLE: "0"}),
        mock.patch.object(BatchedBackend, "begin", begin),
        mock.patch.object(entry_decoder, "launch_jpegs", launch),
        mock.patch.object(CpuImages, "finish", counting("again", CpuImages.finish, lambda *_: 1)),
    ):
        yield counts


def bits(tensor):
    """The bytes of a tensor in the order of its elements."""
    return tensor.contiguous().view(torch.uint8)


def assert_equal_to_the_bit(result, expected):
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    assert torch.equal(bits(result), bits(expected))


def levels_apart(result, expected):
    """Largest and mean difference of two tensors of levels."""
    apart = (result.int() - expected.int()).abs()
    return int(apart.max()), float(apart.float().mean())


def plain_twin(images):
    """The same pixels, stored raw, by libjpeg-turbo with repeated chroma."""
    return [
        image if image.mode is ImageMode.RAW else raw(simplejpeg.decode_jpeg(image.data, fastupsample=True))
        for image in images
    ]


def means_apart(result, expected):
    """Mean difference of each image, shape (N,)."""
    return np.abs(result.numpy().astype(np.int32) - expected.numpy()).mean(axis=(1, 2, 3))
