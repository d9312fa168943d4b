"""Examined: the samples of a source, their image files read and looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.conversion.traits import Traits
from gpubeton.cpu.fallback import UndecodableError, decode_rgb
from gpubeton.fields.area_average import fitted_size
from gpubeton.fields.image_codec import file_content, open_image, pixels_of_kind
from gpubeton.fields.jpeg_markers import JpegFrame, read_frame
from gpubeton.fields.png import PNG_SIGNATURE, read_png_header
from gpubeton.format.field_arguments import RGB

if TYPE_CHECKING:
    from collections.abc import Collection

    from PIL import Image

    from gpubeton.conversion.settings import Settings
    from gpubeton.conversion.source import Source

__all__ = ["Examined"]


class Examined:
    """The samples of a source, their image files read and looked at.

    A JPEG file is decoded strictly: what libjpeg only warns about, and fills with gray, is an error here. So is a PNG
    file with a wrong checksum, in all modes but "rgb", which leaves PNG files to Pillow. What an image loses is kept
    until `take_remarks` asks for it.

    Parameters
    ----------
    source : Source
        The samples.
    settings : Settings
        The kind of images that the file holds, and their longest side: larger ones are handed on decoded, as they have
        to be encoded again. And whether files that can stay as they are, are decoded as well.
    """

    def __init__(self, source: Source, settings: Settings) -> None:
        self._source = source
        self._settings = settings
        self._kind = settings.kind
        self._remarks: dict[int, list[str]] = {}

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Give a sample.

        Parameters
        ----------
        index : int
            Its position in the source.

        Returns
        -------
        tuple
            Its image, as a file's content or as pixels, and its other values.

        Raises
        ------
        ValueError
            If its image is a file that cannot be decoded, or cannot be what the mode says.
        """
        image, *others = self._source[index]
        content = file_content(image)
        frame = None if content is None else read_frame(content)
        opened: Any = image if content is None else None if frame is not None else _opened(content)
        if frame is not None:
            traits = Traits.of_jpeg(frame)
        elif hasattr(opened, "getbands"):
            traits = Traits.of_pillow(opened, content or b"")
        else:  # no image of Pillow's: the field knows best
            return (image if content is None else content, *others)
        refusal = traits.refusal(self._kind)
        if refusal is not None:
            raise ValueError(refusal)
        changes, value = traits.changes(self._kind), image
        if frame is not None and content is not None:
            value = self._of_jpeg(content, frame)
        elif "palette" in changes:
            value = self._numbers(opened)
        elif content is not None:
            value = self._of_file(content)
        if changes:
            self._remarks[index] = changes
        return (value, *others)

    def take_remarks(self, refused: Collection[int] = ()) -> dict[str, int]:
        """Count what images have lost since this was last asked.

        Parameters
        ----------
        refused : collection of int
            Positions of samples that came to nothing, and do not count.

        Returns
        -------
        dict of str to int
            How many have lost each of what `Traits.changes` lists.
        """
        lost = [name for index, names in self._remarks.items() if index not in refused for name in names]
        self._remarks = {}
        return {name: lost.count(name) for name in sorted(set(lost))}

    def _of_jpeg(self, content: bytes, frame: JpegFrame) -> Any:
        """Look at a JPEG file, and give it, or its pixels where it has to be encoded again."""
        agrees = self._kind is RGB or (self._kind.channels == 1 and len(frame.components) == 1)
        stays = frame.is_plain and agrees and self._stays(frame.height, frame.width)
        if stays and not self._settings.check:
            return content
        try:
            pixels = decode_rgb(content)
        except UndecodableError as error:
            raise ValueError(str(error)) from error
        if stays or self._kind is RGB:
            return content if stays else pixels
        from PIL import Image

        return Image.fromarray(pixels)

    def _of_file(self, content: bytes) -> bytes:
        """Look at a file of another kind."""
        if self._kind is not RGB and self._settings.check and content.startswith(PNG_SIGNATURE):
            header = read_png_header(content)
            if header is None:
                raise ValueError("a damaged PNG file: it ends too early, or the checksum of a part of it is wrong")
            if header.holds(self._kind):  # the only one that may be taken over, and is not decoded then
                pixels_of_kind(content, self._kind)
        return content

    def _numbers(self, image: Image.Image) -> Any:
        """Give the numbers of an image with a palette."""
        if self._settings.interpolation != "nearest" and not self._stays(image.height, image.width):
            raise ValueError(
                f"an image with a palette, of {image.height} x {image.width} pixels, to be made smaller: means of "
                "places in a palette say nothing. Choose pixels instead (interpolation='nearest'; --interpolation "
                "nearest of the command)"
            )
        return np.asarray(image)

    def _stays(self, height: int, width: int) -> bool:
        return fitted_size(height, width, self._settings.max_resolution) == (height, width)


def _opened(content: bytes) -> Image.Image | None:
    """Open a file of an image, as far as its header; None if it is none."""
    try:
        return open_image(content)
    except (OSError, SyntaxError, ValueError):
        return None
