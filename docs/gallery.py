"""Draw a picture for every transform, with gpubeton, on photographs that scikit-image and scikit-learn ship.

python -m docs.gallery
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from docs.entries import ENTRIES, Entry

__all__ = ["Gallery", "draw_gallery"]

PHOTOS = ("cat", "coffee", "astronaut", "flower")
_COPIES = 6
_SIDE = 144
_GAP = 6
_SHOWN = 5  # images side by side: a phone shows them, too
_WIDTH = _SHOWN * (_SIDE + _GAP)
_BOXES = np.array([[8, 6, 138, 141], [28, 40, 62, 70], [103, 52, 131, 80]], np.float32)  # the cat's face and its eyes
_BOX_COLORS = ("#ff3b30", "#34c759", "#0a84ff")


def draw_gallery(folder: Path, page: Path, entries: Sequence[Entry] = ENTRIES) -> None:
    """Draw every picture, and write the part of the page with the pictures.

    Parameters
    ----------
    folder : Path
        The folder for the pictures.
    page : Path
        The Markdown file to write.
    entries : sequence of Entry
        What is drawn, in this order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as files:
        gallery = Gallery(Path(files))
        for entry in entries:
            if f"## {entry.group}" not in lines:
                lines += [f"## {entry.group}", ""]
            lines += [f"### {entry.name}", "", f"```python\n{entry.code}\n```", ""]
            if entry.is_text:
                (folder / f"{entry.name}.txt").write_text(gallery.describe(entry))
                lines += [f"```{{literalinclude}} /{folder.name}/{entry.name}.txt", ":language: text", "```", ""]
            else:
                gallery.draw(entry).save(folder / f"{entry.name}.webp", quality=92)
                lines += [f"![{entry.name}: before and after](/{folder.name}/{entry.name}.webp)", ""]
            reference = f"[Arguments and details](/api/{_module(entry)}.{entry.name})."
            lines += [f"{entry.note} {reference}" if entry.note else reference, ""]
    page.write_text("\n".join(lines))


