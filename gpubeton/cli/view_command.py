"""``gpubeton view``: draw samples as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubeton.cli.screen import counted, result_console, show_json
from gpubeton.cli.shared_options import (
    FieldClasses,
    File,
    Indices,
    Json,
    Label,
    Overwrite,
    field_classes,
    sample_ids,
)
from gpubeton.errors import BadImageError, OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.dataset import Contents

_CAPTION_LETTERS = 24
_CAPTION_HEIGHT = 16
_MARGIN = 6
_BACKGROUND = 235
# Gray images whose maximum is below this share of the possible maximum are shown brighter.
_DARK = 1 / 8


def view(
    file: File,
    out: Annotated[Path, typer.Argument(help="The PNG file to write.", show_default=False)],
    indices: Indices = None,
    count: Annotated[int, typer.Option(min=1, help="Number of random samples, without --indices.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random choices.")] = 0,
    train_size: Annotated[
        int | None, typer.Option(min=1, help="Show random crops of this size, flipped at random.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="The field with the images. Default: the first.")] = None,
    label: Label = "label",
    columns: Annotated[int, typer.Option(min=1, help="Images per row.")] = 8,
    side: Annotated[int, typer.Option(min=16, help="Width of each image, in pixels.")] = 160,
    overwrite: Overwrite = False,
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Draw samples as one picture, as stored or cropped for training.

    Each has its number and class as a caption. Gray images with small values, such as masks and depth maps, are shown
    brighter: the maximum of each is white.
    """
    from PIL import Image

    from gpubeton._writing import check_target
    from gpubeton.dataset import choose
    from gpubeton.dataset.contents import Contents, class_name

    if Image.registered_extensions().get(out.suffix.lower()) not in Image.SAVE:
        raise OptionError(f"{out}: pictures cannot be written as {out.suffix or 'this'}; expected a name such as x.png")
    check_target(out, [file], overwrite=overwrite)
    classes = field_classes(field)
    contents = Contents(file, classes)
    total = contents.index.num_samples
    names = contents.image_fields
    if not names or (image is not None and image not in names):
        choices = f"it has {', '.join(map(repr, names))}" if names else "it has none"
        raise OptionError(f"{contents.index.path}: no field {image or ''} with images; {choices}")
    name = image or names[0]
    if indices is not None:
        chosen = choose(total, indices=sample_ids(indices, total))
    else:
        chosen = choose(total, count=count, shuffle=True, seed=seed)
        chosen.sort()
    if train_size is None:
        pictures = _stored(contents, name, chosen.tolist(), side)
    else:
        pictures = _cropped(contents, file, name, train_size, chosen, seed, classes)
    labels = contents.labels(label)
    captions = [str(sample) for sample in chosen.tolist()]
    if labels is not None:
        titles = [class_name(label, contents.class_names) for label in labels[chosen].tolist()]
        captions = [f"{sample} {title}"[:_CAPTION_LETTERS] for sample, title in zip(captions, titles, strict=True)]
    write_contact_sheet(out, pictures, captions, columns, side)
    if json:
        show_json({"path": str(out), "samples": chosen.tolist(), "captions": captions})
    else:
        result_console().print(f"{out} shows {counted(len(captions), 'sample')} of {file}")


def _stored(contents: Contents, name: str, samples: list[int], side: int) -> NDArray[np.uint8]:
    """Fit stored images of any size into squares, (N, side, side, 3)."""
    import numpy as np
    from PIL import Image, ImageOps

    sheet = np.empty((len(samples), side, side, 3), np.uint8)
    for number, sample in enumerate(samples):
        try:
            pixels = _as_rgb(contents.value(sample, name).pixels())
        except BadImageError as error:
            raise BadImageError(
                f"{contents.index.path}: sample {sample}, field {name!r}: {error}. `gpubeton verify` lists all bad "
                "samples; choose others with --indices",
                [sample],
                [str(error)],
            ) from error
        method = Image.Resampling.NEAREST if max(pixels.shape[:2]) < side else Image.Resampling.BICUBIC
        sheet[number] = np.asarray(ImageOps.pad(Image.fromarray(pixels), (side, side), method, (_BACKGROUND,) * 3))
    return sheet


def _as_rgb(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert pixels of any kind, (..., H, W, C), to 8-bit RGB, without transparency."""
    import numpy as np

    if pixels.shape[-1] > 1:
        levels = (pixels >> 8 if pixels.dtype.itemsize > 1 else pixels).astype(np.uint8)
        return np.ascontiguousarray(levels[..., :3])
    # The maximum of a dark image becomes white. Otherwise labels of a mask and millimetres of a depth map look black.
    top = np.iinfo(pixels.dtype).max
    largest = pixels.max(axis=(-3, -2, -1), keepdims=True).astype(np.float32)
    white = np.where((largest > 0) & (largest < top * _DARK), largest, np.float32(top))
    return np.repeat(np.rint(pixels * (255 / white)).astype(np.uint8), 3, axis=-1)


def _cropped(
    contents: Contents, file: str, name: str, size: int, chosen: NDArray[np.int64], seed: int, classes: dict[str, Any]
) -> NDArray[np.uint8]:
    """Load random crops of the samples, some of them flipped, (N, size, size, 3)."""
    from gpubeton.fields.decoders import RandomResizedCropImageDecoder
    from gpubeton.loader import Loader, OrderOption
    from gpubeton.transforms import RandomHorizontalFlip

    crops = [RandomResizedCropImageDecoder((size, size)), RandomHorizontalFlip()]
    loader = Loader(
        file,
        batch_size=len(chosen),
        order=OrderOption.SEQUENTIAL,
        seed=seed,
        indices=chosen,
        pipelines={**dict.fromkeys(contents.index.names), name: crops},
        custom_fields=classes,
        drop_last=False,
    )
    ((pixels, *_),) = list(loader)
    return _as_rgb(pixels)


def write_contact_sheet(
    path: Path, images: NDArray[np.number[Any]], captions: Sequence[str], columns: int = 8, side: int = 160
) -> None:
    """Draw images, (N, H, W, 3) from 0 to 255, side by side in rows, each `side` pixels wide above its caption."""
    import numpy as np
    from PIL import Image, ImageDraw

    pixels = np.clip(np.rint(images), 0, 255).astype(np.uint8)
    height = round(side * images.shape[1] / images.shape[2])
    cell_width, cell_height = side + _MARGIN, height + _CAPTION_HEIGHT + _MARGIN
    rows = -(-len(pixels) // columns)
    sheet = Image.new("RGB", (columns * cell_width + _MARGIN, rows * cell_height + _MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (image, caption) in enumerate(zip(pixels, captions, strict=True)):
        x, y = _MARGIN + number % columns * cell_width, _MARGIN + number // columns * cell_height
        sheet.paste(Image.fromarray(image).resize((side, height), Image.Resampling.LANCZOS), (x, y))
        draw.text((x, y + height + 2), caption, fill="black")
    sheet.save(path)
