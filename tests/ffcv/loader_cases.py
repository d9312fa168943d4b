"""Cases that are about the whole loader."""

from __future__ import annotations

import numpy as np
import torch

from tests.ffcv.operations import flip
from tests.ffcv.own_operations import add, corner, dice
from tests.ffcv.package import BATCH_SIZE, FIELDS, WIDTH, batches, loader, track_field


def default_pipelines(ffcv, path):
    fields = {"track": track_field(ffcv)}
    result = batches(ffcv.Loader(path, BATCH_SIZE, num_workers=1, drop_last=False, custom_fields=fields))
    for position in (3, 4):  # notes and JSON: FFCV leaves the memory's old contents after a value
        for number in range(position, len(result), len(FIELDS)):
            lengths = [value_length(number // len(FIELDS) * BATCH_SIZE + row, position) for row in range(BATCH_SIZE)]
            for row, length in zip(result[number], lengths, strict=False):
                row[length:] = 0
    return result


def value_length(sample, position):
    return sample % 6 + 1 if position == 3 else len('{"number": }') + len(str(sample)) + 1


def decoders_alone(ffcv, path):
    pipelines = {
        "image": [ffcv.SimpleRGBImageDecoder()],
        "label": [ffcv.IntDecoder()],
        "weight": [ffcv.FloatDecoder()],
        "vector": [ffcv.NDArrayDecoder()],
    }
    return batches(loader(ffcv, path, pipelines))


def orders(ffcv, path):
    results = []
    for arguments in (
        {"order": ffcv.OrderOption.RANDOM, "seed": 5},
        {"order": ffcv.OrderOption.RANDOM, "seed": 5, "indices": [1, 12, 3, 3, 7, 9, 0]},
        {"indices": [8, 2, 11, 5]},
        {"drop_last": True},
        {"os_cache": False, "order": ffcv.OrderOption.RANDOM, "seed": 6},
    ):
        results += batches(loader(ffcv, path, {"label": [ffcv.IntDecoder(), ffcv.ToTensor()]}, **arguments), epochs=2)
    return results


def filtered(ffcv, path):
    pipelines = {"label": [ffcv.IntDecoder(), ffcv.ToTensor(), ffcv.Squeeze(1)]}
    whole = loader(ffcv, path, pipelines)
    if ffcv.is_ffcv:
        whole._args["custom_fields"] = {"track": track_field(ffcv)}  # which its filter forgets
    thirds = whole.filter("label", lambda value: value % 3 == 0)
    return [torch.tensor(np.asarray(thirds.indices).astype(np.int64)), *batches(thirds)]


def recompiled(ffcv, path):
    operation = ffcv.RandomHorizontalFlip(0.0)
    pipeline = [ffcv.SimpleRGBImageDecoder(), operation, ffcv.ToTensor()]
    changing = loader(ffcv, path, {"image": pipeline}, recompile=True)
    result = batches(changing)
    operation.flip_prob = 1.0
    return result + batches(changing)


def several_outputs(ffcv, path):
    pipelines = {
        "label": [ffcv.IntDecoder(), ffcv.ToTensor()],
        "more": ffcv.PipelineSpec("label", transforms=[add(3)(ffcv), ffcv.ToTensor()]),
        "centre": ffcv.PipelineSpec(
            "image", decoder=ffcv.CenterCropRGBImageDecoder((WIDTH, WIDTH), 1.0), transforms=[ffcv.ToTensor()]
        ),
    }
    return batches(loader(ffcv, path, pipelines))


def branches(ffcv, path):
    decoder, added, flipped = ffcv.IntDecoder(), add(3)(ffcv), flip(ffcv)
    pipelines = {
        "image": [ffcv.SimpleRGBImageDecoder(), flipped, add(1)(ffcv), ffcv.ToTensor()],
        "label": [decoder, added, add(10)(ffcv), ffcv.ToTensor()],
        "from_added": ffcv.PipelineSpec(added, transforms=[add(100)(ffcv), ffcv.ToTensor()]),
        "from_decoder": ffcv.PipelineSpec(decoder, transforms=[add(1000)(ffcv), ffcv.ToTensor()]),
        "from_flipped": ffcv.PipelineSpec(flipped, transforms=[corner(ffcv), ffcv.ToTensor()]),
    }
    return batches(loader(ffcv, path, pipelines))


def sharing(**arguments):
    def case(ffcv, path):
        thrown = dice(ffcv, **arguments)
        pipelines = {
            "label": [ffcv.IntDecoder(), thrown, ffcv.ToTensor()],
            "again": ffcv.PipelineSpec("label", transforms=[add(0)(ffcv), thrown, ffcv.ToTensor()]),
        }
        return batches(loader(ffcv, path, pipelines))

    return case


def labels_and_mixup(ffcv, path):
    """Images, labels, and images and labels that were mixed alike."""
    results = []
    for same_lambda in (True, False):
        pipelines = {
            "image": [ffcv.SimpleRGBImageDecoder(), ffcv.ImageMixup(0.5, same_lambda), ffcv.ToTensor()],
            "label": [ffcv.IntDecoder(), ffcv.LabelMixup(0.5, same_lambda), ffcv.ToTensor()],
            "vectors": ffcv.PipelineSpec(
                "label",
                transforms=[ffcv.LabelMixup(0.5, same_lambda), ffcv.ToTensor(), ffcv.MixupToOneHot(10)],
            ),
        }
        results += batches(loader(ffcv, path, pipelines))
    return results


def generated_crops(ffcv, path):
    """A user's decoder with another crop function."""

    class Own(ffcv.ResizedCropRGBImageDecoder):
        def __init__(self, output_size):
            super().__init__(output_size)
            self.scale, self.ratio = (0.25, 0.75), (1.0, 2.0)

        @property
        def get_crop_generator(self):
            def crop(height, width, scale, ratio):
                return 2, 3, int(height * scale[1]), int(width * scale[0] * ratio[1])

            return crop

    return batches(loader(ffcv, path, {"image": [Own((9, 5)), ffcv.ToTensor()]}))


def own_image_decoder(ffcv, path):
    """A user's decoder, derived from one of the library's, with different code."""

    class Own(ffcv.RandomResizedCropRGBImageDecoder):
        def generate_code(self):
            read, my_range = self.memory_read, ffcv.Compiler.get_iterator()
            resize = ffcv.Compiler.compile(ffcv.resize_crop)

            def decode(indices, my_storage, metadata, storage_state):
                destination, _ = my_storage
                for row in my_range(len(indices)):
                    place = metadata[indices[row]]
                    content = read(place["data_ptr"], storage_state)
                    pixels = content.reshape(np.uint32(place["height"]), np.uint32(place["width"]), 3)
                    resize(pixels, 2, 22, 1, 17, destination[row])
                return destination[: len(indices)]

            return decode

    return batches(loader(ffcv, path, {"image": [Own((10, 8)), ffcv.ToTensor()]}))


def own_array_decoder(ffcv, path):
    class Backwards(ffcv.NDArrayDecoder):
        def generate_code(self):
            read, copy = self.memory_read, ffcv.Compiler.compile(ffcv.memcpy)

            def decode(indices, destination, metadata, storage_state):
                for row in range(len(indices)):
                    copy(read(metadata[indices[row]], storage_state), destination[row])
                    destination[row] = -destination[row]
                return destination

            return decode

    return batches(loader(ffcv, path, {"vector": [Backwards(), ffcv.ToTensor()]}))
