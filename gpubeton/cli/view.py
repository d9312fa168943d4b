"""``gpubeton view``: samples as one picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubeton.cli.options import FieldClasses, File, Json, field_classes, imported, sample_ids
from gpubeton.cli.screen import counted, result_console, show_json
from gpubeton.errors import BadImageError, OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.inspection import Contents

__all__ = ["view"]

_CAPTION = 24
_BACKGROUND = 235
_DARK = 1 / 8
"""Gray images whose largest number is less than this share of what they could hold, are shown brighter."""


def view(
    file: File,
    out: Annotated[Path, typer.Argument(help="The PNG file to write.", show_default=False)],
    indices: Annotated[str | None, typer.Option(help="Samples: '0:32,100', or @FILE with one a line.")] = None,
    count: Annotated[int, typer.Option(min=1, help="How many, chosen by chance, where --indices does not say.")] = 32,
    seed: Annotated[int, typer.Option(help="What chance decides by, also in augmentations.")] = 0,
    train_size: Annotated[
        int | None, typer.Option(min=1, help="Show them as in training: random crops of this size, flipped at random.")
    ] = None,
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Show them as this leaves them: a list of operations, a mapping of fields to lists, or a function "
            "that gives one of them.",
        ),
    ] = None,
    image: Annotated[str | None, typer.Option(help="The field of images; by default the first.")] = None,
    label: Annotated[str, typer.Option(help="The field of labels.")] = "label",
    columns: Annotated[int, typer.Option(min=1, help="Images in a row.")] = 8,
    side: Annotated[int, typer.Option(min=16, help="Width of each on the picture, in pixels.")] = 160,
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Draw samples on one picture, with their numbers and classes: as they are stored, or as training sees them.

    Gray images of small numbers, such as masks and depth maps, are shown brighter: the largest number of each is white.
    """
    from gpubeton.cli.contact_sheet import write_contact_sheet
    from gpubeton.copying import choose
    from gpubeton.inspection import Contents

    if train_size is not None and pipeline is not None:
        raise OptionError("--train-size and --pipeline both say how images are augmented; choose one")
    _check_suffix(out)
    classes = field_classes(field)
    contents = Contents(file, classes)
    total = contents.index.num_samples
    name = _image_field(contents, image)
    if indices is not None:
        chosen = choose(total, indices=sample_ids(indices, total))
    else:
        chosen = choose(total, count=count, shuffle=True, seed=seed)
        chosen.sort()
    if train_size is None and pipeline is None:
        pictures = _stored(contents, name, chosen.tolist(), side)
    else:
        operations = (
            _train_pipeline(train_size, contents.is_rgb(name)) if pipeline is None else _users_pipeline(pipeline, name)
        )
        pictures = _augmented(file, name, operations, chosen, seed, classes)
    labels = contents.labels(label)
    captions = [
        f"{sample}" if labels is None else f"{sample} {contents.class_name(int(labels[sample]))}"[:_CAPTION]
        for sample in chosen.tolist()
    ]
    write_contact_sheet(out, pictures, captions, columns, side)
    if json:
        show_json({"path": str(out), "samples": chosen.tolist(), "captions": captions})
    else:
        result_console().print(f"{out} shows {counted(len(captions), 'sample')} of {file}")


def _check_suffix(out: Path) -> None:
    from PIL import Image

    if Image.registered_extensions().get(out.suffix.lower()) not in Image.SAVE:
        raise OptionError(f"{out}: no picture can be written as {out.suffix or 'this'}; expected a name such as x.png")


def _image_field(contents: Contents, wanted: str | None) -> str:
    names = contents.image_fields
    if not names or (wanted is not None and wanted not in names):
        known = f"it has {', '.join(map(repr, names))}" if names else "it has none"
        raise OptionError(f"{contents.index.path}: no field of images {wanted or ''}; {known}")
    return wanted or names[0]


def _stored(contents: Contents, name: str, samples: list[int], side: int) -> NDArray[np.float32]:
    """Draw images of any size as squares."""
    import numpy as np
    from PIL import Image

    sheet = np.full((len(samples), side, side, 3), _BACKGROUND, np.float32)
    for number, sample in enumerate(samples):
        try:
            pixels = _as_rgb(contents.value(sample, name).pixels())
        except BadImageError as error:
            raise BadImageError(
                f"{contents.index.path}: sample {sample}, field {name!r}: {error}. `gpubeton verify` names all bad "
                "samples; --indices chooses others",
                [sample],
                [str(error)],
            ) from error
        picture = Image.fromarray(pixels)
        picture.thumbnail((side, side))
        if max(picture.size) < side:
            scale = side / max(picture.size)
            size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
            picture = picture.resize(size, Image.Resampling.NEAREST)
        top, left = (side - picture.height) // 2, (side - picture.width) // 2
        sheet[number, top : top + picture.height, left : left + picture.width] = np.asarray(picture)
    return sheet