class Gallery:
    """Files of photographs, and pictures of their transformed samples.

    Parameters
    ----------
    folder : Path
        The folder for the files.
    """

    def __init__(self, folder: Path) -> None:
        from gpubeton.fields import ImageField, IntField, RaggedField, RGBImageField
        from gpubeton.writer import DatasetWriter

        self.photos = {name: photograph(name) for name in PHOTOS}
        self.squares, self.wholes, self.grays = (folder / f"{name}.beton" for name in ("squares", "wholes", "grays"))
        fields = {"image": RGBImageField("raw"), "label": IntField(), "boxes": RaggedField("<f4", (-1, 4))}
        fields["mask"] = RGBImageField("raw")
        mask = face_mask()
        copies = [(name, number) for name in PHOTOS for number in range(_COPIES)]
        squares = [(square(self.photos[name]), PHOTOS.index(name), _BOXES, mask) for name, _ in copies]
        DatasetWriter(self.squares, fields, num_workers=1, progress=False).from_indexed_dataset(squares)
        wholes = [(self.photos[name], PHOTOS.index(name), _BOXES, mask) for name, _ in copies]
        DatasetWriter(self.wholes, fields, num_workers=1, progress=False).from_indexed_dataset(wholes)
        kinds = {"gray": ImageField("gray"), "gray16": ImageField("gray16")}
        grays = [(gray(self.photos[name]), light(self.photos[name])) for name, _ in copies]
        DatasetWriter(self.grays, kinds, num_workers=1, progress=False).from_indexed_dataset(grays)

    def draw(self, entry: Entry) -> Image.Image:
        """Draw the picture of an entry.

        Parameters
        ----------
        entry : Entry
            The entry.

        Returns
        -------
        Image
            The picture.
        """
        if entry.kind in {"boxes", "points", "mask", "views"}:
            return self._with_follower(entry)
        if entry.kind == "sizes":
            before: Sequence[NDArray[Any]] = [self.photos[entry.photo]]
        elif entry.kind in {"gray", "gray16"}:
            stored = (gray if entry.kind == "gray" else light)(self.photos[entry.photo])
            before = list(_levels(stored[None, ..., None]))
        else:
            before = list(_levels(self.batch(entry, before=True)))
        after = list(_levels(self.batch(entry)))
        return _below(_row(before), _row(after)) if entry.photo == "all" else _row([before[0], *after])

    def describe(self, entry: Entry) -> str:
        """Describe a batch before and after the operations of an entry, in lines of at most 84 characters.

        Parameters
        ----------
        entry : Entry
            The entry.

        Returns
        -------
        str
            Types, shapes and, of labels, values.
        """
        describe = _described if entry.kind == "labels" else _kind
        text = f"{describe(self.batch(entry, before=True))}\nbecomes {describe(self.batch(entry))}"
        return "\n".join(part for line in text.splitlines() for part in wrap(line, 84, subsequent_indent="    "))

    def batch(self, entry: Entry, *, before: bool = False) -> Any:
        """Load the samples of an entry.

        Parameters
        ----------
        entry : Entry
            Photograph and operations.
        before : bool
            Without the operations.

        Returns
        -------
        ndarray or torch.Tensor
            The batch of images or of labels.
        """
        from gpubeton.fields.decoders import IntDecoder, SimpleRGBImageDecoder

        if entry.kind in {"gray", "gray16"}:
            pipelines = {"gray": None, "gray16": None, entry.kind: operations_of(entry)}
            return self._only_batch(self.grays, entry, pipelines)[0]
        field = "label" if entry.kind == "labels" else "image"
        operations = [] if before else operations_of(entry)
        if field == "label" and before:
            operations = [IntDecoder()]
        elif field == "image" and entry.kind != "sizes":
            operations = [SimpleRGBImageDecoder(), *operations]
        pipelines = {**dict.fromkeys(("image", "label", "boxes", "mask")), field: operations}
        path = self.wholes if entry.kind == "sizes" else self.squares
        return self._only_batch(path, entry, pipelines)[0]

    @staticmethod
    def _only_batch(path: Path, entry: Entry, pipelines: dict[str, Any]) -> tuple[Any, ...]:
        from gpubeton.loader import Loader

        loader = Loader(path, _COPIES, 1, seed=0, indices=_samples(entry.photo), pipelines=pipelines)
        (batch,) = loader
        loader.close()
        return batch

    def _with_follower(self, entry: Entry) -> Image.Image:
        from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
        from gpubeton.transforms import RandomHorizontalFlip, RandomPerspective

        image = [RandomResizedCropRGBImageDecoder((_SIDE, _SIDE), scale=(0.3, 1)), RandomHorizontalFlip()]
        image += [RandomPerspective(0.6, p=1)] * (entry.kind == "points")
        operations, field = operations_of(entry), "boxes" if entry.kind == "points" else entry.kind
        pipelines = {**dict.fromkeys(("label", "boxes", "mask")), "image": image}
        pipelines |= {field: operations[0] if entry.kind == "views" else operations}
        images, followers = self._only_batch(self.squares, entry, pipelines)
        if entry.kind == "views":
            stored = square(self.photos[entry.photo])
            return _below(_row([stored, *np.asarray(images)]), _row([stored, *np.asarray(followers)]))
        if entry.kind == "mask":
            rows = [square(self.photos[entry.photo]), *np.asarray(images)], [face_mask(), *np.asarray(followers)]
            return _below(_row(rows[0]), _row(rows[1]))
        over = _dotted if entry.kind == "points" else _boxed
        drawn = [over(np.asarray(images[number]), np.asarray(followers[number])) for number in range(_COPIES)]
        return _row([over(square(self.photos[entry.photo]), _BOXES), *drawn])


