"""Damage of values in files, in their indices and in caches: no pixel is wrong without a word."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import torch

from gpubeton.dataset import index_images
from gpubeton.errors import GpubetonError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.format import open_dataset
from gpubeton.loader import Loader
from gpubeton.transforms import ToTensor
from gpubeton.writer import DatasetWriter
from tests.bytes.versioned_source import put
from tests.cpu.pictures import jpeg, photo
from tests.fuzz.campaign import Outcome, rng_of

_COUNT = 12
_MOST = 6000  # bytes of a stretch
_WHERE = "file", "index", "cache"


class Campaign:
    def __init__(self, seed, folder):
        self.seed, self.folder = seed, folder
        self.files = {}
        for mode in ("jpg", "raw"):
            for notes in (None, {}):
                path = folder / f"{mode}-{notes is None}.beton"
                fields = {"image": RGBImageField(mode), "label": IntField()}
                writer = DatasetWriter(path, fields, num_workers=1, progress=False, notes=notes, page_size=1 << 21)
                pictures = [photo(90 + 5 * number, 120, number) for number in range(_COUNT)]
                stored = [jpeg(picture, 90) if mode == "jpg" else picture for picture in pictures]
                writer.from_indexed_dataset([(each, number) for number, each in enumerate(stored)])
                if notes is None:
                    index_images(path, num_workers=1)
                self.files[mode, notes is None] = path

    def close(self):
        return []

    def case(self, number):
        rng = rng_of(self.seed, number)
        original = self.files[("jpg", "raw")[int(rng.random() < 0.3)], bool(rng.random() < 0.5)]
        beside = original.with_name(f"{original.name}.index")
        where = _WHERE[int(rng.choice(3, p=[0.6, 0.2, 0.2]))]
        if where == "index" and not beside.exists():
            where = "file"
        folder = self.folder / f"case{number}"
        folder.mkdir()
        try:
            path = shutil.copy(original, folder / "a.beton")
            if beside.exists():
                shutil.copy(beside, folder / "a.beton.index")
            return [self._try(rng, original, path, where, f"{original.name}, {where}")]
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # a thread may still fill the cache

    def _try(self, rng, original, path, where, facts):
        options = {"os_cache": bool(rng.random() < 0.5), "seed": int(rng.integers(1000))}
        name, expected_bad = path, set()
        if where == "cache" or rng.random() < 0.3:
            name = put(path.with_name("remote.beton"), path.read_bytes())
            if (beside := path.with_name("a.beton.index")).exists():
                shutil.copy(beside, path.with_name("remote.beton.index"))
            path = path.with_name("remote.beton")
            options |= {"cache_dir": path.parent / "cache", "cache_limit": 1 << 30} if rng.random() < 0.5 else {}
        if where == "cache":
            options |= {"cache_dir": path.parent / "cache", "cache_limit": 1 << 30}
            _crops(name, options)
            data = max((path.parent / "cache").glob("objects/*/data"), key=lambda value: value.stat().st_size)
            _damage(rng, data, open_dataset(path))
        elif where == "index":
            _damage(rng, path.with_name(f"{path.name}.index"), None)
        else:
            expected_bad = _damage(rng, path, open_dataset(path))
        expected, _ = _crops(original, {"seed": options["seed"]})
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result, bad = _crops(name, options)
            except GpubetonError as error:
                return Outcome(f"refused: {type(error).__name__}")
        wrong = [label for label, crop in result.items() if not torch.equal(crop, expected[label])]
        silent = expected_bad - set(bad)
        if wrong or silent or (where != "index" and set(bad) != expected_bad):
            return Outcome("wrong pixels", f"{facts}, {options}: {wrong} differ, bad {bad}, damaged {expected_bad}")
        lost = sorted(set(expected) - set(result) - set(bad))
        if lost:
            return Outcome("lost samples", f"{facts}: {lost}")
        return Outcome("reported" if bad else "warned" if warned else "right")


def _crops(name, options):
    """The crop of each label in an epoch of random crops, and the bad samples."""
    image = [RandomResizedCropRGBImageDecoder((12, 12), scale=(0.01, 0.3)), ToTensor()]
    usual = {"num_workers": 1, "order": "random", "drop_last": False, "on_error": "skip", "device": "cpu"}
    with Loader(name, 5, pipelines={"image": image}, **usual, **options) as loader:
        results = {
            label: crop.clone()
            for crops, labels in loader
            for crop, label in zip(crops, labels[:, 0].tolist(), strict=True)
        }
        return results, [sample for _, sample, _ in loader.bad_samples]


def _damage(rng, path, index):
    """Zero, repeat or swap stretches, or flip a bit, in the regions of a file or anywhere; give the samples."""
    before = path.read_bytes()
    content = bytearray(before)
    regions = None if index is None else index.regions("image")
    for _ in range(int(rng.integers(1, 4))):
        low, high = 0, len(content)
        if regions is not None:
            sample = int(rng.integers(_COUNT))
            low = int(regions.offset[sample])
            high = low + int(regions.size[sample])
        size = min(int(2 ** rng.uniform(0, np.log2(_MOST))), (high - low) // 2)
        first = int(rng.integers(low, high - 2 * size + 1))
        one, two = content[first : first + size], content[first + size : first + 2 * size]
        kind = int(rng.integers(4))
        if kind == 0:
            content[first : first + size] = bytes(size)
        elif kind == 1:
            content[first + size : first + 2 * size] = one
        elif kind == 2:
            content[first : first + 2 * size] = two + one
        else:
            content[first] ^= 1 << int(rng.integers(8))
    with path.open("r+b") as file:
        file.write(content)
    if regions is None:
        return set()
    parts = [
        slice(int(start), int(start) + int(size)) for start, size in zip(regions.offset, regions.size, strict=True)
    ]
    return {sample for sample, part in enumerate(parts) if content[part] != before[part]}
