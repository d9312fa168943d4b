"""FFCV or gpubeton, by their public names, and the file that both read.

A case is a function that is called with a `Package` and the path of that file, and returns arrays or tensors, in a
list, for each batch one after the other. Everything in it is as a user of FFCV writes it, and neither is imported.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

BATCH_SIZE = 5
SAMPLES = 13
HEIGHT, WIDTH = 24, 20
FIELDS = ("image", "label", "weight", "note", "info", "vector", "track")


class Package(SimpleNamespace):
    """The public names of FFCV, or of gpubeton."""

    @classmethod
    def named(cls, name):
        def module(path):
            return importlib.import_module(f"{name}.{path}")

        names = {}
        for path in (
            "fields",
            "fields.base",
            "fields.decoders",
            "fields.basics",
            "fields.rgb_image",
            "libffcv",
            "loader",
            "pipeline.allocation_query",
            "pipeline.compiler",
            "pipeline.operation",
            "pipeline.pipeline_spec",
            "transforms",
            "traversal_order.base",
            "writer",
        ):
            names.update({key: value for key, value in vars(module(path)).items() if key[:1] != "_"})
        package = cls(**names)
        package.is_ffcv = name == "ffcv"
        return package


class Samples:
    """The samples of the file."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, number):
        number = int(number)
        y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
        waves = [np.sin(y / 5 + number + phase) + np.cos(x / 4 - number * phase) for phase in (0, 1, 2)]
        image = (127.5 + 63 * np.stack(waves, axis=-1)).astype(np.uint8)
        image[number % HEIGHT, :, number % 3] = 255  # something sharp
        image[:, number % WIDTH] = 0
        note = np.arange(number % 6 + 1, dtype=np.uint8)
        vector = (np.arange(6, dtype=np.float32) + number / 8).reshape(2, 3)
        track = np.arange(2 * (1 + number % 4), dtype=np.float32).reshape(-1, 2) - number
        return image, number * 7 % 10, number / 3, note, {"number": number}, vector, track


def track_field(ffcv):
    """A field of the user's own, and its decoder."""

    class TrackDecoder(ffcv.Operation):
        def declare_state_and_memory(self, previous_state):
            shape, dtype = (int(self.metadata["points"].max()), 2), np.dtype("<f4")
            return (
                replace(previous_state, jit_mode=True, shape=shape, dtype=dtype),
                ffcv.AllocationQuery(shape, dtype),
            )

        def generate_code(self):
            read, copy, my_range = self.memory_read, ffcv.Compiler.compile(ffcv.memcpy), ffcv.Compiler.get_iterator()

            def decode(indices, destination, metadata, storage_state):
                for row in my_range(len(indices)):
                    destination[row] = 0
                    copy(read(metadata[indices[row]]["ptr"], storage_state), destination[row])
                return destination

            return decode

    class TrackField(ffcv.Field):
        metadata_type = np.dtype([("ptr", "<u8"), ("points", "<u8")])

        @staticmethod
        def from_binary(_):
            return TrackField()

        def to_binary(self):
            return np.zeros(1, ffcv.ARG_TYPE)[0]

        def get_decoder_class(self):
            return TrackDecoder

        def encode(self, destination, value, malloc):
            destination["ptr"], region = malloc(value.nbytes)
            region[:] = value.reshape(-1).view("<u1")
            destination["points"] = len(value)

    return TrackField


def fields_of(ffcv):
    return {
        "image": ffcv.RGBImageField(write_mode="raw"),
        "label": ffcv.IntField(),
        "weight": ffcv.FloatField(),
        "note": ffcv.BytesField(),
        "info": ffcv.JSONField(),
        "vector": ffcv.NDArrayField(np.dtype("<f4"), (2, 3)),
        "track": track_field(ffcv)(),
    }


def loader(ffcv, path, pipelines, **arguments):
    """A loader of some outputs; fields without a pipeline are left out."""
    usual = {"num_workers": 1, "drop_last": False, "custom_fields": {"track": track_field(ffcv)}}
    return ffcv.Loader(path, BATCH_SIZE, pipelines={**dict.fromkeys(FIELDS), **pipelines}, **{**usual, **arguments})


def batches(loader, epochs=1):
    """Everything that comes out. FFCV overwrites batches that were handed out."""
    return [copied(output) for _ in range(epochs) for batch in loader for output in batch]


def copied(output):
    return output.clone() if isinstance(output, torch.Tensor) else output.copy(order="K")
