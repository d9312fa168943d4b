"""Other packages that decode JPEGs on a GPU, behind one small interface.

gpubeton decodes with nvJPEG itself, which is faster than any of them: they make objects per image, wait after every
call, or bring pixels to the host. They are here to compare with, and for machines that have one of them already.
"""

from __future__ import annotations

from gpubeton.gpu.decoders.image_decoder import ImageDecoder
from gpubeton.gpu.decoders.opening import DECODERS, open_decoder

__all__ = ["DECODERS", "ImageDecoder", "open_decoder"]
