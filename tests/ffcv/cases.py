"""The cases that run with FFCV and with gpubeton alike."""

from __future__ import annotations

import numpy as np
import torch

from tests.ffcv.found_cases import odd_operations, several_crops
from tests.ffcv.loader_cases import (
    branches,
    decoders_alone,
    default_pipelines,
    filtered,
    generated_crops,
    labels_and_mixup,
    orders,
    own_array_decoder,
    own_image_decoder,
    recompiled,
    several_outputs,
    sharing,
)
from tests.ffcv.operations import (
    Halves,
    convert,
    crop,
    flip,
    flip_some,
    fraction_cutout,
    jitter,
    levels,
    module,
    no_flip,
    no_translate,
    normalize,
    poison,
    relabel,
    seeded,
    squeeze,
    to_cpu,
    to_int16,
    to_nchw,
    translate,
    view,
    wide_cutout,
)
from tests.ffcv.own_operations import add, add_index, corner
from tests.ffcv.package import WIDTH, batches, loader


def image(*operations):
    """A case of one image pipeline after the decoder; operations are functions of the package."""

    def case(ffcv, path):
        results = [operation(ffcv) if callable(operation) else getattr(ffcv, operation)() for operation in operations]
        return batches(loader(ffcv, path, {"image": [ffcv.SimpleRGBImageDecoder(), *results]}))

    return case


def label(*operations):
    def case(ffcv, path):
        results = [operation(ffcv) if callable(operation) else getattr(ffcv, operation)() for operation in operations]
        return batches(loader(ffcv, path, {"label": [ffcv.IntDecoder(), *results]}))

    return case


TO_IMAGE = ("ToTensor", "ToTorchImage")

CASES = {
    "default": default_pipelines,
    "decoders": decoders_alone,
    "orders": orders,
    "filter": filtered,
    "recompile": recompiled,
    "several": several_outputs,
    "several_crops": several_crops,
    "odd_operations": odd_operations,
    "branches": branches,
    "shared": sharing(),
    "shared_plain": sharing(jit_mode=False),
    "shared_indices": sharing(with_indices=True),
    "generated_crops": generated_crops,
    "own_image_decoder": own_image_decoder,
    "own_array_decoder": own_array_decoder,
    "mixup": labels_and_mixup,
    # labels
    "labels": label("ToTensor"),
    "squeezed": label("ToTensor", "Squeeze"),
    "relabelled": label(relabel, "ToTensor", squeeze(1)),
    "added": label(add(5), "ToTensor"),
    "added_twice": label(add(5), add(6), "ToTensor", convert(torch.float32)),
    "added_parallel": label(add(5, is_parallel=True), "ToTensor"),
    "added_plainly": label("ToTensor", add(5, jit_mode=False), squeeze(1)),
    "indices": label(add_index, relabel, "ToTensor"),
    # images, in many orders
    "channels_last": image(*TO_IMAGE),
    "channels_first": image("ToTensor", to_nchw),
    "flipped": image(flip, *TO_IMAGE),
    "flipped_twice": image(flip, no_flip, flip, *TO_IMAGE),
    "moved_nowhere": image(flip, no_translate, "ToTensor"),
    "halves": image(normalize(np.float16), *TO_IMAGE),
    "halves_as_int16": image(normalize(np.float16), "ToTensor", to_int16),
    "halves_viewed": image(flip, normalize(np.float16), view(np.float16), *TO_IMAGE),
    "halves_alone": image(normalize(np.float16), "ToTensor"),
    "floats": image(normalize(np.float32), *TO_IMAGE),
    "floats_first": image(normalize(np.float32), "ToTensor", to_nchw),
    "doubles": image(normalize(np.float64), *TO_IMAGE),
    "floats_flipped": image(normalize(np.float32), flip, *TO_IMAGE),
    "halves_flipped": image(normalize(np.float16), flip, *TO_IMAGE),
    "floats_moved": image(normalize(np.float32), no_translate, *TO_IMAGE),
    "converted": image(*TO_IMAGE, convert(torch.float16)),
    "converted_first": image("ToTensor", convert(torch.float32), "ToTorchImage"),
    "there": image(flip, "ToTensor", to_cpu, "ToTorchImage", convert(torch.float16)),
    "module": image(*TO_IMAGE, module(Halves())),
    "modules": image(*TO_IMAGE, convert(torch.float32), module(torch.nn.AvgPool2d(2)), module(Halves())),
    "poisoned": image(poison, *TO_IMAGE),
    "poisoned_flipped": image(flip, poison, flip, "ToTensor"),
    "poisoned_normalized": image(poison, normalize(np.float16), *TO_IMAGE),
    "poisoned_floats": image(normalize(np.float32), poison, *TO_IMAGE),
    "own": image(add(7), *TO_IMAGE),
    "own_flipped": image(flip, add(7), flip, normalize(np.float16), *TO_IMAGE),
    "own_shape": image(corner, "ToTensor"),
    "own_before_module": image(corner, *TO_IMAGE, module(torch.nn.AvgPool2d(2))),
    # resized
    "crop_square": image(crop((1.0, 1.0), (1.0, 1.0), WIDTH), *TO_IMAGE),
    "crop_shrinks": image(crop((1.0, 1.0), (1.0, 1.0), 9), "ToTensor"),
    "crop_grows": image(crop((1.0, 1.0), (1.0, 1.0), 37), "ToTensor"),
    "crop_central": image(flip, crop((1.0, 1.0), (2.0, 3.0), 8), normalize(np.float32), *TO_IMAGE),
    # drawn: see test_drawn.py
    "cutout": image(wide_cutout, "ToTensor"),
    "cutout_fraction": image(fraction_cutout, "ToTensor"),
    "cutout_floats": image(levels(np.float32), fraction_cutout, "ToTensor"),
    "translate": image(translate, "ToTensor"),
    "flip_some": image(flip_some, "ToTensor"),
    "brightness": image(seeded(1), jitter("RandomBrightness", 0.8, 1.0), "ToTensor"),
    "brightness_some": image(seeded(2), jitter("RandomBrightness", 0.4, 0.5), "ToTensor"),
    "contrast": image(seeded(3), jitter("RandomContrast", 0.8, 1.0), "ToTensor"),
    "saturation": image(seeded(4), jitter("RandomSaturation", 0.8, 1.0), "ToTensor"),
    "brightness_floats": image(levels(np.float32), seeded(1), jitter("RandomBrightness", 0.8, 1.0), *TO_IMAGE),
    "contrast_floats": image(levels(np.float32), seeded(3), jitter("RandomContrast", 0.8, 1.0), *TO_IMAGE),
    "saturation_doubles": image(levels(np.float64), seeded(4), jitter("RandomSaturation", 0.8, 1.0), *TO_IMAGE),
}