def _as_rgb(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Show pixels of any kind: 16 bits as 8, gray three times, without transparency."""
    import numpy as np

    if pixels.shape[-1] == 1:
        return np.repeat(np.rint(_gray_levels(pixels)).astype(np.uint8), 3, axis=-1)
    levels = (pixels >> 8 if pixels.dtype.itemsize > 1 else pixels).astype(np.uint8)
    return np.ascontiguousarray(levels[..., :3])


def _gray_levels(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """Give levels from 0 to 255 of a gray image, or of each of a batch; its largest number is white if it is small.

    The labels of a mask, and the millimetres of a depth map, would be as good as black.
    """
    import numpy as np

    top = np.iinfo(pixels.dtype).max
    largest = pixels.max(axis=(-3, -2, -1), keepdims=True).astype(np.float32)
    white = np.where((largest > 0) & (largest < top * _DARK), largest, np.float32(top))
    levels: NDArray[np.float32] = (pixels * (255 / white)).astype(np.float32)
    return levels


def _train_pipeline(size: int | None, is_rgb: bool) -> list[Any]:
    from gpubeton.fields.decoders import RandomResizedCropImageDecoder, RandomResizedCropRGBImageDecoder
    from gpubeton.transforms import RandomHorizontalFlip, ToTensor

    side = size or 224
    decoder = RandomResizedCropRGBImageDecoder if is_rgb else RandomResizedCropImageDecoder
    return [decoder((side, side)), RandomHorizontalFlip(), ToTensor()]


def _users_pipeline(where: str, name: str) -> list[Any]:
    found = imported(where, "--pipeline")
    if callable(found) and not isinstance(found, list | tuple | Mapping):
        found = found()
    if isinstance(found, Mapping):
        if name not in found:
            raise OptionError(f"--pipeline {where}: a mapping without the field {name!r}, it has {', '.join(found)}")
        found = found[name]
    if not isinstance(found, list | tuple):
        raise OptionError(f"--pipeline {where} is {type(found).__name__}, expected a list of operations, or a mapping")
    return list(found)


def _augmented(
    file: Path, name: str, operations: list[Any], chosen: NDArray[np.int64], seed: int, classes: dict[str, Any]
) -> NDArray[np.float32]:
    """Load the samples as one batch, and give their levels from 0 to 255."""
    import numpy as np

    from gpubeton.inspection import Contents
    from gpubeton.loader import Loader, OrderOption

    fields = Contents(file, classes).index.names
    pipelines: dict[str, Any] = {**dict.fromkeys(fields), name: operations}
    loader = Loader(
        file,
        batch_size=len(chosen),
        order=OrderOption.SEQUENTIAL,
        seed=seed,
        indices=chosen,
        pipelines=pipelines,
        custom_fields=classes,
        drop_last=False,
    )
    ((batch, *_),) = list(loader)
    if hasattr(batch, "detach"):
        batch = batch.detach().cpu().numpy()
    array = np.asarray(batch)
    if array.dtype == np.int16:  # FFCV's way to hand out float16
        array = array.view(np.float16)
    if array.ndim != 4 or not {1, 3, 4} & {array.shape[1], array.shape[3]}:
        raise OptionError(f"--pipeline leaves {array.dtype} of shape {array.shape}, expected images: (N, C, H, W)")
    if array.shape[3] not in (1, 3, 4):
        array = array.transpose(0, 2, 3, 1)
    return _levels(array, operations)


def _levels(array: NDArray[Any], operations: list[Any]) -> NDArray[np.float32]:
    """Undo the normalisation."""
    import numpy as np

    if array.shape[-1] == 1 and array.dtype in (np.uint8, np.uint16):
        return np.repeat(_gray_levels(array), 3, axis=-1)
    levels = array.astype(np.float32)
    normalize = next((each for each in operations if hasattr(each, "mean") and hasattr(each, "std")), None)
    if normalize is not None:
        levels = levels * np.array(normalize.std, np.float32) + np.array(normalize.mean, np.float32)
    elif array.dtype.kind == "f" and levels.max(initial=0) <= 1:
        levels = np.float32(255) * levels
    if array.dtype == np.uint16:
        levels = levels / np.float32(257)
    return np.repeat(levels, 3, axis=-1) if levels.shape[-1] == 1 else levels[..., :3]
