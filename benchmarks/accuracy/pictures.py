"""Datasets to train on that can be made anywhere, from the photographs of scikit-image and scikit-learn.

`glyphs`: 200 characters are the classes. Each image shows one, in a random font of matplotlib, size, turn, position and
color, over a random crop of a photograph. `turns`: 20 classes, random crops of 10 photographs, upright or upside down.
Both are saved as baseline JPEGs of quality 75 to 95 with 4:2:0 chroma. A small network reaches 70 to 90 % of either
after a few epochs, so there is room to be worse, or better.
"""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from benchmarks.harness.photos import open_photographs
from gpubeton._machine import count_cores
from gpubeton.fields import IntField
from gpubeton.fields.rgb_image import RGBImageField
from gpubeton.writer import DatasetWriter

__all__ = ["CLASSES", "SIDE", "PictureSet", "characters", "write_pictures"]

SIDE = 72  # pixels of each image
CLASSES = {"glyphs": 200, "turns": 20}

# Latin, Greek, Cyrillic, Armenian, Georgian, and signs.
_BLOCKS = ((0x41, 0x7E), (0x391, 0x3CA), (0x410, 0x450), (0x531, 0x588), (0x10D0, 0x10FA), (0x2190, 0x21DA))
_FONT = "DejaVuSans"
_MOST_ALIKE = 0.82  # correlation of the pictures of two characters, or of mirror images: trainings flip
_CHUNK = 500
_FEW = 5000  # images that are drawn sooner than processes begin


@dataclass(frozen=True)
class PictureSet:
    """A set of images; equal sets are equal files."""

    kind: Literal["glyphs", "turns"] = "glyphs"
    train: int = 50_000
    test: int = 40_000
    seed: int = 0


