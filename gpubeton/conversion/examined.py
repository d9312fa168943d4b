"""Examined: the samples of a source, their image files read and looked at."""

from __future__ import annotations

from typing import Any

from gpubeton.conversion.source import Source
from gpubeton.cpu.fallback import UndecodableError, decode_rgb
from gpubeton.fields.area_average import fitted_size
from gpubeton.fields.image_codec import file_content
from gpubeton.fields.jpeg_markers import read_frame

__all__ = ["Examined"]


class Examined:
    """The samples of a source, their image files read and looked at.

    A JPEG file is decoded strictly: what libjpeg only warns about, and fills with gray, is an error here.

    Parameters
    ----------
    source : Source
        The samples.
    max_resolution : int or None
        Longest side of an image in the file. Larger ones are handed on decoded, as they have to be encoded again.
    check : bool
        Whether JPEG files that can stay as they are, are decoded as well.
    """

    def __init__(self, source: Source, max_resolution: int | None, *, check: bool) -> None:
        self._source = source
        self._max_resolution = max_resolution
        self._check = check

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
            If its image is a JPEG file that cannot be decoded.
        """
        image, *others = self._source[index]
        content = file_content(image)
        if content is None:
            return (image, *others)
        frame = read_frame(content)
        if frame is None:
            return (content, *others)
        size = frame.height, frame.width
        stays = frame.is_plain and fitted_size(*size, self._max_resolution) == size
        if stays and not self._check:
            return (content, *others)
        try:
            pixels = decode_rgb(content)
        except UndecodableError as error:
            raise ValueError(str(error)) from error
        return (content if stays else pixels, *others)
