"""The numbers by which nvJPEG calls backends, formats and kinds of JPEG."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Backend(IntEnum):
    """``nvjpegBackend_t``: what decodes."""

    DEFAULT = 0
    """Left to nvJPEG."""
    HYBRID = 1
    """The CPU undoes Huffman's code, the GPU the rest."""
    GPU_HYBRID = 2
    """The GPU's processors do everything for baseline JPEGs, in batches of more than 50."""
    HARDWARE = 3
    """The GPU's JPEG engines."""
    GPU_HYBRID_DEVICE = 4
    """GPU_HYBRID, and the compressed bytes are in the device's memory."""
    HARDWARE_DEVICE = 5
    """HARDWARE, and the compressed bytes are in the device's memory."""
    LOSSLESS_JPEG = 6
    """For lossless JPEGs alone."""


class Flags(IntFlag):
    """What a handle is to do differently."""

    NONE = 0
    HW_DECODE_NO_PIPELINE = 1
    ENABLE_MEMORY_POOLS = 2
    """Without effect since nvJPEG 11.1."""
    BITSTREAM_STRICT = 4
    """Refuse JPEGs that break the standard's rules."""
    REDUCED_MEMORY_DECODE = 8
    REDUCED_MEMORY_DECODE_ZERO_COPY = 16
    UPSAMPLING_WITH_INTERPOLATION = 32
    """Interpolate chroma, as libjpeg does by default; without it chroma samples are repeated. Since nvJPEG 12.1."""


class OutputFormat(IntEnum):
    """``nvjpegOutputFormat_t``: what is written to the image."""

    UNCHANGED = 0
    YUV = 1
    Y = 2
    RGB = 3
    BGR = 4
    RGBI = 5
    """Red, green, blue beside each other: one plane of 3 bytes per pixel."""
    BGRI = 6
    UNCHANGEDI_U16 = 7
    NV12 = 8
    """Since nvJPEG 12.4."""
    YUY2 = 9
    """Since nvJPEG 12.4."""
    UNCHANGEDI = 10
    """Since nvJPEG 13."""


class ChromaSubsampling(IntEnum):
    """``nvjpegChromaSubsampling_t``."""

    CSS_444 = 0
    CSS_422 = 1
    CSS_420 = 2
    CSS_440 = 3
    CSS_411 = 4
    CSS_410 = 5
    CSS_GRAY = 6
    CSS_410V = 7
    CSS_UNKNOWN = -1


class JpegEncoding(IntEnum):
    """``nvjpegJpegEncoding_t``: the kind of frame, by its marker."""

    UNKNOWN = 0
    BASELINE_DCT = 0xC0
    EXTENDED_SEQUENTIAL_DCT_HUFFMAN = 0xC1
    PROGRESSIVE_DCT_HUFFMAN = 0xC2
    LOSSLESS_HUFFMAN = 0xC3


class ScaleFactor(IntEnum):
    """``nvjpegScaleFactor_t``: reduce while decoding."""

    NONE = 0
    HALF = 1
    QUARTER = 2
    EIGHTH = 3


class ExifOrientation(IntEnum):
    """``nvjpegExifOrientation_t``: how the camera was held."""

    UNKNOWN = 0
    NORMAL = 1
    FLIP_HORIZONTAL = 2
    ROTATE_180 = 3
    FLIP_VERTICAL = 4
    TRANSPOSE = 5
    ROTATE_90 = 6
    TRANSVERSE = 7
    ROTATE_270 = 8