def operations_of(entry: Entry) -> list[Any]:
    """Evaluate the code of an entry.

    Parameters
    ----------
    entry : Entry
        The entry.

    Returns
    -------
    list of Operation
        Its operations.
    """
    import torch

    import gpubeton.fields.decoders
    import gpubeton.pipeline
    import gpubeton.transforms

    alpha = 0.6 * (np.add.outer(np.arange(_SIDE), np.arange(_SIDE)) // 12 % 2)
    names = {"np": np, "torch": torch, "alpha": alpha, "mask": np.full((_SIDE, _SIDE, 3), (255, 40, 40))}
    names |= vars(gpubeton.transforms) | vars(gpubeton.fields.decoders) | vars(gpubeton.pipeline)
    return list(eval(f"({entry.code},)", names))


def _module(entry: Entry) -> str:
    import gpubeton.pipeline
    import gpubeton.transforms

    rooms = (gpubeton.transforms, gpubeton.pipeline)
    return next((room.__name__ for room in rooms if entry.name in room.__all__), "gpubeton.fields.decoders")


def photograph(name: str) -> NDArray[np.uint8]:
    """Read a photograph, 256 pixels high.

    Parameters
    ----------
    name : str
        Name of the photograph.

    Returns
    -------
    ndarray of uint8, shape (256, W, 3)
        Its pixels.
    """
    import skimage.data
    from sklearn.datasets import load_sample_image

    pixels = load_sample_image("flower.jpg") if name == "flower" else getattr(skimage.data, name)()
    image = Image.fromarray(np.asarray(pixels)[..., :3])
    return np.asarray(image.resize((round(256 * image.width / image.height), 256), Image.Resampling.LANCZOS))


def square(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Crop the middle of a photograph.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (H, W, 3)
        The photograph, wider than high.

    Returns
    -------
    ndarray of uint8, shape (144, 144, 3)
        The middle.
    """
    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    image = Image.fromarray(pixels[top : top + side, left : left + side])
    return np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.LANCZOS))


def gray(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert a photograph to gray.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (H, W, 3)
        The photograph.

    Returns
    -------
    ndarray of uint8, shape (H, W)
        Its gray levels.
    """
    return np.asarray(Image.fromarray(pixels).convert("L"))


def light(pixels: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Return the linear light of a photograph, as a sensor measures it, without sRGB's curve.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (H, W, 3)
        The photograph.

    Returns
    -------
    ndarray of uint16, shape (H, W)
        Levels from 0 to 65535.
    """
    counts: NDArray[np.uint16] = np.rint((gray(pixels) / 255) ** 2.2 * 65535).astype(np.uint16)
    return counts


def face_mask() -> NDArray[np.uint8]:
    """Draw a mask of the cat's face and eyes.

    Returns
    -------
    ndarray of uint8, shape (144, 144, 3)
        A mask in color.
    """
    mask = Image.new("RGB", (_SIDE, _SIDE), "#222")
    draw = ImageDraw.Draw(mask)
    for box, color in zip(_BOXES.tolist(), _BOX_COLORS, strict=True):
        draw.ellipse(box, fill=color)
    return np.asarray(mask)


def _samples(photo: str) -> list[int]:
    if photo == "all":
        return [number % len(PHOTOS) * _COPIES + number // len(PHOTOS) for number in range(_COPIES)]
    return list(range(PHOTOS.index(photo) * _COPIES, (PHOTOS.index(photo) + 1) * _COPIES))


def _levels(batch: Any) -> NDArray[np.uint8]:
    """Convert a batch of images of any type and layout to visible pixels."""
    images = np.asarray(batch)
    if images.shape[-1] not in {1, 3}:
        images = images.transpose(0, 2, 3, 1)
    if images.shape[-1] == 1:
        images = np.repeat(images, 3, axis=3)
    if images.dtype == np.uint8:
        return images
    values = images.astype(np.float64)
    stretched: NDArray[np.uint8] = np.rint((values - values.min()) * (255 / np.ptp(values))).astype(np.uint8)
    return stretched


def _kind(batch: Any) -> str:
    if isinstance(batch, np.ndarray):
        return f"numpy.ndarray, {batch.dtype}, shape {batch.shape}"
    shape, strides = tuple(batch.shape), batch.stride()
    return f"torch.Tensor on {batch.device}, {batch.dtype}, shape {shape}, strides {strides}"


def _described(batch: Any) -> str:
    return f"{_kind(batch)}\n{np.array2string(np.asarray(batch), precision=2, suppress_small=True)}"


def _boxed(pixels: NDArray[np.uint8], boxes: NDArray[np.float32]) -> NDArray[np.uint8]:
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    for box, color in zip(boxes.tolist(), _BOX_COLORS, strict=False):
        draw.rectangle(box, outline=color, width=2)
    return np.asarray(image)


def _dotted(pixels: NDArray[np.uint8], corners: NDArray[np.float32]) -> NDArray[np.uint8]:
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    for points, color in zip(corners.reshape(-1, 2, 2).tolist(), _BOX_COLORS, strict=False):
        for x, y in points:
            if not math.isnan(x):  # otherwise it is absent
                draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill=color)
    return np.asarray(image)


def _below(upper: Image.Image, lower: Image.Image) -> Image.Image:
    both = Image.new("RGBA", (_WIDTH, upper.height + lower.height))
    both.paste(upper, (0, 0))
    both.paste(lower, (0, upper.height))
    return both


def _row(images: Sequence[NDArray[np.uint8]]) -> Image.Image:
    """Draw the first images side by side, on nothing: pages are light or dark."""
    shown = [_fitted(image) for image in images[:_SHOWN]]
    row = Image.new("RGBA", (_WIDTH, max(image.height for image in shown) + _GAP))
    for number, image in enumerate(shown):
        row.paste(image, (number * (_SIDE + _GAP), 0))
    return row


def _fitted(pixels: NDArray[np.uint8]) -> Image.Image:
    """Fit an image into its cell; small images are magnified to make their pixels visible."""
    image = Image.fromarray(pixels)
    if max(image.size) <= _SIDE // 2:
        return image.resize((_SIDE, _SIDE), Image.Resampling.NEAREST)
    image.thumbnail((_SIDE, 2 * _SIDE), Image.Resampling.LANCZOS)
    return image


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    draw_gallery(here / "pictures", here / "pictures" / "gallery.inc")