def write_pictures(folder: Path, pictures: PictureSet) -> tuple[Path, Path]:
    """Write ``train.beton`` and ``test.beton``, with an image, a label and a number, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, record = (folder / "train.beton", folder / "test.beton"), folder / "pictures.json"
    facts = {**asdict(pictures), "code": hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}
    if record.is_file() and json.loads(record.read_text()) == facts:
        return paths
    for pixels in folder.glob("*.npy"):  # decoded from earlier pictures
        pixels.unlink()
    # Not forked: a process with torch's threads may hang after a fork.
    context = multiprocessing.get_context("spawn")
    many = pictures.train > _FEW
    executor: Executor = ProcessPoolExecutor(count_cores(), context) if many else ThreadPoolExecutor(1)
    with executor as pool:
        for part, (path, count) in enumerate(zip(paths, (pictures.train, pictures.test), strict=True)):
            chunks = [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
            kinds, seeds = [pictures.kind] * len(chunks), [(pictures.seed, part)] * len(chunks)
            drawn = [image for chunk in pool.map(_draw_chunk, chunks, kinds, seeds) for image in chunk]
            samples = [(file, label, number) for number, (file, label) in enumerate(drawn)]
            fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField(), "number": IntField()}
            DatasetWriter(path, fields, num_workers=1, progress=False).from_indexed_dataset(samples)
    record.write_text(json.dumps(facts))
    return paths


@lru_cache(1)
def characters() -> str:
    """Choose the characters: those that every font has, and of which no two look alike, also if one is mirrored."""
    chosen: list[str] = []
    pictures: list[NDArray[np.float64]] = []
    for character in (chr(code) for start, stop in _BLOCKS for code in range(start, stop)):
        picture = _shape(character)
        if picture is None:
            continue
        views = picture, picture[:, ::-1]
        if any(float((view * other).sum()) > _MOST_ALIKE for view in views for other in pictures):
            continue
        chosen.append(character)
        pictures.append(picture)
    count = CLASSES["glyphs"]
    if len(chosen) < count:
        raise RuntimeError(f"matplotlib's fonts give {len(chosen)} different characters, expected {count}")
    # Evenly over the blocks, so that no script is missing.
    return "".join(chosen[index * len(chosen) // count] for index in range(count))


def _shape(character: str) -> NDArray[np.float64] | None:
    """Draw a character to fill a square; return its pixels with mean 0 and norm 1, None if the font has none."""
    mask = _font(_FONT, 64).getmask(character, mode="L")
    missing = _font(_FONT, 64).getmask("\uffff", mode="L")
    if mask.size[0] == 0 or (mask.size == missing.size and bytes(mask) == bytes(missing)):
        return None
    picture = Image.frombytes("L", mask.size, bytes(mask)).resize((24, 24), Image.Resampling.BILINEAR)
    pixels = np.asarray(picture, np.float64)
    pixels -= pixels.mean()
    return pixels / max(float(np.linalg.norm(pixels)), 1e-9)


@lru_cache(512)
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    from matplotlib import get_data_path

    return ImageFont.truetype(Path(get_data_path()) / "fonts" / "ttf" / f"{name}.ttf", size)


_FAMILIES = "Sans", "Sans-Bold", "SansMono", "SansMono-Bold", "Serif", "Serif-Bold"


@lru_cache(1)
def _photographs() -> list[Image.Image]:
    return [photograph for _, photograph in open_photographs()]


def _draw_chunk(numbers: range, kind: str, seed: tuple[int, int]) -> list[tuple[bytes, int]]:
    """Draw some images; return JPEG files and labels."""
    draw = {"glyphs": _draw_glyph, "turns": _draw_turned}[kind]
    files = []
    for number in numbers:
        rng = np.random.default_rng((*seed, number))
        image, label = draw(rng)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=int(rng.integers(75, 96)), subsampling="4:2:0")
        files.append((file.getvalue(), label))
    return files


def _draw_turned(rng: np.random.Generator) -> tuple[Image.Image, int]:
    label = int(rng.integers(CLASSES["turns"]))
    part = _cut(_photographs()[label // 2], rng, SIDE, 4 * SIDE)
    return part.transpose(Image.Transpose.ROTATE_180) if label % 2 else part, label


def _draw_glyph(rng: np.random.Generator) -> tuple[Image.Image, int]:
    label = int(rng.integers(CLASSES["glyphs"]))
    photographs = _photographs()
    image = _cut(photographs[int(rng.integers(len(photographs)))], rng, SIDE, 3 * SIDE)
    font = _font("DejaVu" + _FAMILIES[int(rng.integers(len(_FAMILIES)))], int(rng.integers(42, 58)))
    stamp = Image.new("L", (2 * SIDE, 2 * SIDE))
    ImageDraw.Draw(stamp).text((SIDE, SIDE), characters()[label], font=font, fill=255, anchor="mm")
    stamp = stamp.rotate(float(rng.normal(0, 6)), Image.Resampling.BICUBIC)
    shift_x, shift_y = (int(shift) for shift in rng.integers(-5, 6, 2))
    corner = SIDE // 2 - shift_x, SIDE // 2 - shift_y
    mask = stamp.crop((*corner, corner[0] + SIDE, corner[1] + SIDE))
    image.paste(_contrasting(image, rng), mask=mask)
    return image, label


def _contrasting(image: Image.Image, rng: np.random.Generator) -> tuple[int, ...]:
    """Draw a color that is lighter or darker than most of an image."""
    middle = np.asarray(image).mean((0, 1))
    away = rng.uniform(80, 140, 3) * (1 if middle.mean() < 128 else -1)
    return tuple(int(level) for level in np.clip(middle + away, 0, 255))


def _cut(photograph: Image.Image, rng: np.random.Generator, shortest: int, longest: int) -> Image.Image:
    """Cut a random square of a photograph, and resize it to `SIDE`."""
    cut = int(rng.integers(shortest, longest))
    left, top = (int(rng.integers(length - cut + 1)) for length in photograph.size)
    return photograph.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=(left, top, left + cut, top + cut))
