"""The images of the GPU benchmarks, in two file sizes: as on the web, and as in ImageNet."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.harness.photos import PhotoSet, list_photos, write_photos
from gpubeton.dataset import index_images
from gpubeton.fields import IntField, RGBImageField
from gpubeton.format.dataset import open_dataset
from gpubeton.writer import DatasetWriter

__all__ = ["IMAGENET_LIKE", "QUALITIES", "Photos", "make_photos", "make_raw"]

#: JPEG quality of each corpus. ImageNet's images have about 0.18 megapixels and 110 kB.
QUALITIES = {"q90": 90, "q97": 97}  # 53 kB, 107 kB
#: The corpus most similar to ImageNet.
IMAGENET_LIKE = "q97"

_MADE = "made.json"
_MOST_RAW = 512
_RAW_SIDE = 256


@dataclass(frozen=True)
class Photos:
    """Paths of the images, and facts about them."""

    folder: str  # JPEG files, one sub-folder per class
    beton: str  # .beton file with the same JPEG files
    indexed: str  # the same file by another name, with entry points beside it
    facts: dict[str, Any]  # number, bytes, sizes and source of the images


def make_photos(data: Path, count: int, quality: int) -> Photos:
    """Make images, or use existing ones: crops of photographs, or computed textures if these are not installed."""
    folder, beton = data / f"photos-{count}-q{quality}", data / f"photos-{count}-q{quality}.beton"
    expected = PhotoSet(count, (quality, quality))
    source = "photographs"
    try:
        write_photos(folder, expected)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        source = f"computed textures ({error})"
        folder = data / f"textures-{count}-q{quality}"
        beton = folder.with_suffix(".beton")
        _write_textures(folder, expected)
    if not beton.exists():
        columns = {"image": RGBImageField(write_mode="jpg", jpeg_quality=quality), "label": IntField()}
        DatasetWriter(beton, columns, progress=False, index=False).from_image_folder(folder)
    if len(list_photos(folder)) != count:
        raise RuntimeError(f"{folder}: not {count} images. Remove the folder and start again.")
    indexed = indexed_name(beton)
    if not indexed.exists():
        os.link(beton, indexed)
    index_images(indexed)
    return Photos(str(folder), str(beton), str(indexed), {"source": source, **_facts(beton)})


def indexed_name(beton: Path) -> Path:
    """Name the file that has entry points beside it."""
    return beton.with_suffix(".indexed.beton")


def make_raw(data: Path, photos: Photos) -> str:
    """Make or use a file with the first 512 images as raw pixels, at most 256 a side."""
    path = data / f"{Path(photos.beton).stem}-raw.beton"
    if not path.exists():
        samples = [Image.open(file) for file, _ in list_photos(Path(photos.folder))[:_MOST_RAW]]
        columns = {"image": RGBImageField(write_mode="raw", max_resolution=_RAW_SIDE)}
        DatasetWriter(path, columns, num_workers=1, progress=False).from_indexed_dataset(
            [(sample,) for sample in samples]
        )
    return str(path)


def _facts(path: Path) -> dict[str, Any]:
    index = open_dataset(path)
    column = index.column("image")
    width, height = column["width"].astype(np.int64), column["height"].astype(np.int64)
    return {
        "images": index.num_samples,
        "mean_bytes": round(float(index.regions("image").size.mean())),
        "mean_pixels": round(float((width * height).mean())),
        "median_width": int(np.median(width)),
        "median_height": int(np.median(height)),
    }


def _write_textures(folder: Path, photo_set: PhotoSet) -> None:
    """Write noise with the spectrum of photographs, in three correlated colors."""
    result = folder / _MADE
    if result.is_file() and json.loads(result.read_text()) == json.loads(json.dumps(asdict(photo_set))):
        return
    shutil.rmtree(folder, ignore_errors=True)

    def write(number: int) -> None:
        rng = np.random.default_rng((photo_set.seed, number))
        sizes = ((500, 375), (375, 500), (500, 333), (400, 300), (640, 480), (320, 240))
        width, height = sizes[number % len(sizes)]
        path = folder / f"class{number % 10}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(_texture(height, width, rng))
        image.save(path, quality=photo_set.quality[0], subsampling="4:2:0")

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, range(photo_set.count)))
    result.write_text(json.dumps(asdict(photo_set)))


def _texture(height: int, width: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.uint8]]:
    down, across = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
    falling = 1 / np.maximum(np.hypot(down, across), 1 / max(height, width)) ** 1.2
    phases = np.exp(2j * np.pi * rng.random((3, height, falling.shape[1])))
    waves = np.fft.irfft2(falling * phases, s=(height, width))
    waves /= waves.std(axis=(1, 2), keepdims=True)
    mixed = np.tensordot([[1, 0.2, 0], [0.9, 0.1, 0.2], [0.8, 0, 0.3]], waves, axes=1)
    noisy = 120 + 45 * mixed.transpose(1, 2, 0) + rng.normal(0, 3, (height, width, 1))
    return np.clip(noisy, 0, 255).astype(np.uint8)
