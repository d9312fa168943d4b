"""Damaged, foreign and forged entry points beside a file, used by loaders.

Damaged ones never change a pixel: they are refused when they are opened, or their seal does not fit. Forged ones, whose
checksums and seals are right, may give other pixels or a bad image, and nothing worse.
"""

from __future__ import annotations

import warnings
import zlib
from types import SimpleNamespace

import numpy as np

from gpubeton.dataset import index_images
from gpubeton.errors import BadImageError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.rgb_image import RandomResizedCropRGBImageDecoder
from gpubeton.format import open_dataset
from gpubeton.format.layout import ENTRY_DTYPE
from gpubeton.loader import Loader
from gpubeton.writer import DatasetWriter
from tests.cpu.decoder import seal_of
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg
from tests.fuzz.campaign import Outcome, rng_of

_PIPELINES = {"image": [RandomResizedCropRGBImageDecoder((24, 28), scale=(0.01, 0.5))], "label": None}
_TRAILER = 80


class Campaign:
    def __init__(self, seed, folder):
        self.seed, self.path = seed, folder / "a.beton"
        files = [jpeg(photo(130, 150, i), 85, sampling) for i, sampling in enumerate(SAMPLINGS)]
        files += [jpeg(noise(64, 80, i), 95, sampling) for i, sampling in enumerate(SAMPLINGS)]
        files += [pillow_jpeg(photo(130, 150, 9), quality=80, optimize=True), files[0]]
        files += [pillow_jpeg(photo(90, 100), restart_marker_blocks=3)]
        self.files = [np.frombuffer(data, np.uint8) for data in files]
        fields = {"image": RGBImageField("jpg"), "label": IntField()}
        samples = [(data, number) for number, data in enumerate(files)]
        DatasetWriter(self.path, fields, 1 << 21, 1, progress=False).from_indexed_dataset(samples)
        self.expected = [self._images(seed)[0] for seed in range(4)]
        self.index = index_images(self.path).path
        whole = self.index.read_bytes()
        count = int(np.frombuffer(whole[-16:-8], "<u8")[0])
        self.begin = -(-count * ENTRY_DTYPE.itemsize // 8) * 8
        size = self.begin + 8 * (len(files) + 1) + -(-4 * len(files) // 8) * 8 + _TRAILER
        self.checksums, self.content = whole[:-size], whole[-size:]
        self.first = np.frombuffer(self.content[self.begin :], "<u8", len(files) + 1).astype(int)
        self.seals = np.frombuffer(self.content[self.begin + 8 * len(self.first) :], "<u4", len(files))
        self.entries = np.frombuffer(self.content[: count * ENTRY_DTYPE.itemsize], ENTRY_DTYPE)
        assert open_dataset(self.path).num_samples == len(files)

    def close(self):
        return []

    def case(self, number):
        rng = rng_of(self.seed, number)
        way = (self._bytes, self._entries, self._entries, self._forged, self._forged)[int(rng.integers(5))]
        self.index.unlink()
        self.index.write_bytes(way(rng))
        seed = int(rng.integers(len(self.expected)))
        is_forged = way == self._forged
        try:
            result, warned = self._images(seed)
        except BadImageError:
            return [Outcome("forged: bad image") if is_forged else Outcome("bad", f"{way.__name__}: a bad image")]
        if (result == self.expected[seed]).all():
            return [Outcome(f"{way.__name__[1:]}: {'refused' if warned else 'same pixels'}")]
        return [Outcome("forged: other pixels") if is_forged else Outcome("wrong", f"{way.__name__}: other pixels")]

    def _images(self, seed):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with Loader(self.path, 5, 1, seed=seed, pipelines=_PIPELINES, drop_last=False) as loader:
                images = np.concatenate([np.asarray(batch[0]) for batch in loader])
        return images, bool(caught)

    def _bytes(self, rng):
        """Any bytes changed, a part left out, or cut."""
        content = bytearray(self.checksums + self.content)
        for _ in range(int(rng.integers(0, 4))):
            content[int(rng.integers(len(content)))] = int(rng.integers(256))
        start, stop = sorted(rng.integers(len(content), size=2).tolist())
        match int(rng.integers(4)):
            case 0:
                del content[start:stop]
            case 1:
                del content[start:]
        return bytes(content)

    def _changed(self, rng):
        entries = self.entries.copy()
        for _ in range(int(rng.integers(1, 10))):
            i, j = rng.integers(len(entries), size=2).tolist()
            match int(rng.integers(6)):
                case 0:
                    entries["bit"][i] ^= np.uint32(1 << int(rng.integers(32)))
                case 1:
                    entries["dc"][i] = rng.integers(-(2**15), 2**15, 3)
                case 2:
                    entries[[i, j]] = entries[[j, i]]
                case 3:
                    entries[i : i + 20] = entries[j]
                case 4:
                    entries["bit"][i:] += np.uint32(rng.integers(1, 2**20))
                case 5:
                    entries["bit"][i] = rng.integers(2**32)
        return entries

    def _entries(self, rng):
        """Entries changed or in other places, with the seals that they had."""
        return self._packed(self._changed(rng), self.first, self.seals)

    def _forged(self, rng):
        """Entries changed, some given to another image, and all numbers and seals made to fit."""
        entries, first = self._changed(rng), self.first.copy()
        for _ in range(int(rng.integers(0, 3))):
            place = int(rng.integers(1, len(first) - 1))
            first[place] = rng.integers(first[place - 1], first[place + 1] + 1)
        seals = np.zeros(len(self.files), np.uint32)
        for number, data in enumerate(self.files):
            points = entries[first[number] : first[number + 1]]
            seals[number] = seal_of(SimpleNamespace(data=data, entries=points)) if len(points) else 0
        return self._packed(entries, first, seals)

    def _packed(self, entries, first, seals):
        tables = first.astype("<u8").tobytes() + seals.astype("<u4").tobytes()
        tables += bytes(-len(tables) % 8)
        trailer = bytearray(self.content[-_TRAILER:])
        trailer[72:76] = zlib.crc32(tables, zlib.crc32(trailer[:72])).to_bytes(4, "little")
        whole = entries.tobytes()
        return self.checksums + whole + bytes(-len(whole) % 8) + tables + bytes(trailer)
