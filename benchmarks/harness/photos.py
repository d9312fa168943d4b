"""Make a folder of JPEG photos of ImageNet's sizes, with one sub-folder for each class."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpubeton._machine import install

__all__ = ["PhotoSet", "list_photos", "open_photographs", "photo_sizes", "write_photos"]

#: Class name, package that contains the photograph, and its path in the package.
_SOURCES = (
    ("temple", "sklearn", "datasets/images/china.jpg"),
    ("flower", "sklearn", "datasets/images/flower.jpg"),
    ("astronaut", "skimage", "data/astronaut.png"),
    ("cat", "skimage", "data/chelsea.png"),
    ("coffee", "skimage", "data/coffee.png"),
    ("galaxies", "skimage", "data/hubble_deep_field.jpg"),
    ("motorcycle", "skimage", "data/motorcycle_left.png"),
    ("retina", "skimage", "data/retina.jpg"),
    ("rocket", "skimage", "data/rocket.jpg"),
    ("tissue", "skimage", "data/ihc.png"),
)

#: (width, height) and weight, as in ImageNet: most are 500 wide, few are large or small.
_SIZES = (
    ((500, 375), 36),
    ((375, 500), 12),
    ((500, 333), 12),
    ((333, 500), 6),
    ((500, 400), 6),
    ((400, 300), 8),
    ((640, 480), 8),
    ((320, 240), 4),
    ((250, 250), 4),
    ((800, 600), 4),
)

_COMPLETE = "photos.json"


@dataclass(frozen=True)
class PhotoSet:
    """A set of photos to make; equal sets give identical files."""

    count: int
    quality: tuple[int, int] = (85, 95)  # lowest and highest JPEG quality; each photo draws one
    seed: int = 0  # another seed gives other crops of the same photographs


def list_photos(folder: Path) -> list[tuple[Path, str]]:
    """List each JPEG file and the name of its class, sorted."""
    return [(path, path.parent.name) for path in sorted(folder.glob("*/*.jpg"))]


def write_photos(folder: Path, photo_set: PhotoSet, advance: Callable[[], object] = lambda: None) -> None:
    """Crop and vary the sample photographs of scikit-image and scikit-learn into many photos.

    Each photo is a random crop of a photograph: resized, mirrored at random, with some noise, stored as a baseline JPEG
    with 4:2:0 chroma, as cameras and the web do. If `folder` already has the same set, nothing is done; another set is
    replaced. `advance` is called after each photo.
    """
    complete = folder / _COMPLETE
    if complete.is_file() and json.loads(complete.read_text()) == json.loads(json.dumps(asdict(photo_set))):
        return
    if folder.exists():
        if not complete.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder}: contains files that are not the demo's. Choose an empty or a new folder.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    complete.write_text("{}")
    photographs = list(open_photographs())

    def write(number: int) -> None:
        rng = np.random.default_rng((photo_set.seed, number))
        name, photograph = photographs[int(rng.integers(len(photographs)))]
        image = _vary(photograph, rng)
        quality = int(rng.integers(photo_set.quality[0], photo_set.quality[1] + 1))
        path = folder / name / f"{number:06d}.jpg"
        path.parent.mkdir(exist_ok=True)
        image.save(path, quality=quality, subsampling="4:2:0")

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(write, range(photo_set.count)):
            advance()
    complete.write_text(json.dumps(asdict(photo_set)))


def photo_sizes(photo_set: PhotoSet) -> NDArray[np.int64]:
    """Return width and height of each photo of a set, shape (photos, 2), without drawing them."""
    sizes = []
    for number in range(photo_set.count):
        rng = np.random.default_rng((photo_set.seed, number))
        rng.integers(len(_SOURCES))  # the photograph is drawn first
        sizes.append(_draw_size(rng))
    return np.array(sizes, np.int64)


def open_photographs() -> Iterator[tuple[str, Image.Image]]:
    """Open each photograph, in RGB; yield its class and pixels."""
    for name, package, path in _SOURCES:
        result = find_spec(package)
        if result is None or result.origin is None:
            raise ModuleNotFoundError(
                f"the photographs come with {package}, which is not installed. Try: {install('demo')}",
                name=package,
            )
        with Image.open(Path(result.origin).parent / path) as image:
            yield name, image.convert("RGB")


def _draw_size(rng: np.random.Generator) -> tuple[int, int]:
    """Draw a width and a height."""
    weights = np.array([weight for _, weight in _SIZES], np.float64)
    width, height = _SIZES[int(rng.choice(len(_SIZES), p=weights / weights.sum()))][0]
    return width + int(rng.integers(-12, 13)), height + int(rng.integers(-12, 13))


def _vary(photograph: Image.Image, rng: np.random.Generator) -> Image.Image:
    width, height = _draw_size(rng)
    magnification = rng.uniform(0.9, 1.6)
    crop_width = min(photograph.width, int(width / magnification))
    crop_height = min(photograph.height, int(height / magnification))
    left = int(rng.integers(photograph.width - crop_width + 1))
    top = int(rng.integers(photograph.height - crop_height + 1))
    box = (left, top, left + crop_width, top + crop_height)
    image = photograph.resize((width, height), Image.Resampling.BICUBIC, box=box)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    noise = rng.normal(0, 3, (height, width, 1))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))
