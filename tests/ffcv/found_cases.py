"""Cases in the forms that FFCV's users' programs have, where its documentation has others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from tests.ffcv.package import batches, loader


def several_crops(ffcv, path):
    """A decoder derived from one of the library's that makes several crops of each image, and operations on these."""

    class Crops(ffcv.RandomResizedCropRGBImageDecoder):
        def declare_state_and_memory(self, previous_state):
            shape, dtype = (3, *self.output_size, 3), np.dtype("<u1")
            state = replace(previous_state, jit_mode=True, shape=shape, dtype=dtype)
            pixels = np.uint64(self.metadata["height"].max()) * np.uint64(self.metadata["width"].max()) * np.uint64(3)
            return state, (ffcv.AllocationQuery(shape, dtype), ffcv.AllocationQuery((pixels,), dtype))

        def generate_code(self):
            read, resize = self.memory_read, ffcv.Compiler.compile(ffcv.resize_crop)

            def decode(indices, my_storage, metadata, storage_state):
                destination, _ = my_storage
                for row in range(len(indices)):
                    place = metadata[indices[row]]
                    pixels = read(place["data_ptr"], storage_state).reshape(place["height"], place["width"], 3)
                    for crop in range(destination.shape[1]):
                        resize(pixels, crop, crop + 12, 2 * crop, 2 * crop + 10, destination[row, crop])
                return destination[: len(indices)]

            return decode

    class ChannelsFirst(ffcv.Operation):
        def generate_code(self):
            def permute(crops, memory):
                memory[: len(crops)] = crops.permute(0, 1, 4, 2, 3)
                return memory[: len(crops)]

            return permute

        def declare_state_and_memory(self, previous_state):
            crops, height, width, channels = previous_state.shape
            shape = (crops, channels, height, width)
            return replace(previous_state, shape=shape), ffcv.AllocationQuery(shape, previous_state.dtype)

    return batches(loader(ffcv, path, {"image": [Crops((6, 5)), ffcv.ToTensor(), ChannelsFirst()]}))


def odd_operations(ffcv, path):
    """Functions with ``*args``, in a new array of another shape, for a tensor without `ToTensor`; a type as a dtype."""

    class Bare(ffcv.Operation):
        def declare_state_and_memory(self, previous_state):
            return previous_state, None

    class Pad(Bare):
        def generate_code(self):
            def pad(images, *args):
                count, height, width, channels = images.shape
                padded = np.full((count, height + 4, width + 4, channels), 9, images.dtype)
                padded[:, 2:-2, 2:-2] = images
                return padded

            return pad

    class Labels(ffcv.Operation):
        def generate_code(self):
            return lambda batch, _: torch.full(batch.shape, 7)

        def declare_state_and_memory(self, previous_state):
            return replace(previous_state, jit_mode=False, dtype=torch.int64), None

    class Pair(Bare):
        def generate_code(self):
            return lambda vectors, _: (vectors * 2, torch.arange(len(vectors)))

    images = [ffcv.SimpleRGBImageDecoder(), Pad(), ffcv.ToTensor()]
    labels = [ffcv.IntDecoder(), Labels(), ffcv.Squeeze()]
    result = batches(loader(ffcv, path, {"image": images, "label": labels}))
    mean = np.array([120.0, 110.0, 100.0])
    normalized = [ffcv.NormalizeImage(mean, mean / 2, float), ffcv.ToTensor(), ffcv.ToTorchImage()]
    result += batches(loader(ffcv, path, {"image": [ffcv.SimpleRGBImageDecoder(), *normalized]}))
    for (pair,) in loader(ffcv, path, {"vector": [ffcv.NDArrayDecoder(), ffcv.ToTensor(), Pair()]}):
        result += [part.clone() for part in pair]
    return result
