"""JpegStream: the bytes of one JPEG as nvJPEG understands them."""

from __future__ import annotations

from ctypes import byref, c_int, c_uint

from gpubeton.gpu.nvjpeg.enumerations import ChromaSubsampling, ExifOrientation, JpegEncoding
from gpubeton.gpu.nvjpeg.resource import Resource


class JpegStream(Resource):
    """The bytes of one JPEG, parsed; used again for the next. Made by `Handle.make_stream`.

    For one thread at a time. What it answers is about the JPEG that was parsed last.

    Parameters
    ----------
    handle : Resource
        The handle.
    """

    def __init__(self, handle: Resource) -> None:
        super().__init__(
            handle.calls, "nvjpegJpegStreamCreate", "nvjpegJpegStreamDestroy", handle.pointer, parent=handle
        )
        self._handle = handle

    def parse(self, address: int, size: int, *, keep_metadata: bool = False, keep_bytes: bool = False) -> None:
        """Parse a JPEG, all scans included.

        Parameters
        ----------
        address, size : int
            Where it is in the host's memory, in bytes. It has to stay until the image is decoded.
        keep_metadata : bool
            Copy markers that are not needed for decoding.
        keep_bytes : bool
            Copy the JPEG, so that it need not stay.

        Raises
        ------
        NvjpegError
            If it is none, or damaged.
        """
        handle = self._handle.pointer
        self.calls("nvjpegJpegStreamParse", handle, address, size, int(keep_metadata), int(keep_bytes), self.pointer)

    def parse_header(self, address: int, size: int) -> None:
        """Parse the header alone: enough for questions, not for decoding.

        Parameters
        ----------
        address, size : int
            Where the JPEG is in the host's memory, in bytes.

        Raises
        ------
        NvjpegError
            If it is none, or the header is damaged.
        """
        self.calls("nvjpegJpegStreamParseHeader", self._handle.pointer, address, size, self.pointer)

    @property
    def dimensions(self) -> tuple[int, int]:
        """Height and width in pixels."""
        width, height = c_uint(), c_uint()
        self.calls("nvjpegJpegStreamGetFrameDimensions", self.pointer, byref(width), byref(height))
        return height.value, width.value

    @property
    def number_of_components(self) -> int:
        """1 for grey, 3 for colour, 4 for CMYK and YCCK."""
        number = c_uint()
        self.calls("nvjpegJpegStreamGetComponentsNum", self.pointer, byref(number))
        return number.value

    def component_dimensions(self, component: int) -> tuple[int, int]:
        """Height and width of one component, in samples."""
        width, height = c_uint(), c_uint()
        self.calls("nvjpegJpegStreamGetComponentDimensions", self.pointer, component, byref(width), byref(height))
        return height.value, width.value

    @property
    def subsampling(self) -> ChromaSubsampling:
        """How much smaller the chroma components are."""
        return ChromaSubsampling(self._integer("nvjpegJpegStreamGetChromaSubsampling"))

    @property
    def encoding(self) -> JpegEncoding:
        """Baseline, progressive, ..."""
        return JpegEncoding(self._integer("nvjpegJpegStreamGetJpegEncoding"))

    @property
    def orientation(self) -> ExifOrientation:
        """How the camera was held."""
        return ExifOrientation(self._integer("nvjpegJpegStreamGetExifOrientation"))

    @property
    def precision(self) -> int:
        """Bits of a sample: 8, or 12."""
        bits = c_uint()
        self.calls("nvjpegJpegStreamGetSamplePrecision", self.pointer, byref(bits))
        return bits.value

    def _integer(self, function: str) -> int:
        number = c_int()
        self.calls(function, self.pointer, byref(number))
        return number.value
