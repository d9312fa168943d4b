"""A batch as one picture, to look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

__all__ = ["write_contact_sheet"]

_MARGIN = 6
_CAPTION = 16


def write_contact_sheet(
    path: Path, images: NDArray[np.float32], captions: Sequence[str], columns: int = 8, side: int = 160
) -> None:
    """Draw the images of a batch side by side, each above its caption.

    Parameters
    ----------
    path : Path
        The PNG file to write.
    images : ndarray of float32, shape (N, H, W, 3)
        Pixels from 0 to 255; what lies outside is clipped.
    captions : sequence of str
        One for each image.
    columns : int
        Images in a row.
    side : int
        Width of each image on the sheet, in pixels.
    """
    pixels = np.clip(np.rint(images), 0, 255).astype(np.uint8)
    height = round(side * images.shape[1] / images.shape[2])
    cell_width, cell_height = side + _MARGIN, height + _CAPTION + _MARGIN
    rows = -(-len(pixels) // columns)
    sheet = Image.new("RGB", (columns * cell_width + _MARGIN, rows * cell_height + _MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (image, caption) in enumerate(zip(pixels, captions, strict=True)):
        x, y = _MARGIN + number % columns * cell_width, _MARGIN + number // columns * cell_height
        sheet.paste(Image.fromarray(image).resize((side, height), Image.Resampling.LANCZOS), (x, y))
        draw.text((x, y + height + 2), caption, fill="black")
    sheet.save(path)
