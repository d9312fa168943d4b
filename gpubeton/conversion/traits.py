"""Traits: what an image has, and what of it a mode cannot hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubeton.format.field_arguments import RGB, ImageKind

if TYPE_CHECKING:
    from PIL import Image

    from gpubeton.fields.jpeg_markers import JpegFrame

__all__ = ["Traits"]

_GRAY_MODES = ("1", "L", "LA", "La", "I", "F")
_ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
_BITS_PER_SAMPLE = 258
"""TIFF's tag (TIFF 6.0, section 8)."""
_BITS_PLACE = 24
"""Where a PNG file says its bits: behind its signature, the first chunk's head, width and height."""


@dataclass(frozen=True)
class Traits:
    """What an image has, by its header alone.

    Parameters
    ----------
    channels : int
        1 for gray, 3 for colours.
    bits : int
        Bits of a channel, 8 or 16; anything beyond 8 is 16.
    has_alpha : bool
        Whether it says what is transparent.
    has_palette : bool
        Whether its numbers are places in a palette.
    is_float : bool
        Whether its numbers are not whole.
    is_scaled : bool
        Whether its largest number is neither 255 nor 65535, and Pillow scales all of them to one of these: gray images
        of 1, 2 or 4 bits, and PGM and PPM files that name another one.

    Examples
    --------
    >>> from PIL import Image
    >>> from gpubeton.format.field_arguments import IMAGE_KINDS
    >>> found = Traits.of_pillow(Image.new("RGBA", (2, 2)))
    >>> found.changes(IMAGE_KINDS["gray"]), found.changes(IMAGE_KINDS["rgba"])
    (['colours', 'alpha'], [])
    """

    channels: int
    bits: int = 8
    has_alpha: bool = False
    has_palette: bool = False
    is_float: bool = False
    is_scaled: bool = False

    @classmethod
    def of_jpeg(cls, frame: JpegFrame) -> Traits:
        """Give those of a JPEG file.

        Parameters
        ----------
        frame : JpegFrame
            Its header.

        Returns
        -------
        Traits
            They never have transparency.
        """
        return cls(1 if len(frame.components) == 1 else 3)

    @classmethod
    def of_pillow(cls, image: Image.Image, content: bytes = b"") -> Traits:
        """Give those of an image of Pillow's, which need not be decoded yet.

        Parameters
        ----------
        image : PIL.Image.Image
            The image.
        content : bytes
            The file, if it is one of a file: Pillow cuts colours of 16 bits, and does not say so.

        Returns
        -------
        Traits
            What it has.
        """
        mode = image.mode.partition(";")[0]
        largest = _largest(image, content)
        bits = largest.bit_length()
        return cls(
            1 if mode in _GRAY_MODES else 3,
            16 if bits > 8 or mode in ("I", "F") else 8,
            has_alpha=mode in _ALPHA_MODES or "transparency" in image.info,
            has_palette=mode == "P",
            is_float=mode == "F",
            is_scaled=mode == "1"
            or (mode in ("L", "LA", "RGB") and largest < 255)
            or (image.format == "PPM" and largest not in (255, 65535)),
        )

    def changes(self, kind: ImageKind) -> list[str]:
        """List what becomes of such an image in a file of a kind.

        Parameters
        ----------
        kind : ImageKind
            What the file holds.

        Returns
        -------
        list of str
            "palette": its numbers stay, what colours they stand for is lost. "colours": they become gray. "alpha":
            transparency is left out. "bits": 16 of them are cut to 8. "levels": its numbers, of a gray image, were
            scaled, see `is_scaled`.
        """
        if kind.channels == 1 and self.has_palette:
            return ["palette"]
        lost = {
            "colours": kind.channels == 1 and self.channels == 3,
            "alpha": self.has_alpha and not kind.has_alpha,
            "bits": self.bits > kind.bits,
            "levels": kind.channels == 1 and self.channels == 1 and self.is_scaled,
        }
        return [name for name, is_lost in lost.items() if is_lost]

    def refusal(self, kind: ImageKind) -> str | None:
        """Say why such an image cannot be in a file of a kind.

        Parameters
        ----------
        kind : ImageKind
            What the file holds.

        Returns
        -------
        str or None
            None if it can, perhaps with losses, see `changes`.
        """
        if self.is_float:
            return "an image of floats, which no mode holds; scale them to whole numbers of 16 bits before"
        if kind.bits == 16:
            fits = self._mode() == kind.name
        else:
            # Pillow cuts 16 bits to 8, but for gray images. In mode "rgb" that is taken, with a remark.
            fits = self.bits == 8 or (kind is RGB and (self.channels == 3 or self.has_alpha))
        if fits:
            return None
        found, mode = f"an image of {self.bits} bits a channel", self._mode()
        if self.bits == kind.bits:
            found = f"an image of kind {mode}"
        reason = ", and 8 bits made 16 would mean something else" if self.bits < kind.bits else ""
        return (
            f"{found}, but the mode is {kind.name}{reason}. Mode {mode} takes such images (mode={mode!r}; --mode "
            f"{mode} of the command)"
        )

    def _mode(self) -> str:
        """Name the mode that holds such images, but for a colour of gray that means transparent."""
        if self.channels == 1 or self.has_palette:
            return "gray16" if self.bits > 8 else "gray"
        return ("rgba" if self.has_alpha else "rgb") + ("16" if self.bits > 8 else "")


def _largest(image: Image.Image, content: bytes) -> int:
    """Give the largest number that a channel of a file can have; 255 where it does not say."""
    if image.format == "PNG" and len(content) > _BITS_PLACE:
        return (1 << content[_BITS_PLACE]) - 1
    if image.format == "TIFF":
        said = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, 8)
        return (1 << (max(said) if isinstance(said, tuple) else int(said))) - 1
    tile = getattr(image, "tile", None)  # of an image that is not decoded yet
    if image.format == "PPM" and image.mode in ("L", "I", "RGB") and tile:
        arguments = tile[0][3]  # of Pillow's decoder; the largest number is among them, if it has to scale
        if isinstance(arguments, tuple):
            return next((each for each in arguments if isinstance(each, int)), 255)
    return 255
