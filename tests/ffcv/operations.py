"""The library's operations as functions of the package: as users of FFCV make them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from tests.ffcv.package import HEIGHT, WIDTH

MEAN, STD = np.array([120.0, 110.0, 100.0]), np.array([60.0, 55.0, 50.0])
MASK = (np.arange(HEIGHT * WIDTH * 3).reshape(HEIGHT, WIDTH, 3) % 256).astype(np.float64)
ALPHA = np.linspace(0, 1, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH)


def flip(ffcv):
    return ffcv.RandomHorizontalFlip(1.0)


def no_flip(ffcv):
    return ffcv.RandomHorizontalFlip(0.0)


def wide_cutout(ffcv):
    return ffcv.Cutout(WIDTH, fill=(9, 8, 7))


def fraction_cutout(ffcv):
    return ffcv.Cutout(WIDTH, fill=(1.5, 125.9, 3.2))


def flip_some(ffcv):
    return ffcv.RandomHorizontalFlip(0.5)


def translate(ffcv):
    return ffcv.RandomTranslate(3, fill=(1, 2, 3))


def no_translate(ffcv):
    return ffcv.RandomTranslate(0, fill=(1, 2, 3))


def poison(ffcv):
    return ffcv.Poison(MASK, ALPHA, [2, 5, 11], clamp=(10, 240))


def normalize(dtype):
    return lambda ffcv: ffcv.NormalizeImage(MEAN, STD, dtype)


def levels(dtype):
    """Levels as floats: their values do not change."""
    return lambda ffcv: ffcv.NormalizeImage(np.zeros(3), np.ones(3), dtype)


def crop(scale, ratio, size):
    return lambda ffcv: ffcv.RandomResizedCrop(scale, ratio, size)


def to_nchw(ffcv):
    return ffcv.ToTorchImage(channels_last=False)


def to_int16(ffcv):
    return ffcv.ToTorchImage(convert_back_int16=False)


def convert(dtype):
    return lambda ffcv: ffcv.Convert(dtype)


def view(dtype):
    return lambda ffcv: ffcv.View(dtype)


def to_cpu(ffcv):
    return ffcv.ToDevice(torch.device("cpu"))


def relabel(ffcv):
    return ffcv.ReplaceLabel([0, 4, 12], 77)


def squeeze(*dims):
    return lambda ffcv: ffcv.Squeeze(*dims)


def module(module):
    return lambda _: module


class Halves(torch.nn.Module):
    def forward(self, images):
        return images.float() / 2


def seeded(seed):
    """Seeds the generator that compiled code has, so that it is known what the next operation draws."""

    def make(ffcv):
        class Seeds(ffcv.Operation):
            def generate_code(self):
                def code(batch, _):
                    np.random.seed(seed)  # noqa: NPY002  (compiled code has no other)
                    return batch

                return code

            def declare_state_and_memory(self, previous_state):
                return replace(previous_state, jit_mode=True), None

        return Seeds()

    return make


def jitter(kind, magnitude, probability):
    return lambda ffcv: getattr(ffcv, kind)(magnitude, probability)
